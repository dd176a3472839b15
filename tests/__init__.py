"""The tests of mlstack."""
