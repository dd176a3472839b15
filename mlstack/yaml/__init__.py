"""YAML as kubectl reads it: values with their positions, edits in place, and one writer.

What the values mean is for others to say.
"""
