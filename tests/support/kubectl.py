"""A kubeconfig as values."""

from mlstack.kube.kubeconfig import Context, Kubeconfig

KUBECONFIG = Kubeconfig(
    current_context="minikube",
    contexts={
        "minikube": Context(name="minikube", cluster="m", server="https://m.invalid", namespace="default"),
        "gke": Context(name="gke", cluster="g", server="https://g.invalid", namespace="ml"),
    },
)
