"""The elastic controller as a process of its own, beside a real cluster, with the rights of its prototype."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from mlstack.yaml import write
from tests.support.cluster import TestCluster
from tests.support.deploying import is_established
from tests.support.examples import render_one
from tests.support.fakeapi import Answer
from tests.support.processes import Program, free_port
from tests.support.troubled import Troubled
from tests.support.waiting import wait_until

Obj = dict[str, Any]

ACCOUNT = "it"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.paddlepaddle.org"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/mlstack-elastic"
_HURRIED = """
import json, pkgutil, sys
from importlib import import_module
from mlstack import elastic
from mlstack.cli.fast import main
modules = [import_module(info.name) for info in pkgutil.iter_modules(elastic.__path__, "mlstack.elastic.")]
for name, value in json.loads(sys.argv.pop(1)).items():
    owners = [module for module in modules if hasattr(module, name)]
    assert owners, name
    for module in owners:
        setattr(module, name, value)
sys.exit(main())
"""
_VERSIONS = {
    "deployments": "apis/apps/v1",
    "events": "apis/events.k8s.io/v1",
    "horizontalpodautoscalers": "apis/autoscaling/v2",
    "poddisruptionbudgets": "apis/policy/v1",
    "statefulsets": "apis/apps/v1",
    "trainingjobs": "apis/paddlepaddle.org/v1",
}
_LEFT_OUT = ("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service")


def install(cluster: TestCluster, folder: Path) -> None:
    """Have what the controller's prototype brings, without the controller itself; `folder` is made."""
    rendered = render_one(folder, "elastic/elastic-controller", {"image": "registry.example.org/mlstack:1"})
    objects = [obj.data for obj in rendered.objects if obj.kind not in _LEFT_OUT]
    cluster.kubectl("apply", "--server-side", "-f", "-", input=write.to_yaml_documents(objects))
    cluster.wait_for(DEFINITION, is_established)


@contextmanager
def installed_on(cluster: TestCluster, folder: Path) -> Iterator[None]:
    """Have the definition, priority classes, service account and rights for a while; `folder` is made."""
    install(cluster, folder)
    yield
    cluster.kubectl("delete", "priorityclass", "mlstack-trainer", "mlstack-training")
    cluster.request("DELETE", DEFINITION)
    cluster.wait_until_gone(DEFINITION)


class ElasticController:
    """One `mlstack elastic run`: its process is `program`, and it answers probes at `port`."""

    def __init__(
        self,
        cluster: TestCluster,
        folder: Path,
        name: str = "first",
        *,
        namespaces: Sequence[str] = (),
        options: Sequence[str] = (),
        is_named: bool = True,
        kubeconfig: Path | None = None,
        times: Mapping[str, Any] | None = None,
    ) -> None:
        """Describe it; `start` starts it. Its kubeconfig and its log are in `folder`.

        Args:
            is_named: whether it is told its name; else it names its process itself.
            kubeconfig: how it reaches the cluster. Default: as its service account, straight.
            times: constants of its patience that are other than people meet, so that a test ends sooner.
        """
        self.port = free_port()
        if kubeconfig is None:
            user = cluster.service_account("default", ACCOUNT)
            kubeconfig = cluster.write_kubeconfig(folder / f"{name}.kubeconfig", user)
        words = ["elastic", "run", f"--kubeconfig={kubeconfig}", f"--listen=127.0.0.1:{self.port}"]
        words += ["--lease-namespace=default", "--log-level=debug"]
        words += [f"--identity={name}"] if is_named else []
        words += [f"--namespace={name}" for name in namespaces]
        begin = ["-c", _HURRIED, json.dumps(times)] if times else ["-m", "mlstack"]
        command = [sys.executable, *begin, *words, *options]
        self.program = Program(name, command, log=folder / f"{name}.log")

    def start(self) -> ElasticController:
        """Start it and wait until it has seen the cluster."""
        self.program.start()
        self.program.wait_until(lambda: self.probe("/readyz"), what="readiness")
        return self

    def probe(self, path: str) -> bool:
        """Tell whether a probe says yes."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metric(self, name: str) -> float:
        """Give a metric without labels."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith(f"mlstack_elastic_{name} ")))

    @property
    def memory_mib(self) -> float:
        """Give the memory that it holds now, in MiB."""
        status = Path(f"/proc/{self.program.pid}/status").read_text(encoding="utf-8")
        row = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(row.split()[1]) / 1024


class Writes:
    """Notes the writes that pass a proxy; `proxy.trouble` of `Troubled`."""

    def __init__(self) -> None:
        """Let everything pass, with nothing seen."""
        self.is_silent = False  # whether nothing passes at all
        self.calls: list[tuple[float, str, str]] = []  # time (monotonic), method and path of each write

    def __call__(self, method: str, path: str) -> Answer | None:
        """Let a request pass, or not."""
        if self.is_silent:
            return Answer(breaks=True)
        if method != "GET":
            self.calls.append((time.monotonic(), method, path))
        return None

    def of(self, method: str, *, part: str) -> list[str]:
        """Give the paths with this part that were written by this method."""
        return [path for _, verb, path in self.calls if verb == method and part in path]


Start = Callable[..., ElasticController]
"""Starts a controller for a test's namespace: name, and what `ElasticController` takes by keyword."""


