"""Applying 300 objects to a real API server beside `kubectl apply --server-side`, near by and far away."""

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import pytest

from mlstack.cli.main import main
from mlstack.kube.transport import Request, Transport
from tests.bench.apps import MLSTACK, crowded_app, serving_app, settings_app
from tests.bench.delay import delayed
from tests.bench.measure import Command, Timing, run_in_turn, run_once, show
from tests.controlplane.recipes import Programs
from tests.support.cluster import TestCluster
from tests.support.kubeconfig import write_kubeconfig

pytestmark = pytest.mark.bench

COMPONENTS = 100
MAPS = 300
ROUNDS = 3
KUBECTL, OURS, DIFF = "kubectl apply --server-side", "mlstack apply", "mlstack diff"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """An app of 300 objects, and how its cluster is reached.

    Attributes:
        app: the app directory.
        cluster: where it goes.
        kubectl: the program.
        environ: variables of all commands.
        prefix: of the names of its environments.
    """

    app: Path
    cluster: TestCluster
    kubectl: Path
    environ: dict[str, str]
    prefix: str

    def environment(self, name: str) -> str:
        """Make an environment and its namespace."""
        name = f"{self.prefix}-{name}"
        self.cluster.kubectl("create", "namespace", name)
        argv = [*MLSTACK, "env", "add", name, "--context", self.cluster.context, "--namespace", name]
        run_once(Command(name="env add", argv=argv, cwd=self.app, environ=self.environ))
        return name

    def ours(self, verb: str, name: str) -> Command:
        """Give a command of ours."""
        # kubectl does not wait for pods either.
        argv = [*MLSTACK, verb, name, *([] if verb == "diff" else ["--yes", "--no-wait"])]
        statuses = frozenset({0, 1} if verb == "diff" else {0})  # 1 says that there are changes
        return Command(
            name=f"mlstack {verb}", argv=argv, cwd=self.app, environ=self.environ, statuses=statuses
        )

    def theirs(self, name: str) -> Command:
        """Render an environment and give kubectl's command for it."""
        manifest = self.app / f"{name}.yaml"
        script = f"{MLSTACK[0]} render {name} > {manifest}"
        run_once(Command(name="render", argv=["sh", "-c", script], cwd=self.app))
        argv = [str(self.kubectl), "apply", "--server-side", "-f", str(manifest)]
        return Command(name=KUBECTL, argv=argv, cwd=self.app, environ=self.environ)


def workloads(folder: Path) -> Path:
    """Make an app of 300 objects of three kinds, for which controllers begin to work at once."""
    return serving_app(folder, components=COMPONENTS, environments=0)


def maps(folder: Path) -> Path:
    """Make an app of 300 ConfigMaps of 1.3 kB, which nobody but the writer looks at."""
    return settings_app(folder, objects=MAPS)


@pytest.mark.parametrize("make", [workloads, maps], ids=["workloads", "maps"])
@pytest.mark.parametrize("delay_ms", [0, 5])
def test_apply_of_300_objects(
    tmp_path: Path, cluster: TestCluster, programs: Programs, delay_ms: int, make: Callable[[Path], Path]
) -> None:
    with delayed(cluster.server, delay_ms / 1000, log=tmp_path / "delay.log") as server:
        login = replace(cluster.login(), server=server if delay_ms else cluster.server)
        file = write_kubeconfig(tmp_path / "kubeconfig", [login], current_context=cluster.context)
        bench = Bench(
            app=make(tmp_path / "app"),
            cluster=cluster,
            kubectl=programs.kubectl,
            environ={"KUBECONFIG": str(file), "PATH": str(Path(sys.executable).parent)},
            prefix=f"{make.__name__}-d{delay_ms}",
        )
        _compare(bench, f"{make.__name__}, {delay_ms} ms each way")


def _compare(bench: Bench, title: str) -> None:
    # What is there once (byte code, kubectl's knowledge of the server's kinds) is no part of the comparison.
    warm_up = bench.environment("warm-up")
    run_once(bench.ours("diff", warm_up))
    run_once(replace(bench.theirs(warm_up), argv=[str(bench.kubectl), "get", "deployments", "-n", warm_up]))
    timings: dict[str, list[Timing]] = {KUBECTL: [], OURS: []}
    for number in range(ROUNDS):
        theirs = bench.theirs(bench.environment(f"theirs-{number}"))
        timings[KUBECTL].append(run_once(theirs))
        ours = bench.environment(f"ours-{number}")
        timings[OURS].append(run_once(bench.ours("apply", ours)))
    joined = [Timing.joined(runs) for runs in timings.values()]
    show(f"first apply of 300 objects, {title}", joined, unit=KUBECTL)
    again = run_in_turn([theirs, bench.ours("apply", ours), bench.ours("diff", ours)], rounds=ROUNDS)
    show(f"the same again, nothing changed, {title}", again, unit=KUBECTL)


def test_1000_objects_in_20_namespaces(tmp_path: Path, cluster: TestCluster, programs: Programs) -> None:
    file = write_kubeconfig(tmp_path / "kubeconfig", [cluster.login()], current_context=cluster.context)
    bench = Bench(
        app=crowded_app(tmp_path / "app", namespaces=20, objects=50),
        cluster=cluster,
        kubectl=programs.kubectl,
        environ={"KUBECONFIG": str(file), "PATH": str(Path(sys.executable).parent)},
        prefix="crowd",
    )
    name = bench.environment("ours")
    first = replace(run_once(bench.ours("apply", name)), name="mlstack apply, first")
    again = run_in_turn([bench.ours("apply", name), bench.ours("diff", name)], rounds=ROUNDS, warm_up=0)
    run_once(bench.ours("delete", name))
    cluster.kubectl("delete", "namespace", *(f"crowd-{number:02}" for number in range(20)))
    theirs = replace(run_once(bench.theirs(name)), name=f"{KUBECTL}, first")
    show("1,000 objects in 20 namespaces", [theirs, first, *again], unit=theirs.name)


def test_requests_of_an_apply(
    tmp_path: Path, cluster: TestCluster, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(
        app=serving_app(tmp_path / "app", components=COMPONENTS, environments=0),
        cluster=cluster,
        kubectl=programs.kubectl,
        environ={"KUBECONFIG": str(cluster.kubeconfig)},
        prefix="requests",
    )
    name = bench.environment("ours")
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    monkeypatch.chdir(bench.app)
    for title in ("first apply", "nothing changed"):
        sent = _requests(monkeypatch, ["apply", name, "--yes", "--no-wait"])
        total = ", ".join(f"{count} {method}" for method, count in sorted(sent.items()))
        print(f"\nrequests of 300 objects, {title}: {total}")


def _requests(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> Counter[str]:
    sent: Counter[str] = Counter()
    send = Transport.send

    def counting(transport: Transport, request: Request) -> object:
        sent[request.method] += 1
        return send(transport, request)

    with monkeypatch.context() as patch, redirect_stdout(StringIO()):
        patch.setattr(Transport, "send", counting)
        assert main(words) == 0
    return sent
