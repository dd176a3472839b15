"""Where packages come from: the index of a registry, and one module a protocol.

What an app has installed of them is in `app/`.
"""
