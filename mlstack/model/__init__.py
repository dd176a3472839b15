"""Pure values and functions; standard library only."""
