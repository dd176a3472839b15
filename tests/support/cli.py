"""Run command lines in this process, against clusters in memory."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mlstack.cli.commands.program import StandingClock
from mlstack.cli.main import main
from mlstack.cli.ports import Ports
from mlstack.clock import Clock
from mlstack.kube.kubeconfig import Context, Kubeconfig
from tests.support.builders import write_tree

if TYPE_CHECKING:
    from mlstack.kube.client import Cluster
    from mlstack.kube.transport import Counted


@dataclass(frozen=True)
class Ran:
    """What a command line left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Read stdout as JSON."""
        return json.loads(self.out)


def memory_cluster(name: str) -> Cluster:
    """Make an empty cluster in memory; what is applied runs while somebody watches."""
    from mlstack.testing.cluster import MemoryCluster
    from mlstack.testing.controllers import Simulation
    from mlstack.validate.validate import load_schemas

    clock = StandingClock()
    cluster = MemoryCluster(load_schemas("1.36"), name=name, clock=clock.now_s)
    cluster.on_idle = Simulation(cluster, load_balancers=True, now=clock.now).step
    return cluster


@dataclass
class Runner:
    """Runs command lines; contexts lead to clusters in memory, one each.

    Attributes:
        capsys: catches what is printed.
        new_cluster: makes the cluster of a context that is used for the first time.
        contexts: known contexts with their namespaces.
        current: the current context.
        answer: what a person at the terminal says; None means that nobody is there.
        typed: what a person at the terminal types where more than a yes is wanted.
        asked: the questions that were put.
        counted: who wants to be told of requests to the cluster that was opened last for one try each.
    """

    capsys: pytest.CaptureFixture[str]
    new_cluster: Callable[[str], Cluster] = memory_cluster
    contexts: Mapping[str, str] = field(default_factory=lambda: {"minikube": "default", "gke": "default"})
    current: str = "minikube"
    answer: bool | None = None
    typed: str = ""
    asked: list[str] = field(default_factory=list)
    clusters: dict[str, Cluster] = field(default_factory=dict)
    clock: Clock = field(default_factory=StandingClock)
    counted: Counted = lambda verb, status: None

    def __call__(self, *words: str) -> Ran:
        """Run one command line; a single string is split as a shell does."""
        line: Sequence[str] = shlex.split(words[0]) if len(words) == 1 else words
        self.capsys.readouterr()
        code = main(line, ports=self.ports())
        captured = self.capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    def ok(self, *words: str) -> str:
        """Run a command line that must succeed and give its stdout."""
        ran = self(*words)
        assert ran.code == 0, f"{words}: {ran}"
        return ran.out

    def play(self, session: str, **facts: Callable[[], object]) -> None:
        """Run a session of lines: what a person does, what is run and said, what is so then.

        `COMMAND`, which succeeds; `COMMAND | EXIT CODE | TEXT | !TEXT`, which prints the texts;
        `says yes`, `says no`, `types NAME`, as the person at the terminal; `FACT = VALUE`.
        """
        for line in filter(None, map(str.strip, session.splitlines())):
            command, *expected = line.split(" | ")
            name, equals, value = line.partition(" = ")
            if line in ("says yes", "says no"):
                self.answer = line == "says yes"
            elif line.startswith("types "):
                self.answer, self.typed = True, line.removeprefix("types ")
            elif equals and name in facts:
                assert str(facts[name]()) == value, line
            else:
                ran = self(command)
                code, *texts = expected or ["0"]
                assert ran.code == int(code), (line, ran)
                for text in texts:
                    assert (text.lstrip("!") in ran.out + ran.err) != text.startswith("!"), (text, ran)

    def enter(self, folder: Path, files: Mapping[str, str], package: str) -> None:
        """Make an app beside the registry of these files, with one of its packages, and stand in it."""
        write_tree(folder, files)
        os.chdir(folder)
        self.ok("init demo")
        os.chdir("demo")
        self.play(f"registry add ours ../registry\npkg install ours/{package}\nenv add minikube --no-preset")

    def cluster(self, context: str) -> Cluster:
        """Give the cluster behind a context."""
        if context not in self.clusters:
            self.clusters[context] = self.new_cluster(context)
        return self.clusters[context]

    def ports(self) -> Ports:
        """Give the ports of one run."""
        return Ports(
            connect=lambda context, kubeconfig: self.cluster(context),
            kubeconfig=lambda path: self._kubeconfig(),
            clock=self.clock,
            ask=self._ask,
            ask_text=self._ask_text,
            interactive=lambda: self.answer is not None,
            who=lambda: "ada@laptop",
            connect_once=self._connect_once,
        )

    def _connect_once(self, context: str, kubeconfig: str | None, counted: Counted) -> Cluster:
        self.counted = counted
        return self.cluster(context or self.current)

    def _kubeconfig(self) -> Kubeconfig:
        contexts = {
            name: Context(name=name, cluster=name, server=f"https://{name}.invalid", namespace=namespace)
            for name, namespace in self.contexts.items()
        }
        return Kubeconfig(current_context=self.current, contexts=contexts)

    def _ask_text(self, question: str) -> str:
        self.asked.append(question)
        return self.typed

    def _ask(self, question: str) -> bool:
        self.asked.append(question)
        return bool(self.answer)
