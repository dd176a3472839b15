"""A corpus for policies: for each a stack that does not keep it, and near misses that do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True)
class PolicyCase:
    """A stack and what a policy says of it."""

    name: str
    objects: str  # YAML documents
    says: str = ""  # a part of the message; empty where the policy is kept
    nodes: tuple[Mapping[str, Any], ...] = ()  # shapes of a snapshot
    apis: Mapping[str, tuple[str, ...]] | None = None


def pod(spec: str, kind: str = "Deployment", **more: str) -> str:
    """Write an object with one pod template, its spec and further fields in flow style."""
    api, wrap = {
        "Deployment": ("apps/v1", "template: {%s}"),
        "StatefulSet": ("apps/v1", "template: {%s}"),
        "DaemonSet": ("apps/v1", "template: {%s}"),
        "Job": ("batch/v1", "template: {%s}"),
        "CronJob": ("batch/v1", "jobTemplate: {spec: {template: {%s}}}"),
        "PyTorchJob": ("kubeflow.org/v1", "pytorchReplicaSpecs: {Worker: {replicas: 2, template: {%s}}}"),
        "TFJob": ("kubeflow.org/v1", "tfReplicaSpecs: {Worker: {replicas: 2, template: {%s}}}"),
        "RayCluster": ("ray.io/v1", "workerGroupSpecs: [{replicas: 2, template: {%s}}]"),
        "JobSet": ("jobset.x-k8s.io/v1alpha2", "replicatedJobs: [{template: {spec: {template: {%s}}}}]"),
    }[kind]
    template = wrap % f"metadata: {{labels: {{app: a}}}}, spec: {{{spec}}}"
    fields = "".join(f", {name}: {value}" for name, value in more.items() if name != "metadata")
    metadata = f", {more['metadata']}" if "metadata" in more else ""
    return (
        f"{{apiVersion: {api}, kind: {kind}, metadata: {{name: a{metadata}}}, spec: {{{template}{fields}}}}}"
    )


def container(fields: str = "", image: str = "r.example.org/a:1") -> str:
    """Write the containers of a pod: one, with further fields."""
    return f"containers: [{{name: a, image: {image}{', ' if fields else ''}{fields}}}]"


def claim(*modes: str) -> str:
    """Write a claim `data` of these access modes."""
    return (
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data},"
        f" spec: {{accessModes: [{', '.join(modes)}]}}}}"
    )


GPU = "resources: {limits: {nvidia.com/gpu: 1}}"
DATA = "volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]"
SHM = "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]"
SERVICE = (
    "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {selector: {app: a}, ports: [{port: 80}]}}"
)
PROBE = "readinessProbe: {tcpSocket: {port: 80}}"
TAINTED: Mapping[str, Any] = {
    "allocatable": {"nvidia.com/gpu": "8"},
    "taints": ["nvidia.com/gpu=present:NoSchedule"],
}
TOLERATES = "tolerations: [{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}]"
RESTRICTED = "securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}"
QUEUES = {"kueue.x-k8s.io/v1beta1": ("ClusterQueue", "LocalQueue")}


ASKS = "resources: {requests: {nvidia.com/gpu: 1}}"


def custom(api_version: str, kind: str, spec: str) -> str:
    """Write an object of an operator's kind, its spec in flow style."""
    return f"{{apiVersion: {api_version}, kind: {kind}, metadata: {{name: a}}, spec: {{{spec}}}}}"


def mpi_job(fields: str = "slotsPerWorker: 1") -> str:
    """Write an MPIJob with GPUs."""
    workers = f"mpiReplicaSpecs: {{Worker: {{replicas: 2, template: {{spec: {{{container(GPU)}}}}}}}}}"
    return custom("kubeflow.org/v2beta1", "MPIJob", f"{fields}, {workers}")


def ray_job(fields: str = "entrypoint: python a.py") -> str:
    """Write a RayJob with GPUs."""
    workers = f"workerGroupSpecs: [{{template: {{spec: {{{container(GPU)}}}}}}}]"
    return custom("ray.io/v1", "RayJob", f"{fields}, rayClusterSpec: {{{workers}}}")


