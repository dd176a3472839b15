"""What works and what it waits for: the rule of each kind, what a rule is given, and room for pods.

Rules are pure. Nothing here writes to a cluster; who watches and waits stands in `deploy/wait.py`.
"""
