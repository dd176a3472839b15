"""Offline validation: what an API server would refuse, said before one is asked."""
