"""Offline validation of objects: OpenAPI types, CEL rules, and the rules of the API server."""
