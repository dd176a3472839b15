"""The steps of a policy: pure functions of one snapshot, without clock, randomness or I/O.

The snapshot is built, and the plan carried out, by the modules around.
"""
