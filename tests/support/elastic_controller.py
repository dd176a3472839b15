"""The elastic controller as a process of its own, beside a real cluster, with the rights of its prototype."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.support.cluster import TestCluster
from tests.support.deploying import is_established
from tests.support.examples import render_one
from tests.support.processes import Program, free_port
from tests.support.waiting import wait_until

Obj = dict[str, Any]

ACCOUNT = "it"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.paddlepaddle.org"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/default/leases/mlstack-elastic"
_LEFT_OUT = ("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service")


def install(cluster: TestCluster, folder: Path) -> None:
    """Have what the controller's prototype brings, without the controller itself.

    Args:
        cluster: the cluster.
        folder: must not exist.
    """
    found = render_one(folder, "elastic/elastic-controller", {"image": "registry.example.org/mlstack:1"})
    for obj in found.objects:
        if obj.kind not in _LEFT_OUT:
            cluster.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(obj.data))
            if obj.kind == "CustomResourceDefinition":
                cluster.wait_for(DEFINITION, is_established)


class ElasticController:
    """One `mlstack elastic run`.

    Attributes:
        program: the process.
        port: where it answers probes.
    """

    def __init__(
        self,
        cluster: TestCluster,
        folder: Path,
        name: str = "first",
        *,
        namespaces: Sequence[str] = (),
        options: Sequence[str] = (),
        is_named: bool = True,
    ) -> None:
        """Describe it; `start` starts it.

        Args:
            cluster: where it works.
            folder: gets its kubeconfig and its log.
            name: by which it stands for election.
            namespaces: where it looks after jobs.
            options: further words of its command line.
            is_named: whether it is told its name; else it names its process itself.
        """
        self.port = free_port()
        user = cluster.service_account("default", ACCOUNT)
        kubeconfig = cluster.write_kubeconfig(folder / f"{name}.kubeconfig", user)
        words = ["elastic", "run", f"--kubeconfig={kubeconfig}", f"--listen=127.0.0.1:{self.port}"]
        words += ["--lease-namespace=default", "--log-level=debug"]
        words += [f"--identity={name}"] if is_named else []
        words += [f"--namespace={one}" for one in namespaces]
        self.program = Program(
            name,
            [sys.executable, "-m", "mlstack", *words, *options],
            log=folder / f"{name}.log",
        )

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


class Jobs:
    """The training jobs of one namespace of a cluster, as a test sees them.

    Args:
        cluster: the cluster.
        namespace: the namespace.
    """

    def __init__(self, cluster: TestCluster, namespace: str) -> None:
        """Hold the parts."""
        self.cluster, self.namespace = cluster, namespace

    def create(self, job: Mapping[str, Any]) -> None:
        """Create a job, or whatever object is given."""
        metadata = {**job["metadata"], "namespace": self.namespace}
        self.cluster.kubectl("create", "-f", "-", input=json.dumps({**job, "metadata": metadata}))

    def path(self, name: str) -> str:
        """Give the path of a job."""
        return f"/apis/paddlepaddle.org/v1/namespaces/{self.namespace}/trainingjobs/{name}"

    def status(self, name: str) -> Obj:
        """Give the status of a job."""
        found = self.cluster.find(self.path(name))
        return dict((found or {}).get("status") or {})

    def pods(self, name: str = "", role: str = "") -> list[Obj]:
        """Give the pods of a job that neither ended nor are going, by name."""
        labels = [f"mlstack.dev/training-job={name}"] if name else []
        labels += [f"mlstack.dev/role={role}"] if role else []
        selector = f"?labelSelector={','.join(labels)}" if labels else ""
        items = self.cluster.request("GET", f"/api/v1/namespaces/{self.namespace}/pods{selector}")["items"]
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
        self.cluster.kubectl("annotate", "pod", pod, "-n", self.namespace, f"mlstack.dev/test-exit={code}")

    def wait_for(self, claim: Callable[[], object], *, what: str, timeout_s: float = 40.0) -> None:
        """Wait until a claim about the jobs is true."""

        def details() -> str:
            jobs = self.cluster.find(f"/apis/paddlepaddle.org/v1/namespaces/{self.namespace}/trainingjobs")
            pods = [
                (pod["metadata"]["name"], pod["status"].get("phase"), pod["spec"].get("nodeName"))
                for pod in self.pods()
            ]
            rows = {one["metadata"]["name"]: one.get("status") for one in (jobs or {}).get("items", [])}
            return json.dumps([rows, pods], indent=1)

        wait_until(claim, what=what, timeout_s=timeout_s, details=details)

    def wait_for_phase(self, name: str, *phases: str, timeout_s: float = 40.0) -> None:
        """Wait until a job has one of these phases."""
        claim = f"{name} is {' or '.join(phases)}"
        self.wait_for(lambda: self.status(name).get("phase") in phases, what=claim, timeout_s=timeout_s)
