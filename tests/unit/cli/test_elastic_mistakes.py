"""Mistakes that people make with `mlstack elastic`, and what they are told."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ForbiddenError
from mlstack.kube.client import ClientWrapper, ObjectRef
from tests.support.cli import Runner
from tests.support.elastic import training_job
from tests.support.stage import Stage

pytestmark = pytest.mark.slow

SCENARIO = """\
seconds: 20
nodes: [{name: box, cpu: 4}]
jobs: [{name: a, max: 4, trainer: {cpu: 1}}]
"""


class Namespaced(ClientWrapper):
    """A cluster as somebody sees it who may read no namespaces."""

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        if ref.kind == "Namespace":
            raise ForbiddenError("namespaces is forbidden")
        return super().get(ref)


@pytest.fixture
def stage(run: Runner) -> Stage:
    """An empty cluster; the context `minikube` leads there."""
    stage = Stage("n1")
    run.clusters["minikube"] = run.clusters[""] = stage.memory
    return stage


# command line after `elastic` | exit code | what is told, beside the file `mine.yaml` and the folder `rows`
MISTAKES = """
simulate mine.yaml --seeds 3 | 2 | leave --seeds away
simulate mine.yaml --first-seed 3 | 2 | leave --first-seed away
simulate case1 --seeds 3 --seed 1 | 2 | leave --seeds away
simulate nothing-here.yaml --csv nowhere/rows | 4 | no folder `nowhere` | mkdir -p nowhere
simulate nothing-here.yaml --plot nowhere/rows | 4 | no folder `nowhere` | mkdir -p nowhere
simulate nothing-here.yaml --csv rows | 2 | cannot write `rows`
run --once --listen 192.0.2.1:8080 | 2 | cannot listen at `192.0.2.1:8080`
run --once --listen ::1:8080 | 2 | hint: --listen '[::1]:8080'
run --lease-name A_B | 2 | cannot be
run --lease-name ../x | 2 | cannot be
run --lease-namespace Default | 2 | cannot be
plan --policy fari | 4 | did you mean `fair`?
plan --policy edl-v010 | 2 | elastic simulate
plan --snapshot mine.yaml | 3 | this is no saved snapshot
run --once --tick 0.01 | 2 | at least 100 ms
run --once --listen 8080x | 2 | has no port
run --once --log-level loud | 2 | no log level `loud`
simulate case9 | 4 | case1, case2
simulate case1 --seed 1 --policy fari | 4 | did you mean `fair`?
simulate jct --seed 1 | 2 | no single simulation
simulate jct --preemption | 2 | `jct` has no services
simulate case1 --no-preemption | 2 | `case1` has no services
simulate case1 --no-preemption --seed 1 | 2 | `case1` has no services
simulate jct --headroom 5 | 2 | leave --headroom away
simulate validation --moves 15 --tick 1s | 2 | leave --moves, --tick away
simulate case1 --policy off --moves 3 | 2 | policy `off` runs without the controller
simulate case2 --tick 0.01 | 2 | at least 100 ms
simulate case2 --headroom 91 | 2 | 91 is not in the range
"""
PRIORITIES = """
high | ends in no whole number
9999999999 | ends in no whole number
research= | ends in no whole number
../x=3 | a namespace
=3 | a namespace
3 --max-priority 4 | given twice for all namespaces
a=3 --max-priority a=4 | given twice for namespace `a`
"""
CASES = [
    *MISTAKES.strip().splitlines(),
    *(
        f"{command} --max-priority {options} | 2 | {words}"
        for options, words in (line.split(" | ") for line in PRIORITIES.strip().splitlines())
        for command in ("plan", "run --once")
    ),
    *(
        f"run --once --listen 127.0.0.1:{port} | 2 | has no port from 0 to 65535"
        for port in ("99999", "9" * 5000, "", "٣", "-1")
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[:70])
def test_what_makes_no_sense_is_refused_before_anything_is_done(
    run: Runner, stage: Stage, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr("mlstack.simulator.report.library", lambda: None)
    Path("mine.yaml").write_text(SCENARIO, encoding="utf-8")
    Path("rows").mkdir(exist_ok=True)
    line, code, *words = case.split(" | ")
    ran = run(f"elastic {line}")
    assert ran.code == int(code)
    assert all(word in ran.err for word in words) and "Traceback" not in ran.err


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("address", ["[::]:0", "[::1]:0", ":0"])
def test_ipv6_addresses_can_be_listened_at(run: Runner, stage: Stage, address: str) -> None:
    run.ok(f"elastic run --once --dry-run --listen {address}")


def test_a_port_that_is_taken_is_named(run: Runner, stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        run.play(f"elastic run --once --listen {place} | 2 | cannot listen at `{place}`: address | !while")


@pytest.mark.parametrize("line", ["plan", "status", "run --once", "run --once --dry-run"])
def test_what_the_cluster_has_not_is_told_alike_everywhere(run: Runner, stage: Stage, line: str) -> None:
    ran = run(f"elastic {line} -n default -n missing -n trian")
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.splitlines()[-2:] == [
        "error: the cluster has no namespaces `missing`, `trian`",
        "hint: kubectl get namespaces",
    ]
    # Whoever may not look at namespaces is told nothing of them.
    run.clusters["minikube"] = run.clusters[""] = Namespaced(stage.memory)  # type: ignore[assignment]
    run.ok(f"elastic {line} -n missing")
    stage.delete_definition()
    definition = "the cluster has no training jobs: the definition"
    run.play(f"elastic {line} | 4 | {definition} | hint: mlstack generate elastic-controller NAME")


def test_a_controller_that_goes_on_says_which_namespaces_are_not_there_yet(
    run: Runner, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlstack.elastic.controller.Controller.run", lambda self: None)
    ran = run("elastic run --lease-namespace default -n default -n trian")
    assert ran.code == 0
    assert "the cluster has no namespace `trian` yet" in ran.err
    assert "has no" not in run("elastic run --lease-namespace default -n default").err


def test_a_lease_that_is_refused_is_not_said_to_be_held(run: Runner, stage: Stage) -> None:
    run.ok("elastic status -n default")  # a namespace without jobs is in order
    ran = run("elastic run --once --lease-namespace nowhere")
    assert (ran.code, "nowhere" in ran.err.splitlines()[-2]) == (6, True)
    assert ran.err.count("there is no namespace") == 1
    assert "another controller leads" not in ran.err


def test_a_job_before_its_controller_is_told_what_comes_first(
    run: Runner, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.delete_definition()
    monkeypatch.chdir(tmp_path)
    run.ok("init app")
    monkeypatch.chdir(tmp_path / "app")
    run.play("""
        pkg install kubeflow/elastic
        generate elastic-job words --image=example.org/words:2.1 --entrypoint=train
        env add minikube
        apply minikube --no-wait | 6 | no kind `TrainingJob (paddlepaddle.org/v1)`
        apply minikube --no-wait | 6 | generate elastic-controller elastic-controller, then mlstack apply
    """)


def test_status_says_what_comes_next_where_nothing_happens(run: Runner, stage: Stage) -> None:
    assert "next: mlstack generate elastic-job NAME" in run("elastic status").err
    stage.put(training_job("new"))
    assert "mlstack elastic run" in run("elastic status").err
    stage.step()
    assert "next:" not in run("elastic status").err


def test_names_are_texts_in_a_scenario(run: Runner) -> None:
    text = """\
seconds: 30
nodes: [{name: n, cpu: 4, labels: {y: on}}]
jobs: [{name: y, max: 2, trainer: {cpu: 1}}, {name: off, max: 1, trainer: {cpu: 1}}]
events: [{at: 20, what: cordon-node, name: n-0}]
"""
    Path("mine.yaml").write_text(text, encoding="utf-8")
    assert [job["name"] for job in run("elastic simulate mine.yaml -o json").json["jobs"]] == ["off", "y"]


def test_the_hint_about_scenarios_leads_to_one(run: Runner) -> None:
    Path("mine.yaml").write_text("nodes: []", encoding="utf-8")
    (hint,) = (line for line in run("elastic simulate mine.yaml").err.splitlines() if "hint: " in line)
    command = hint.partition("`mlstack ")[2].partition("`")[0]
    Path("example.yaml").write_text(
        run.ok(command).replace("seconds: 600 ", "seconds: 20 "), encoding="utf-8"
    )
    assert "hint" not in run("elastic simulate example.yaml").err
