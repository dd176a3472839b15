"""The app directory: app, parameters, prototypes, packages, and the files that hold them, read and edited.

What becomes of them is in `render/`.
"""
