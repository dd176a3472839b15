"""Elastic training jobs: what they want, their pods and their status.

What a policy gives them is in `policy/`, the controller that makes it so in `controller/`.
"""
