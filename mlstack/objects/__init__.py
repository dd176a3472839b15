"""Kubernetes objects as values: identity, kinds, order, field ownership, and what is masked in them.

No file, no cluster.
"""
