"""Builders, harnesses and contract suites that tests share."""
