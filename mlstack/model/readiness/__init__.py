"""Whether live objects work, and why not: one rule a kind."""
