"""What works and what it waits for: the rule of each kind, what a rule is given, and its watchers.

Rules are pure. Nothing here writes to a cluster; who waits for a run stands in `deploy/wait.py`.
"""
