"""Component manager for machine learning on Kubernetes."""

__version__ = "0.1.0"
