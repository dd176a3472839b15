"""Elastic training jobs: their fields, pods and status, and the controller that looks after them.

What a policy gives them is decided in `policy/`.
"""
