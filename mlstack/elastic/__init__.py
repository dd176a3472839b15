"""Elastic training jobs: what they want, what a policy gives them, and the controller that makes it so."""