def kserve(predictor: str) -> str:
    """Write an InferenceService."""
    return custom("serving.kserve.io/v1beta1", "InferenceService", f"predictor: {{{predictor}}}")


def argo(fields: str = "entrypoint: a", container: str = "{image: r.example.org/a:1}") -> str:
    """Write a Workflow of one step."""
    templates = f"templates: [{{name: a, container: {container}}}]"
    return custom("argoproj.io/v1alpha1", "Workflow", f"{fields}, {templates}")


def train_job(trainer: str) -> str:
    """Write a TrainJob."""
    return custom("trainer.kubeflow.org/v1alpha1", "TrainJob", f"trainer: {{{trainer}}}")


def spark(executor: str) -> str:
    """Write a SparkApplication."""
    return custom("sparkoperator.k8s.io/v1beta2", "SparkApplication", f"executor: {{{executor}}}")


def budget(field: str, label: str = "a") -> str:
    """Write a disruption budget of pods with this label."""
    return (
        "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: a},"
        f" spec: {{selector: {{matchLabels: {{app: {label}}}}}, {field}}}}}"
    )


def role(rule: str) -> str:
    """Write a role with one rule."""
    head = "apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a}"
    return f"{{{head}, rules: [{{{rule}}}]}}"


def binding(name: str, account: str) -> str:
    """Write a binding of a role to an account."""
    return (
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: a},"
        f" roleRef: {{kind: ClusterRole, name: {name}}},"
        f" subjects: [{{kind: ServiceAccount, name: {account}}}]}}"
    )


def stack(*objects: str) -> str:
    """Put objects together."""
    return "\n---\n".join(objects)


def args(*words: str) -> str:
    """Write the arguments of a container."""
    return f"args: [{', '.join(words)}]"


def mounted(path: str) -> str:
    """Write a mount of the volume `data`."""
    return f"volumeMounts: [{{name: data, mountPath: {path}}}]"


def env(name: str, value: str) -> str:
    """Write the environment of a container."""
    return f'env: [{{name: {name}, value: "{value}"}}]'


