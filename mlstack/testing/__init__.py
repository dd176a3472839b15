"""A Kubernetes API server in memory, with its controllers, for tests, `mlstack demo` and the simulator."""
