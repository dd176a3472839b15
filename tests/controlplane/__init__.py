"""The programs that cluster tests run: how they are built, and where they are kept.

`python -m tests.controlplane` (from the root of the checkout) builds what is missing. It needs the
network and, the first time, some ten minutes; the tests themselves then run without either.
"""
