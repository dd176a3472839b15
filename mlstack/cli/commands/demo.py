"""`demo`: a script of commands on a cluster in memory."""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mlstack.app.app import DEFAULT_KUBERNETES_VERSION
from mlstack.cli.main import family
from mlstack.cli.output import write
from mlstack.cli.ports import Ports, Session
from mlstack.errors import MlstackError

if TYPE_CHECKING:
    from mlstack.kube.client import Cluster
    from mlstack.kube.kubeconfig import Kubeconfig
    from mlstack.testing.controllers import Simulation

top = family()

CONTEXTS = ("minikube", "gke")
APP = "my-kubeflow"


@dataclass(frozen=True)
class DemoStep:
    """One command of the demo."""

    purpose: str
    words: Sequence[str]  # the command line after `mlstack`
    code: int = 0  # the exit code it gives


SCRIPT = (
    DemoStep("An app is a directory for git.", ["init", APP]),
    DemoStep(
        "This address of old leads to the registry that mlstack brings along.",
        ["registry", "add", "kubeflow", "github.com/google/kubeflow/tree/master/kubeflow"],
    ),
    DemoStep("Packages are copied into the app and pinned.", ["pkg", "install", "kubeflow/core"]),
    DemoStep("", ["pkg", "install", "kubeflow/tf-job"]),
    DemoStep(
        "A component is a prototype under a name.",
        ["generate", "core", "kubeflow-core", "--name=kubeflow-core"],
    ),
    DemoStep("", ["generate", "tf-cnn", "cnn", "--name=cnn"]),
    DemoStep("An environment is a kubectl context and a namespace.", ["env", "add", "minikube"]),
    DemoStep("Every object is checked before it is sent, offline.", ["validate", "minikube"]),
    DemoStep("The core goes first: it brings the kind TFJob.", ["apply", "minikube", "-c", "kubeflow-core"]),
    DemoStep("", ["apply", "minikube", "-c", "cnn"]),
    DemoStep("Applying again writes nothing.", ["apply", "minikube", "-c", "cnn"]),
    DemoStep("Controllers in memory have run it all by now.", ["status", "minikube"]),
    DemoStep(
        "Parameters have types and bounds.", ["param", "set", "--env=minikube", "cnn", "num_workers", "2"]
    ),
    DemoStep("The difference to the cluster, before it is made.", ["diff", "minikube", "-c", "cnn"], code=1),
    DemoStep(
        "A running job cannot change: it is recreated, which has to be confirmed.",
        ["apply", "minikube", "-c", "cnn", "--yes"],
    ),
    DemoStep(
        "Another cluster, where the same job is to have a GPU.", ["env", "add", "gke", "--context", "gke"]
    ),
    DemoStep("", ["param", "set", "--env=gke", "cnn", "num_gpus", "1"]),
    DemoStep(
        "Every value knows where it comes from, and which fields it reaches.",
        ["param", "explain", "cnn", "num_gpus", "--env", "gke"],
    ),
    DemoStep("", ["apply", "gke"]),
    DemoStep(
        "This cluster has no GPUs. What does not run says why, and what to do.",
        ["status", "gke", "-c", "cnn"],
        code=1,
    ),
    DemoStep("And away with it.", ["delete", "minikube", "--yes"]),
)


@top.command(takes="", examples=["mlstack demo"])
def demo(session: Session) -> int:
    """See it all work in a minute; needs no cluster, no network and leaves nothing behind."""
    stage = Stage()
    first, *others = SCRIPT
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _play(first, stage)
        write(f"$ cd {APP}\n")
        with contextlib.chdir(APP):
            for step in others:
                _play(step, stage)
    write("That was all of it. Start your own: mlstack init NAME")
    return 0


def _play(step: DemoStep, stage: Stage) -> None:
    from mlstack.cli.main import main

    line = f"mlstack {shlex.join(step.words)}"
    write(f"# {step.purpose}\n$ {line}" if step.purpose else f"$ {line}")
    with contextlib.redirect_stderr(sys.stdout):
        code = main(step.words, ports=stage.ports())
    if code != step.code:
        raise DemoError(f"`{line}` gave {code}, not {step.code}", hint=_HINT)
    stage.settle()
    write("\n")


_HINT = "this installation of mlstack is broken, or it is a fault of mlstack: please report it"


class DemoError(MlstackError):
    """Raised when a step of the demo ends otherwise than it should."""


class Stage:
    """Clusters in memory, one a context, where what is applied runs; their time is the same in every run."""

    def __init__(self) -> None:
        self._clock = StandingClock()
        self._clusters: dict[str, Cluster] = {}
        self._simulations: list[Simulation] = []

    def ports(self) -> Ports:
        """Give ports that lead to the clusters; nobody is there to be asked."""
        return Ports(
            connect=lambda context, kubeconfig: self._cluster(context),
            kubeconfig=lambda path: _kubeconfig(),
            clock=self._clock,
            ask=lambda question: False,
            ask_text=lambda question: "",
            interactive=lambda: False,
            who=lambda: "you@demo",
        )

    def settle(self) -> None:
        """Let controllers, scheduler and kubelets do what is due in every cluster."""
        for simulation in self._simulations:
            simulation.settle()

    def _cluster(self, context: str) -> Cluster:
        from mlstack.testing.cluster import MemoryCluster
        from mlstack.testing.controllers import Simulation
        from mlstack.validate.validate import load_schemas

        if context not in self._clusters:
            schemas = load_schemas(DEFAULT_KUBERNETES_VERSION)
            cluster = MemoryCluster(schemas, name=context, clock=self._clock.now_s)
            simulation = Simulation(cluster, load_balancers=True, now=self._clock.now)
            cluster.on_idle = simulation.step
            self._clusters[context] = cluster
            self._simulations.append(simulation)
        return self._clusters[context]


def _kubeconfig() -> Kubeconfig:
    from mlstack.kube.kubeconfig import Context, Kubeconfig

    contexts = {
        name: Context(name=name, cluster="in memory", server="", namespace="default") for name in CONTEXTS
    }
    return Kubeconfig(current_context=CONTEXTS[0], contexts=contexts)


class StandingClock:
    """A clock that moves only while somebody waits, from the first second of 2026 on."""

    def __init__(self) -> None:
        self._now_s = 1_767_225_600.0

    def now_s(self) -> float:
        """Give the seconds since 1970."""
        return self._now_s

    def now(self) -> str:
        """Give the time as Kubernetes writes it."""
        return datetime.fromtimestamp(self._now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self._now_s += seconds
