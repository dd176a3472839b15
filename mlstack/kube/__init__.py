"""The Kubernetes API behind a handful of verbs: client, logins, HTTP, retries, leases."""
