"""Benchmarks: whole commands, timed in turn with their rivals; tables, never an assertion on a clock."""