C = PolicyCase
CASES: Mapping[str, tuple[PolicyCase, ...]] = {
    "gpu-limits": (
        C("request alone", pod(container("resources: {requests: {nvidia.com/gpu: 1}}")), "no limit"),
        C(
            "less than the limit",
            pod(container("resources: {requests: {amd.com/gpu: 1}, limits: {amd.com/gpu: 2}}"), "TFJob"),
            "its limit is 2",
        ),
        C("limit alone", pod(container(GPU))),
        C(
            "equal in other words",
            pod(container('resources: {requests: {nvidia.com/gpu: "1"}, limits: {nvidia.com/gpu: 1}}')),
        ),
        C("cpu may differ", pod(container("resources: {requests: {cpu: 1}, limits: {cpu: 2}}"))),
        C("kserve's model", kserve(f"model: {{modelFormat: {{name: onnx}}, {ASKS}}}"), "no limit"),
        C("train job", train_job("resourcesPerNode: {requests: {nvidia.com/gpu: 1}}"), "no limit"),
    ),
    "gpu-nodes": (
        C(
            "selector alone",
            pod(f"nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-l4}}, {container()}"),
            "asks for no GPU",
        ),
        C(
            "with a GPU",
            pod(f"nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-l4}}, {container(GPU)}"),
        ),
        C("a driver", pod(f"nodeSelector: {{nvidia.com/gpu.product: A100}}, {container()}", "DaemonSet")),
        C("other selector", pod(f"nodeSelector: {{disk: ssd}}, {container()}")),
        C("spark", spark("nodeSelector: {nvidia.com/gpu.product: L4}"), "asks for no GPU"),
        C(
            "spark with gpus",
            spark("nodeSelector: {nvidia.com/gpu.product: L4}, gpu: {name: nvidia.com/gpu, quantity: 1}"),
        ),
    ),
    "gpu-tolerations": (
        C("tainted", pod(container(GPU)), "does not tolerate nvidia.com/gpu=", nodes=(TAINTED,)),
        C("tolerated", pod(f"{TOLERATES}, {container(GPU)}"), nodes=(TAINTED,)),
        C(
            "one pool without",
            pod(container(GPU)),
            nodes=(TAINTED, {"allocatable": {"nvidia.com/gpu": "1"}, "taints": []}),
        ),
        C(
            "gke adds it",
            pod(container(GPU)),
            nodes=({**TAINTED, "labels": {"cloud.google.com/gke-accelerator": "nvidia-l4"}},),
        ),
        C("no snapshot", pod(container(GPU))),
        C("no gpu", pod(container()), nodes=(TAINTED,)),
    ),
    "shared-memory": (
        C("pytorch", pod(container(GPU), "PyTorchJob"), "/dev/shm"),
        C("an image", pod(container(GPU, "vllm/vllm-openai:v0.9.0"), "StatefulSet"), "/dev/shm"),
        C(
            "mounted",
            pod(
                f"{SHM}, {container(GPU + ', volumeMounts: [{name: shm, mountPath: /dev/shm/}]')}",
                "PyTorchJob",
            ),
        ),
        C("without a gpu", pod(container(), "PyTorchJob")),
        C("tensorflow", pod(container(GPU, "tensorflow/tensorflow:2.20.0-gpu"), "TFJob")),
    ),
    "memory-volumes": (
        C(
            "no limit",
            pod(f"volumes: [{{name: a, emptyDir: {{medium: Memory}}}}], {container()}"),
            "in memory",
        ),
        C("limit", pod(f"{SHM}, {container()}")),
        C("on disk", pod(f"volumes: [{{name: a, emptyDir: {{}}}}], {container()}")),
    ),
    "checkpoint-storage": (
        C("in the container", pod(container(args("--checkpoint_dir=/ckpt")), "TFJob"), "writes to /ckpt"),
        C(
            "an empty volume",
            pod(
                "volumes: [{name: data, emptyDir: {}}], "
                + container(f"{args('--output-dir', '/out/a')}, {mounted('/out')}"),
                "Job",
            ),
            "writes to /out/a",
        ),
        C("a variable", pod(container(env("CHECKPOINT_DIR", "/ckpt")), "PyTorchJob"), "writes to"),
        C(
            "a claim",
            pod(
                f"{DATA}, {container(args('--checkpoint_dir=/data/ckpt') + ', ' + mounted('/data'))}", "TFJob"
            ),
        ),
        C("a bucket", pod(container(args("--model-dir=gs://b/m")), "TFJob")),
        C("what is read", pod(container(args("--data_dir=/data")), "TFJob")),
        C("what serves", pod(container(args("--model_path=/models")))),
    ),
    "claim-access": (
        C(
            "two workers",
            stack(pod(f"{DATA}, {container()}", "PyTorchJob"), claim("ReadWriteOnce")),
            "2 of them",
        ),
        C(
            "replicas",
            stack(pod(f"{DATA}, {container()}", replicas="3"), claim("ReadWriteOncePod")),
            "3 of them",
        ),
        C("many nodes", stack(pod(f"{DATA}, {container()}", "PyTorchJob"), claim("ReadWriteMany"))),
        C("one pod", stack(pod(f"{DATA}, {container()}", replicas="1"), claim("ReadWriteOnce"))),
        C("unknown claim", pod(f"{DATA}, {container()}", replicas="3")),
    ),
    "training-deadline": (
        C("none", pod(container(GPU), "PyTorchJob"), "no deadline"),
        C("of a set", pod(container(GPU), "JobSet"), "no deadline"),
        C("set", pod(container(GPU), "PyTorchJob", runPolicy="{activeDeadlineSeconds: 60}")),
        C("of a job", pod(container(GPU), "Job", activeDeadlineSeconds="60")),
        C("no gpu", pod(container(), "TFJob")),
        C("a service", pod(container(GPU))),
        C("argo", argo(container=f"{{image: a, {GPU}}}"), "no deadline"),
    ),
    "schedule-overlap": (
        C("unset", pod(container(), "CronJob"), "may overlap"),
        C("allowed", pod(container(), "CronJob", concurrencyPolicy="Allow"), "may overlap"),
        C("forbidden", pod(container(), "CronJob", concurrencyPolicy="Forbid")),
        C("a job", pod(container(), "Job")),
    ),
    "training-queue": (
        C("passes by", pod(container(GPU), "Job"), "names no queue", apis=QUEUES),
        C(
            "a queue beside it",
            stack(
                pod(container(GPU), "TFJob"),
                "{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {name: q}}",
            ),
            "names no queue",
        ),
        C(
            "queued",
            pod(container(GPU), "Job", metadata="labels: {kueue.x-k8s.io/queue-name: q}"),
            apis=QUEUES,
        ),
        C("no kueue", pod(container(GPU), "Job")),
        C("no gpu", pod(container(), "Job"), apis=QUEUES),
    ),
    "image-tag": (
        C("latest", pod(container(image="a:latest"), "RayCluster"), "has the tag `latest`"),
        C("no tag but a port", pod(container(image="r.example.org:5000/a")), "has no tag"),
        C("a tag", pod(container(image="r.example.org:5000/a:1"))),
        C("a digest", pod(container(image=f"a@sha256:{'0' * 64}"))),
        C("like it", pod(container(image="a:latest-2.1"))),
        C("argo", argo(container="{image: python}"), "which means `latest`"),
    ),
    "requests": (
        C("none", pod(container(), "TFJob"), "no cpu and no memory"),
        C("half", pod(container("resources: {requests: {cpu: 1}}")), "no memory"),
        C("both", pod(container("resources: {requests: {cpu: 1, memory: 1Gi}}"))),
        C("limits", pod(container("resources: {limits: {cpu: 1, memory: 1Gi}}"))),
        C("of the pod", pod(f"resources: {{requests: {{cpu: 1, memory: 1Gi}}}}, {container()}")),
    ),
    "readiness-probe": (
        C("none", stack(pod(container()), SERVICE), "serve without"),
        C("probed", stack(pod(container(PROBE)), SERVICE)),
        C("no service", pod(container())),
        C("a job", stack(pod(container(), "Job"), SERVICE)),
    ),
    "disruption-budget": (
        C("none", stack(pod(container(), replicas="2"), SERVICE), "no PodDisruptionBudget"),
        C(
            "of others",
            stack(pod(container(), replicas="2"), SERVICE, budget("maxUnavailable: 1", "b")),
            "no PodDisruptionBudget",
        ),
        C("given", stack(pod(container(), replicas="2"), SERVICE, budget("maxUnavailable: 1"))),
        C("one replica", stack(pod(container(), replicas="1"), SERVICE)),
        C("no service", pod(container(), replicas="2")),
    ),
    "budget-blocks": (
        C("as many", stack(pod(container(), replicas="2"), budget("minAvailable: 2")), "lets none go"),
        C("of one", stack(pod(container()), budget("minAvailable: 1")), "lets none go"),
        C("a share", stack(pod(container(), replicas="4"), budget('minAvailable: "100%"')), "lets none"),
        C("zero", stack(pod(container(), replicas="4"), budget("maxUnavailable: 0")), "lets no pod"),
        C("one may go", stack(pod(container(), replicas="2"), budget("minAvailable: 1"))),
        C("half", stack(pod(container(), replicas="4"), budget('minAvailable: "50%"'))),
        C("scaled to none", stack(pod(container(), replicas="0"), budget("minAvailable: 1"))),
    ),
    "claim-rollout": (
        C("rolls", stack(pod(f"{DATA}, {container()}"), claim("ReadWriteOnce")), "rolls over"),
        C(
            "recreates",
            stack(pod(f"{DATA}, {container()}", strategy="{type: Recreate}"), claim("ReadWriteOnce")),
        ),
        C(
            "no surge",
            stack(
                pod(f"{DATA}, {container()}", strategy="{rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"),
                claim("ReadWriteOnce"),
            ),
        ),
        C("many nodes", stack(pod(f"{DATA}, {container()}"), claim("ReadWriteOnce", "ReadWriteMany"))),
        C("a set", stack(pod(f"{DATA}, {container()}", "StatefulSet"), claim("ReadWriteOnce"))),
    ),
    "privileged": (
        C(
            "a container",
            pod(container("securityContext: {privileged: true}"), "PyTorchJob"),
            "is privileged",
        ),
        C("the network", pod(f"hostNetwork: true, {container()}"), "shares the network"),
        C(
            "a capability",
            pod(container("securityContext: {capabilities: {add: [SYS_ADMIN]}}")),
            "adds the capability SYS_ADMIN",
        ),
        C("said not to be", pod(f"hostNetwork: false, {container('securityContext: {privileged: false}')}")),
        C("a low port", pod(container("securityContext: {capabilities: {add: [NET_BIND_SERVICE]}}"))),
        C("kserve", kserve(container("securityContext: {privileged: true}")), "is privileged"),
    ),
    "host-path": (
        C(
            "mounted",
            pod(f"volumes: [{{name: a, hostPath: {{path: /data}}}}], {container()}"),
            "mounts /data",
        ),
        C("empty", pod(f"volumes: [{{name: a, emptyDir: {{}}}}], {container()}")),
        C("argo", argo("volumes: [{name: a, hostPath: {path: /a}}]"), "mounts /a"),
    ),
    "secret-in-env": (
        C("a password", pod(container(env("DB_PASSWORD", "hunter2")), "RayCluster"), "holds a credential"),
        C("a key", pod(container(env("AWS_SECRET_ACCESS_KEY", "x9"))), "holds a credential"),
        C("in an address", pod(container(env("DB", "postgres://u:p@db/x"))), "`DB` holds"),
        C("a path", pod(container(env("GOOGLE_APPLICATION_CREDENTIALS", "/secret/key.json")))),
        C("a count", pod(container(env("MAX_TOKENS", "4096")))),
        C("a name", pod(container(env("DB_PASSWORD_FILE", "x")))),
        C("no password", pod(container(env("DB", "postgres://u@db/x")))),
        C(
            "from a secret",
            pod(container("env: [{name: DB_PASSWORD, valueFrom: {secretKeyRef: {name: s, key: k}}}]")),
        ),
        C("spark", spark("env: [{name: API_KEY, value: x}]"), "`API_KEY` holds"),
    ),
    "non-root": (
        C("unsaid", pod(container()), "may run as root"),
        C("root", pod(f"securityContext: {{runAsUser: 0}}, {container()}", "TFJob"), "runs as root"),
        C("of the pod", pod(f"securityContext: {{runAsNonRoot: true}}, {container()}")),
        C("a user", pod(container("securityContext: {runAsUser: 1000}"))),
        C("windows", pod(f"os: {{name: windows}}, {container()}")),
        C("kserve", kserve(container()), "may run as root"),
        C("kserve's runtime", kserve("model: {modelFormat: {name: onnx}, storageUri: gs://b/m}")),
        C("argo", argo(), "may run as root"),
        C("argo's workflow", argo("securityContext: {runAsNonRoot: true}")),
        C("train job", train_job("image: r.example.org/a:1")),
    ),
    "restricted": (
        C("unsaid", pod(container()), "allowPrivilegeEscalation, capabilities.drop, seccompProfile"),
        C("no profile", pod(container(RESTRICTED)), "is not restricted: seccompProfile"),
        C(
            "all",
            pod(f"securityContext: {{seccompProfile: {{type: RuntimeDefault}}}}, {container(RESTRICTED)}"),
        ),
    ),
    "default-account": (
        C("bound", binding("edit", "default"), "to the account `default`"),
        C("its own", binding("edit", "trainer")),
    ),
    "rbac-wildcard": (
        C("all", role('apiGroups: ["*"], resources: ["*"], verbs: ["*"]'), "every verb"),
        C("the admin", binding("cluster-admin", "trainer"), "cluster-admin"),
        C("verbs of one", role('apiGroups: [""], resources: [pods], verbs: ["*"]')),
        C("reads all", role('apiGroups: ["*"], resources: ["*"], verbs: [get]')),
    ),
    "finished-pods": (
        C("mpi", mpi_job(), "leaves its workers running"),
        C("mpi on cpus", mpi_job().replace(GPU, "")),
        C("mpi cleaned", mpi_job("runPolicy: {cleanPodPolicy: Running}")),
        C("ray", ray_job(), "leaves its cluster running"),
        C("ray shut down", ray_job("shutdownAfterJobFinishes: true")),
    ),
}


def documents(text: str) -> list[dict[str, Any]]:
    """Read the objects of a case."""
    return [document for document in yaml.safe_load_all(text) if document]
