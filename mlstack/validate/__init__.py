"""Offline validation of objects: OpenAPI types, CEL rules, and the rules of the API server.

Parameters and files of an app are checked in `app/schema.py`.
"""
