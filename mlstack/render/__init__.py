"""From parameters to Kubernetes objects: templates, parsing, patches, and what of it is stored.

No cluster is asked.
"""
