"""A cluster in simulated time, on which the elastic controller is measured; the published experiments.

The policy and the controller are those of `elastic/`.
"""
