"""Tasks of Kubeflow's guides: what a guide asked for, and what mlstack asks for.

Both begin in an app with an environment, or where the guide began before that. Counted is what changes
something, on both sides: no looking, no variables, no `cd`; a click of a guide through pages is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import Runner

WEBSITE = "github.com/kubeflow/website, v0.5-branch, content/docs"
OPERATORS = "github.com/kubeflow/website, v1.9-branch, content/en/docs/components"


@dataclass(frozen=True)
class Guide:
    """One guide: what it asked for, what we ask for, and what comes of ours."""

    source: str
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    kinds: str  # of the objects that are applied at last, beside others

    @property
    def environment(self) -> str:
        """Give the environment of the last command, which applies."""
        return self.ours[-1].split()[1]

    def prepare(self, run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run what comes before the last command in a new app; what other programs do is left out."""
        monkeypatch.chdir(folder)
        run.ok("init demo --env minikube --context minikube")
        monkeypatch.chdir(folder / "demo")
        for line in ("env add gke --context gke", *self.ours[:-1]):
            if not line.startswith("$ "):
                run.ok(line)


GUIDES = {
    "distributed MNIST in TensorFlow": Guide(
        f"{WEBSITE}/components/tftraining.md",
        (
            "ks init mycnnjob",
            "ks registry add kubeflow-git github.com/kubeflow/kubeflow/tree/v0.4.0/kubeflow",
            "ks pkg install kubeflow-git/examples",
            "ks generate tf-job-simple-v1beta1 mycnnjob --name=mycnnjob",
            "ks apply default -c mycnnjob",
        ),
        ("pkg install kubeflow/tf-job", "generate tf-job-simple mnist", "apply minikube"),
        "TFJob",
    ),
    "distributed MNIST in PyTorch": Guide(
        f"{WEBSITE}/components/pytorch.md",
        (
            "ks pkg install kubeflow/pytorch-job",
            "ks generate pytorch-operator pytorch-operator",
            "ks apply ENV -c pytorch-operator",
            "kubectl create -f pytorch_job_mnist.yaml",
        ),
        (
            "pkg install kubeflow/core kubeflow/training",
            "generate pytorch-operator operator",
            "generate pytorch-job mnist --example mnist",
            "apply minikube",
        ),
        "PyTorchJob Deployment",
    ),
    "search for hyperparameters": Guide(
        f"{WEBSITE}/components/hyperparameter.md",
        (
            "ks env set default --namespace=kubeflow",
            "ks registry add kubeflow github.com/kubeflow/kubeflow/tree/master/kubeflow",
            "ks pkg install kubeflow/katib",
            "ks generate katib katib",
            "ks apply default -c katib",
            "kubectl create -f pv.yaml",
            "kubectl create -f random-example.yaml",
        ),
        (
            "pkg install kubeflow/tuning",
            "$ kubectl apply --server-side -k github.com/kubeflow/katib.git/manifests/v1beta1/installs/"
            "katib-standalone?ref=v0.19.0",
            "generate katib-experiment random --example random",
            "apply minikube",
        ),
        "Experiment",
    ),
    "a run of a pipeline": Guide(
        f"{WEBSITE}/pipelines/tutorials/pipelines-tutorial.md",
        (
            "git clone https://github.com/kubeflow/examples.git",
            "pip install -r requirements.txt --upgrade",
            "python3 mnist_pipeline.py",
            "Upload pipeline",
            "Create run",
            "Start",
        ),
        (
            "pkg install kubeflow/pipelines",
            "generate pipeline-run mnist --example minikube",
            "apply minikube",
        ),
        "Workflow",
    ),
    "a notebook with a GPU and a volume": Guide(
        f"{WEBSITE}/notebooks/setup.md",
        ("Notebooks", "NEW SERVER", "the form: name, image, GPUs, volume", "SPAWN", "CONNECT"),
        (
            "pkg install kubeflow/notebooks",
            "generate notebook lab --numGpus 1 --storage 20Gi",
            "apply gke",
        ),
        "StatefulSet PersistentVolumeClaim",
    ),
    "an A/B test of two models": Guide(
        f"{WEBSITE}/components/seldon.md; the last two: the prototype in kubeflow/seldon of Kubeflow 0.5",
        (
            "ks pkg install kubeflow/seldon",
            "ks generate seldon seldon",
            "ks apply default -c seldon",
            "ks generate seldon-abtest-v1alpha2 scorer --imageA=A --imageB=B",
            "ks apply default -c scorer",
        ),
        (
            "pkg install kubeflow/serving",
            "$ helm install seldon-core seldon-core-operator --repo https://storage.googleapis.com/seldon-charts",
            "generate seldon-abtest scorer --imageA=r.example.org/a:1 --imageB=r.example.org/b:1",
            "apply minikube",
        ),
        "SeldonDeployment",
    ),
    "canary serving with Istio": Guide(
        f"{WEBSITE}/components/istio.md, tfserving_new.md",
        (
            *("kubectl apply -f crds.yaml", "kubectl apply -f istio-noauth.yaml"),
            *(
                "kubectl apply -f kf-istio-resources.yaml",
                "kubectl label namespace kubeflow istio-injection=enabled",
            ),
            *("ks generate tf-serving-service mnist-service", "ks param set mnist-service modelName mnist"),
            *("ks generate tf-serving-deployment-gcp mnist-v1", "ks param set mnist-v1 modelName mnist"),
            "ks param set mnist-v1 modelBasePath gs://kubeflow-examples-data/mnist",
            "ks param set mnist-v1 injectIstio true",
            *("ks apply default -c mnist-service", "ks apply default -c mnist-v1"),
            *("ks generate tf-serving-deployment-gcp mnist-v2", "ks param set mnist-v2 modelName mnist"),
            *("ks param set mnist-v2 versionName v2", "ks param set mnist-v2 injectIstio true"),
            "ks param set mnist-v2 modelBasePath gs://kubeflow-examples-data/mnist",
            "ks apply default -c mnist-v2",
            *("ks param set mnist-service trafficRule v1:90:v2:10", "ks apply default -c mnist-service"),
        ),
        (
            "pkg install kubeflow/tf-serving",
            "$ istioctl install",
            "generate tf-serving inception --model_path=gs://kubeflow-models/inception"
            " --istioHosts=inception.example.org --trafficRule=v1=90,v2=10",
            "generate tf-serving inception-v2 --example canary",
            "apply minikube",
        ),
        "VirtualService DestinationRule Deployment",
    ),
    "batch prediction": Guide(
        f"{WEBSITE}/components/tfbatchpredict.md",
        (
            "ks registry add kubeflow-git github.com/kubeflow/kubeflow/tree/VERSION/kubeflow",
            "ks pkg install kubeflow-git/examples",
            "ks generate tf-batch-predict job --modelPath=gs://m …",
            "ks apply default -c job",
        ),
        (
            "pkg install kubeflow/serving",
            "generate tf-batch-predict job --modelPath=gs://models/m/1 --inputFilePatterns=gs://data/in/*"
            " --inputFileFormat=json --outputResultPrefix=gs://data/out --outputErrorPrefix=gs://data/err",
            "apply minikube",
        ),
        "Job",
    ),
    "a benchmark by MPI": Guide(
        f"{WEBSITE}/components/mpi.md",
        (
            "ks pkg install kubeflow/mpi-job",
            "ks generate mpi-operator mpi-operator",
            "ks apply ENV -c mpi-operator",
            "kubectl create -f examples/tensorflow-benchmarks.yaml",
        ),
        (
            "pkg install kubeflow/training",
            "$ kubectl apply --server-side -f https://raw.githubusercontent.com/kubeflow/mpi-operator/v0.8.0/"
            "deploy/v2beta1/mpi-operator.yaml",
            "generate mpi-job-simple benchmarks --example default",
            "apply gke",
        ),
        "MPIJob",
    ),
    "a Spark job": Guide(
        f"{OPERATORS}/spark-operator/getting-started.md",
        (
            "helm repo add spark-operator https://kubeflow.github.io/spark-operator",
            "helm repo update",
            "helm install spark-operator spark-operator/spark-operator -n spark-operator --create-namespace",
            "kubectl apply -f examples/spark-pi.yaml",
        ),
        (
            "pkg install kubeflow/pipelines",
            "$ helm install spark-operator spark-operator --repo https://kubeflow.github.io/spark-operator",
            "generate spark-application pi --example minikube",
            "apply minikube",
        ),
        "SparkApplication",
    ),
    "a Ray cluster": Guide(
        "github.com/kubeflow/manifests, v1.6-branch, contrib/ray/README.md, and README.md for its step 1",
        (
            "git clone https://github.com/kubeflow/manifests",
            "while ! kustomize build example | kubectl apply -f -; do sleep 10; done",
            "kustomize build kuberay-operator/base | kubectl apply --server-side -f -",
            "kubectl apply -f raycluster_example.yaml",
        ),
        (
            "pkg install kubeflow/pipelines",
            "$ helm install kuberay-operator kuberay-operator --repo https://ray-project.github.io/kuberay-helm",
            "generate ray-cluster ray --example minikube",
            "apply minikube",
        ),
        "RayCluster",
    ),
}
