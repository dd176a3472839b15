"""A Kubernetes API server in memory, with its controllers, for tests, `mlstack demo` and the simulator.

The product asks a real one, by `kube/`.
"""