@contextmanager
def controllers_of(cluster: TestCluster, namespace: str, folder: Path) -> Iterator[Start]:
    """Give a function that starts controllers; they are killed at the end, and their Lease goes."""
    started: list[ElasticController] = []

    def begin(name: str = "first", **how: Any) -> ElasticController:
        controller = ElasticController(cluster, folder, name, namespaces=[namespace], **how)
        started.append(controller)
        return controller.start()

    try:
        yield begin
    finally:
        for controller in started:
            controller.program.kill()
        if cluster.find(LEASE):
            cluster.request("DELETE", LEASE)


@contextmanager
def proxy_of(cluster: TestCluster, folder: Path) -> Iterator[Troubled]:
    """Give a proxy before a cluster; controllers go through it by the file `proxy.kubeconfig`."""
    troubled = Troubled(cluster.login(cluster.service_account("default", ACCOUNT)))
    with troubled.running(folder / "proxy.kubeconfig"):
        yield troubled


@contextmanager
def jobs_of(cluster: TestCluster, namespace: str) -> Iterator[Jobs]:
    """Give the jobs of a namespace; they and all pods there are gone at the end."""
    jobs = Jobs(cluster, namespace)
    yield jobs
    for kind in ("trainingjobs", "statefulsets", "deployments"):
        cluster.request("DELETE", f"{jobs.place(kind)}?propagationPolicy=Background")

    def are_gone() -> bool:  # asked again: controllers that do not know of the end yet replace pods
        cluster.request("DELETE", f"{jobs.place('pods')}?gracePeriodSeconds=0")
        return not jobs.objects("pods")

    wait_until(are_gone, what="the end of all pods")


class Jobs:
    """The training jobs of one namespace of a cluster, as a test sees them."""

    def __init__(self, cluster: TestCluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def create(self, job: Mapping[str, Any]) -> None:
        """Create a job, or whatever object is given."""
        metadata = {**job["metadata"], "namespace": self.namespace}
        place = f"{self.place(job['kind'].lower() + 's')}?fieldValidation=Strict"
        self.cluster.request("POST", place, {**job, "metadata": metadata})

    def place(self, kind: str, name: str = "") -> str:
        """Give the path of all objects of a kind (`pods`), or of one."""
        version = _VERSIONS.get(kind, "api/v1")
        return f"/{version}/namespaces/{self.namespace}/{kind}/{name}".rstrip("/")

    def objects(self, kinds: str, labels: str = "") -> dict[str, Obj]:
        """Give the objects of these kinds (`pods,services`), by `kind/name`."""
        return {
            f"{kind}/{item['metadata']['name']}": item
            for kind in kinds.split(",")
            for item in self.cluster.request("GET", f"{self.place(kind)}?labelSelector={labels}")["items"]
        }

    def path(self, name: str) -> str:
        """Give the path of a job."""
        return self.place("trainingjobs", name)

    def status(self, name: str) -> Obj:
        """Give the status of a job."""
        job = self.cluster.find(self.path(name))
        return dict((job or {}).get("status") or {})

    def pods(self, name: str = "", role: str = "") -> list[Obj]:
        """Give the pods of a job that neither ended nor are going, by name."""
        labels = [f"mlstack.dev/training-job={name}"] if name else []
        labels += [f"mlstack.dev/role={role}"] if role else []
        items = self.objects("pods", ",".join(labels)).values()
        live = [
            pod
            for pod in items
            if not pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") in ("Pending", "Running")
        ]
        return sorted(live, key=lambda pod: str(pod["metadata"]["name"]))

    def names(self, name: str, role: str = "trainer") -> list[str]:
        """Give the names of a job's pods."""
        return [pod["metadata"]["name"] for pod in self.pods(name, role)]

    def exit(self, pod: str, code: int) -> None:
        """Let a pod end by itself."""
        annotations = {"mlstack.dev/test-exit": str(code)}
        self.cluster.request("PATCH", self.place("pods", pod), {"metadata": {"annotations": annotations}})

    def lose(self, pod: str) -> None:
        """Delete a pod."""
        self.cluster.request("DELETE", self.place("pods", pod))

    def scale(self, name: str, replicas: int, kind: str = "trainingjobs") -> None:
        """Ask for other bounds of a job, or for more or fewer pods."""
        self.cluster.request("PATCH", self.place(kind, f"{name}/scale"), {"spec": {"replicas": replicas}})

    def cordon(self, node: str, wanted: bool = True) -> None:
        """Let a node take no more pods, or take some again."""
        self.cluster.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": wanted}})

    def wait_for(self, claim: Callable[[], object], *, what: str, timeout_s: float = 40.0) -> None:
        """Wait until a claim about the jobs is true."""

        def details() -> str:
            jobs = self.cluster.find(self.place("trainingjobs"))
            pods = [
                (pod["metadata"]["name"], pod["status"].get("phase"), pod["spec"].get("nodeName"))
                for pod in self.pods()
            ]
            rows = {job["metadata"]["name"]: job.get("status") for job in (jobs or {}).get("items", [])}
            return json.dumps([rows, pods], indent=1)

        wait_until(claim, what=what, timeout_s=timeout_s, interval_s=0.15, details=details)

    def wait_for_phase(self, name: str, *phases: str, timeout_s: float = 40.0) -> None:
        """Wait until a job has one of these phases."""
        claim = f"{name} is {' or '.join(phases)}"
        self.wait_for(lambda: self.status(name).get("phase") in phases, what=claim, timeout_s=timeout_s)


def held_to(pod: Obj) -> list[str]:
    """Give the host names of the nodes that a pod is held to, empty where it may go anywhere."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return [host for term in terms for rule in term["matchExpressions"] for host in rule["values"]]
