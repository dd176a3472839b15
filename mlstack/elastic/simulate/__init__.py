"""A cluster on virtual time around the real controller: seeded discrete events, and the same bytes every time."""
