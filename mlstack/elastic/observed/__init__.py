"""Nodes and pods as the controller sees them: parsed once, with what a plan needs and no more."""
