"""Component manager for machine learning on Kubernetes."""

__version__ = "0.1.0"
DEFAULT_KUBERNETES_VERSION = "1.36"
