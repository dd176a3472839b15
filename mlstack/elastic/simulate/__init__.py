"""A cluster on virtual time around the real controller: seeded discrete events, same bytes every time."""
