"""What an environment has in its cluster and is to go."""
