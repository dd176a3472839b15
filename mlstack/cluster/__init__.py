"""The Kubernetes API behind a handful of verbs: a real server or a cluster in memory."""
