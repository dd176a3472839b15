"""What an environment keeps in its cluster: inventory, history, lock; and what is found by them."""
