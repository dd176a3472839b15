"""What is there, and what an apply would make of it: live objects and dry runs → Changes."""
