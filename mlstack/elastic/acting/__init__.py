"""What the controller does about a plan: the life of a job, writes, and what is told about them."""
