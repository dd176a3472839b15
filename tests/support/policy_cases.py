"""A corpus for policies: for each a stack that does not keep it, and near misses that do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True)
class PolicyCase:
    """A stack and what a policy says of it."""

    policy: str
    name: str
    objects: str  # YAML documents
    says: str = ""  # a part of the message; empty where the policy is kept
    nodes: tuple[Mapping[str, Any], ...] = ()  # shapes of a snapshot
    apis: Mapping[str, tuple[str, ...]] | None = None

    def __str__(self) -> str:
        """Name the test."""
        return f"{self.policy}-{self.name}".replace(" ", "-")


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
CASES = (
    C(
        "gpu-limits",
        "request alone",
        pod(container("resources: {requests: {nvidia.com/gpu: 1}}")),
        "no limit",
    ),
    C(
        "gpu-limits",
        "less than the limit",
        pod(container("resources: {requests: {amd.com/gpu: 1}, limits: {amd.com/gpu: 2}}"), "TFJob"),
        "its limit is 2",
    ),
    C("gpu-limits", "limit alone", pod(container(GPU))),
    C(
        "gpu-limits",
        "equal in other words",
        pod(container('resources: {requests: {nvidia.com/gpu: "1"}, limits: {nvidia.com/gpu: 1}}')),
    ),
    C("gpu-limits", "cpu may differ", pod(container("resources: {requests: {cpu: 1}, limits: {cpu: 2}}"))),
    C(
        "gpu-nodes",
        "selector alone",
        pod(f"nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-l4}}, {container()}"),
        "asks for no GPU",
    ),
    C(
        "gpu-nodes",
        "with a GPU",
        pod(f"nodeSelector: {{cloud.google.com/gke-accelerator: nvidia-l4}}, {container(GPU)}"),
    ),
    C(
        "gpu-nodes",
        "a driver",
        pod(f"nodeSelector: {{nvidia.com/gpu.product: A100}}, {container()}", "DaemonSet"),
    ),
    C("gpu-nodes", "other selector", pod(f"nodeSelector: {{disk: ssd}}, {container()}")),
    C("gpu-tolerations", "tainted", pod(container(GPU)), "does not tolerate nvidia.com/gpu=", (TAINTED,)),
    C("gpu-tolerations", "tolerated", pod(f"{TOLERATES}, {container(GPU)}"), nodes=(TAINTED,)),
    C(
        "gpu-tolerations",
        "one pool without",
        pod(container(GPU)),
        nodes=(TAINTED, {"allocatable": {"nvidia.com/gpu": "1"}, "taints": []}),
    ),
    C(
        "gpu-tolerations",
        "gke adds it",
        pod(container(GPU)),
        nodes=({**TAINTED, "labels": {"cloud.google.com/gke-accelerator": "nvidia-l4"}},),
    ),
    C("gpu-tolerations", "no snapshot", pod(container(GPU))),
    C("gpu-tolerations", "no gpu", pod(container()), nodes=(TAINTED,)),
    C("shared-memory", "pytorch", pod(container(GPU), "PyTorchJob"), "/dev/shm"),
    C(
        "shared-memory",
        "an image",
        pod(container(GPU, "vllm/vllm-openai:v0.9.0"), "StatefulSet"),
        "/dev/shm",
    ),
    C(
        "shared-memory",
        "mounted",
        pod(f"{SHM}, {container(GPU + ', volumeMounts: [{name: shm, mountPath: /dev/shm/}]')}", "PyTorchJob"),
    ),
    C("shared-memory", "without a gpu", pod(container(), "PyTorchJob")),
    C("shared-memory", "tensorflow", pod(container(GPU, "tensorflow/tensorflow:2.20.0-gpu"), "TFJob")),
    C(
        "memory-volumes",
        "no limit",
        pod(f"volumes: [{{name: a, emptyDir: {{medium: Memory}}}}], {container()}"),
        "in memory",
    ),
    C("memory-volumes", "limit", pod(f"{SHM}, {container()}")),
    C("memory-volumes", "on disk", pod(f"volumes: [{{name: a, emptyDir: {{}}}}], {container()}")),
    C(
        "checkpoint-storage",
        "in the container",
        pod(container(args("--checkpoint_dir=/ckpt")), "TFJob"),
        "writes to /ckpt",
    ),
    C(
        "checkpoint-storage",
        "an empty volume",
        pod(
            "volumes: [{name: data, emptyDir: {}}], "
            + container(f"{args('--output-dir', '/out/a')}, {mounted('/out')}"),
            "Job",
        ),
        "writes to /out/a",
    ),
    C(
        "checkpoint-storage",
        "a variable",
        pod(container(env("CHECKPOINT_DIR", "/ckpt")), "PyTorchJob"),
        "writes to",
    ),
    C(
        "checkpoint-storage",
        "a claim",
        pod(f"{DATA}, {container(args('--checkpoint_dir=/data/ckpt') + ', ' + mounted('/data'))}", "TFJob"),
    ),
    C("checkpoint-storage", "a bucket", pod(container(args("--model-dir=gs://b/m")), "TFJob")),
    C("checkpoint-storage", "what is read", pod(container(args("--data_dir=/data")), "TFJob")),
    C("checkpoint-storage", "what serves", pod(container(args("--model_path=/models")))),
    C(
        "claim-access",
        "two workers",
        stack(pod(f"{DATA}, {container()}", "PyTorchJob"), claim("ReadWriteOnce")),
        "2 of them",
    ),
    C(
        "claim-access",
        "replicas",
        stack(pod(f"{DATA}, {container()}", replicas="3"), claim("ReadWriteOncePod")),
        "3 of them",
    ),
    C(
        "claim-access",
        "many nodes",
        stack(pod(f"{DATA}, {container()}", "PyTorchJob"), claim("ReadWriteMany")),
    ),
    C("claim-access", "one pod", stack(pod(f"{DATA}, {container()}", replicas="1"), claim("ReadWriteOnce"))),
    C("claim-access", "unknown claim", pod(f"{DATA}, {container()}", replicas="3")),
    C("training-deadline", "none", pod(container(GPU), "PyTorchJob"), "no deadline"),
    C("training-deadline", "of a set", pod(container(GPU), "JobSet"), "no deadline"),
    C(
        "training-deadline",
        "set",
        pod(container(GPU), "PyTorchJob", runPolicy="{activeDeadlineSeconds: 60}"),
    ),
    C("training-deadline", "of a job", pod(container(GPU), "Job", activeDeadlineSeconds="60")),
    C("training-deadline", "no gpu", pod(container(), "TFJob")),
    C("training-deadline", "a service", pod(container(GPU))),
    C("schedule-overlap", "unset", pod(container(), "CronJob"), "may overlap"),
    C("schedule-overlap", "allowed", pod(container(), "CronJob", concurrencyPolicy="Allow"), "may overlap"),
    C("schedule-overlap", "forbidden", pod(container(), "CronJob", concurrencyPolicy="Forbid")),
    C("schedule-overlap", "a job", pod(container(), "Job")),
    C("training-queue", "passes by", pod(container(GPU), "Job"), "names no queue", apis=QUEUES),
    C(
        "training-queue",
        "a queue beside it",
        stack(
            pod(container(GPU), "TFJob"),
            "{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {name: q}}",
        ),
        "names no queue",
    ),
    C(
        "training-queue",
        "queued",
        pod(container(GPU), "Job", metadata="labels: {kueue.x-k8s.io/queue-name: q}"),
        apis=QUEUES,
    ),
    C("training-queue", "no kueue", pod(container(GPU), "Job")),
    C("training-queue", "no gpu", pod(container(), "Job"), apis=QUEUES),
    C("image-tag", "latest", pod(container(image="a:latest"), "RayCluster"), "has the tag `latest`"),
    C("image-tag", "no tag but a port", pod(container(image="r.example.org:5000/a")), "has no tag"),
    C("image-tag", "a tag", pod(container(image="r.example.org:5000/a:1"))),
    C("image-tag", "a digest", pod(container(image=f"a@sha256:{'0' * 64}"))),
    C("image-tag", "like it", pod(container(image="a:latest-2.1"))),
    C("requests", "none", pod(container(), "TFJob"), "no cpu and no memory"),
    C("requests", "half", pod(container("resources: {requests: {cpu: 1}}")), "no memory"),
    C("requests", "both", pod(container("resources: {requests: {cpu: 1, memory: 1Gi}}"))),
    C("requests", "limits", pod(container("resources: {limits: {cpu: 1, memory: 1Gi}}"))),
    C("requests", "of the pod", pod(f"resources: {{requests: {{cpu: 1, memory: 1Gi}}}}, {container()}")),
    C("readiness-probe", "none", stack(pod(container()), SERVICE), "serve without"),
    C("readiness-probe", "probed", stack(pod(container(PROBE)), SERVICE)),
    C("readiness-probe", "no service", pod(container())),
    C("readiness-probe", "a job", stack(pod(container(), "Job"), SERVICE)),
    C("disruption-budget", "none", stack(pod(container(), replicas="2"), SERVICE), "no PodDisruptionBudget"),
    C(
        "disruption-budget",
        "of others",
        stack(pod(container(), replicas="2"), SERVICE, budget("maxUnavailable: 1", "b")),
        "no PodDisruptionBudget",
    ),
    C(
        "disruption-budget",
        "given",
        stack(pod(container(), replicas="2"), SERVICE, budget("maxUnavailable: 1")),
    ),
    C("disruption-budget", "one replica", stack(pod(container(), replicas="1"), SERVICE)),
    C("disruption-budget", "no service", pod(container(), replicas="2")),
    C(
        "budget-blocks",
        "as many",
        stack(pod(container(), replicas="2"), budget("minAvailable: 2")),
        "lets none go",
    ),
    C("budget-blocks", "of one", stack(pod(container()), budget("minAvailable: 1")), "lets none go"),
    C(
        "budget-blocks",
        "a share",
        stack(pod(container(), replicas="4"), budget('minAvailable: "100%"')),
        "lets none",
    ),
    C(
        "budget-blocks",
        "zero",
        stack(pod(container(), replicas="4"), budget("maxUnavailable: 0")),
        "lets no pod",
    ),
    C("budget-blocks", "one may go", stack(pod(container(), replicas="2"), budget("minAvailable: 1"))),
    C("budget-blocks", "half", stack(pod(container(), replicas="4"), budget('minAvailable: "50%"'))),
    C("budget-blocks", "scaled to none", stack(pod(container(), replicas="0"), budget("minAvailable: 1"))),
    C("claim-rollout", "rolls", stack(pod(f"{DATA}, {container()}"), claim("ReadWriteOnce")), "rolls over"),
    C(
        "claim-rollout",
        "recreates",
        stack(pod(f"{DATA}, {container()}", strategy="{type: Recreate}"), claim("ReadWriteOnce")),
    ),
    C(
        "claim-rollout",
        "no surge",
        stack(
            pod(f"{DATA}, {container()}", strategy="{rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"),
            claim("ReadWriteOnce"),
        ),
    ),
    C(
        "claim-rollout",
        "many nodes",
        stack(pod(f"{DATA}, {container()}"), claim("ReadWriteOnce", "ReadWriteMany")),
    ),
    C("claim-rollout", "a set", stack(pod(f"{DATA}, {container()}", "StatefulSet"), claim("ReadWriteOnce"))),
    C(
        "privileged",
        "a container",
        pod(container("securityContext: {privileged: true}"), "PyTorchJob"),
        "is privileged",
    ),
    C("privileged", "the network", pod(f"hostNetwork: true, {container()}"), "shares the network"),
    C(
        "privileged",
        "a capability",
        pod(container("securityContext: {capabilities: {add: [SYS_ADMIN]}}")),
        "adds the capability SYS_ADMIN",
    ),
    C(
        "privileged",
        "said not to be",
        pod(f"hostNetwork: false, {container('securityContext: {privileged: false}')}"),
    ),
    C(
        "privileged",
        "a low port",
        pod(container("securityContext: {capabilities: {add: [NET_BIND_SERVICE]}}")),
    ),
    C(
        "host-path",
        "mounted",
        pod(f"volumes: [{{name: a, hostPath: {{path: /data}}}}], {container()}"),
        "mounts /data",
    ),
    C("host-path", "empty", pod(f"volumes: [{{name: a, emptyDir: {{}}}}], {container()}")),
    C(
        "secret-in-env",
        "a password",
        pod(container(env("DB_PASSWORD", "hunter2")), "RayCluster"),
        "holds a credential",
    ),
    C("secret-in-env", "a key", pod(container(env("AWS_SECRET_ACCESS_KEY", "x9"))), "holds a credential"),
    C("secret-in-env", "in an address", pod(container(env("DB", "postgres://u:p@db/x"))), "`DB` holds"),
    C("secret-in-env", "a path", pod(container(env("GOOGLE_APPLICATION_CREDENTIALS", "/secret/key.json")))),
    C("secret-in-env", "a count", pod(container(env("MAX_TOKENS", "4096")))),
    C("secret-in-env", "a name", pod(container(env("DB_PASSWORD_FILE", "x")))),
    C("secret-in-env", "no password", pod(container(env("DB", "postgres://u@db/x")))),
    C(
        "secret-in-env",
        "from a secret",
        pod(container("env: [{name: DB_PASSWORD, valueFrom: {secretKeyRef: {name: s, key: k}}}]")),
    ),
    C("non-root", "unsaid", pod(container()), "may run as root"),
    C("non-root", "root", pod(f"securityContext: {{runAsUser: 0}}, {container()}", "TFJob"), "runs as root"),
    C("non-root", "of the pod", pod(f"securityContext: {{runAsNonRoot: true}}, {container()}")),
    C("non-root", "a user", pod(container("securityContext: {runAsUser: 1000}"))),
    C("non-root", "windows", pod(f"os: {{name: windows}}, {container()}")),
    C(
        "restricted",
        "unsaid",
        pod(container()),
        "allowPrivilegeEscalation, capabilities.drop, seccompProfile",
    ),
    C("restricted", "no profile", pod(container(RESTRICTED)), "is not restricted: seccompProfile"),
    C(
        "restricted",
        "all",
        pod(f"securityContext: {{seccompProfile: {{type: RuntimeDefault}}}}, {container(RESTRICTED)}"),
    ),
    C("default-account", "bound", binding("edit", "default"), "to the account `default`"),
    C("default-account", "its own", binding("edit", "trainer")),
    C("rbac-wildcard", "all", role('apiGroups: ["*"], resources: ["*"], verbs: ["*"]'), "every verb"),
    C("rbac-wildcard", "the admin", binding("cluster-admin", "trainer"), "cluster-admin"),
    C("rbac-wildcard", "verbs of one", role('apiGroups: [""], resources: [pods], verbs: ["*"]')),
    C("rbac-wildcard", "reads all", role('apiGroups: ["*"], resources: ["*"], verbs: [get]')),
    C("finished-pods", "mpi", mpi_job(), "leaves its workers running"),
    C("finished-pods", "mpi on cpus", mpi_job().replace(GPU, "")),
    C("finished-pods", "mpi cleaned", mpi_job("runPolicy: {cleanPodPolicy: Running}")),
    C("finished-pods", "ray", ray_job(), "leaves its cluster running"),
    C("finished-pods", "ray shut down", ray_job("shutdownAfterJobFinishes: true")),
    # Where operators make the pods of fields of their own.
    C("privileged", "kserve", kserve(container("securityContext: {privileged: true}")), "is privileged"),
    C("non-root", "kserve", kserve(container()), "may run as root"),
    C("non-root", "kserve's runtime", kserve("model: {modelFormat: {name: onnx}, storageUri: gs://b/m}")),
    C("gpu-limits", "kserve's model", kserve(f"model: {{modelFormat: {{name: onnx}}, {ASKS}}}"), "no limit"),
    C("image-tag", "argo", argo(container="{image: python}"), "which means `latest`"),
    C("host-path", "argo", argo("volumes: [{name: a, hostPath: {path: /a}}]"), "mounts /a"),
    C("non-root", "argo", argo(), "may run as root"),
    C("non-root", "argo's workflow", argo("securityContext: {runAsNonRoot: true}")),
    C("training-deadline", "argo", argo(container=f"{{image: a, {GPU}}}"), "no deadline"),
    C("gpu-limits", "train job", train_job("resourcesPerNode: {requests: {nvidia.com/gpu: 1}}"), "no limit"),
    C("non-root", "train job", train_job("image: r.example.org/a:1")),
    C("secret-in-env", "spark", spark("env: [{name: API_KEY, value: x}]"), "`API_KEY` holds"),
    C("gpu-nodes", "spark", spark("nodeSelector: {nvidia.com/gpu.product: L4}"), "asks for no GPU"),
    C(
        "gpu-nodes",
        "spark with gpus",
        spark("nodeSelector: {nvidia.com/gpu.product: L4}, gpu: {name: nvidia.com/gpu, quantity: 1}"),
    ),
)


def documents(text: str) -> list[dict[str, Any]]:
    """Read the objects of a case."""
    return [document for document in yaml.safe_load_all(text) if document]
