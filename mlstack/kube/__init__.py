"""The Kubernetes API behind a handful of verbs: client, logins, HTTP, retries, leases, watches.

What is asked and written is decided elsewhere; a server in memory is in `testing/`.
"""
