"""The controller as a process: watches in threads, the lease, the loop."""
