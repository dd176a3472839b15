"""The elastic controller: what it caches, one pass over all jobs, leadership, metrics.

What is decided is in `elastic/policy/`.
"""
