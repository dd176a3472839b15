"""`demo`: a script of commands on a cluster in memory."""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlstack.cli import options
from mlstack.cli.adapters import Ports
from mlstack.cli.output import write
from mlstack.cli.parsing import family
from mlstack.errors import MlstackError
from mlstack.model.app import DEFAULT_KUBERNETES_VERSION

if TYPE_CHECKING:
    from mlstack.cluster.api import Cluster
    from mlstack.files.kubeconfig import Kubeconfig

commands = family("See it work.")

CONTEXT = "minikube"
APP = "my-kubeflow"


@dataclass(frozen=True)
class Step:
    """One command of the demo.

    Attributes:
        told: what it is for.
        words: the command line after `mlstack`.
        code: the exit code it gives.
    """

    told: str
    words: Sequence[str]
    code: int = 0


SCRIPT = (
    Step("An app is a directory for git.", ["init", APP]),
    Step(
        "This address of old leads to the registry that mlstack brings along.",
        ["registry", "add", "kubeflow", "github.com/google/kubeflow/tree/master/kubeflow"],
    ),
    Step("Packages are copied into the app and pinned.", ["pkg", "install", "kubeflow/core"]),
    Step("", ["pkg", "install", "kubeflow/tf-job"]),
    Step(
        "A component is a prototype under a name.",
        ["generate", "core", "kubeflow-core", "--name=kubeflow-core"],
    ),
    Step("", ["generate", "tf-cnn", "cnn", "--name=cnn"]),
    Step("An environment is a kubectl context and a namespace.", ["env", "add", CONTEXT]),
    Step("Every object is checked before it is sent, offline.", ["validate", CONTEXT]),
    Step("The core goes first: it brings the kind TFJob.", ["apply", CONTEXT, "-c", "kubeflow-core"]),
    Step("", ["apply", CONTEXT, "-c", "cnn"]),
    Step("Applying again writes nothing.", ["apply", CONTEXT, "-c", "cnn"]),
    Step(
        "Nothing runs on a cluster in memory, and status says so.", ["status", CONTEXT, "-c", "cnn"], code=1
    ),
    Step("Parameters have types and bounds.", ["param", "set", "--env=minikube", "cnn", "num_workers", "3"]),
    Step(
        "Every value knows where it comes from.", ["param", "explain", "cnn", "num_workers", "--env", CONTEXT]
    ),
    Step("The difference to the cluster, before it is made.", ["diff", CONTEXT, "-c", "cnn"], code=1),
    Step(
        "A running job cannot change: it is recreated, which has to be confirmed.",
        ["apply", CONTEXT, "-c", "cnn", "--yes"],
    ),
    Step("And away with it.", ["delete", CONTEXT, "--yes"]),
)


@commands.command(epilog=options.example("mlstack demo"))
def demo() -> int:
    """See it all work in a minute; needs no cluster, no network and leaves nothing behind."""
    ports = _ports()
    first, *others = SCRIPT
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _play(first, ports)
        write(f"$ cd {APP}\n")
        with contextlib.chdir(APP):
            for step in others:
                _play(step, ports)
    write("That was all of it. Start your own: mlstack init NAME")
    return 0


def _play(step: Step, ports: Ports) -> None:
    from mlstack.cli.main import main

    write(
        f"# {step.told}\n$ mlstack {shlex.join(step.words)}"
        if step.told
        else f"$ mlstack {shlex.join(step.words)}"
    )
    with contextlib.redirect_stderr(sys.stdout):
        code = main(step.words, ports=ports)
    if code != step.code:
        raise DemoError(f"`mlstack {shlex.join(step.words)}` gave {code}, not {step.code}", hint=_HINT)
    write("\n")


_HINT = "this installation of mlstack is broken, or it is a fault of mlstack: please report it"


class DemoError(MlstackError):
    """Raised when a step of the demo ends otherwise than it should."""


def _ports() -> Ports:
    """Give ports that lead to a cluster in memory, at a moment that is the same in every run."""
    from mlstack.cluster.memory import MemoryCluster
    from mlstack.files.kubernetes import load_schemas

    clock = StandingClock()
    cluster: Cluster = MemoryCluster(load_schemas(DEFAULT_KUBERNETES_VERSION), clock=clock.now_s)
    return Ports(
        connect=lambda context, kubeconfig: cluster,
        kubeconfig=lambda path: _kubeconfig(),
        clock=clock,
        ask=lambda question: False,
        interactive=lambda: False,
    )


def _kubeconfig() -> Kubeconfig:
    from mlstack.files.kubeconfig import Context, Kubeconfig

    context = Context(name=CONTEXT, cluster="in memory", server="", namespace="default")
    return Kubeconfig(current_context=CONTEXT, contexts={CONTEXT: context})


class StandingClock:
    """A clock that moves only while somebody waits, from the first second of 2026 on."""

    def __init__(self) -> None:
        """Start it."""
        self._now_s = 1_767_225_600.0

    def now_s(self) -> float:
        """Give the seconds since 1970."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self._now_s += seconds
