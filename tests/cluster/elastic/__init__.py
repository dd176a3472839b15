"""The elastic controller on a real control plane."""
