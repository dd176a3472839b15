"""`mlstack elastic plan, status, run` as people type them, on clusters in memory."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from mlstack.cli.page import WIDTH, text_width
from mlstack.elastic.metrics import Metrics
from mlstack.kube.parallel import Lease
from mlstack.simulator.experiments import Figures, SeedTrial
from tests.support.cli import Runner
from tests.support.elastic import pod, training_job
from tests.support.stage import Stage

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(run: Runner) -> Stage:
    """A cluster with a small job that runs and a big one that waits; the context `minikube` leads there."""
    stage = Stage("n1", "n2")
    stage.put(training_job("small", minimum=1, maximum=4, cpu="2", pservers=1))
    stage.settle()
    stage.put(training_job("big", minimum=9, maximum=12, cpu="4"))
    stage.put(pod("web", cpu="3", priority=1000))
    run.clusters["minikube"] = run.clusters[""] = stage.memory
    return stage


def rows_of(text: str) -> dict[str, list[str]]:
    """Give the words of each line about a job, by its name."""
    return {line.split()[0].removeprefix("default/"): line.split() for line in text.splitlines() if line}


def test_plan_shows_each_job_with_its_reason_and_writes_nothing(run: Runner, stage: Stage) -> None:
    before = stage.memory.list("v1", "Pod").resource_version
    out = run.ok("elastic plan")
    rows = rows_of(out)
    assert rows["big"][1:5] == ["waiting", "0", "0", "9-12"]
    assert rows["small"][1:5] == ["admitted", "4", "4", "1-4"]
    assert "9-12   no room for 36 cpu of its gang" in out
    assert "policy `fair` on 2 nodes" in out
    assert all(text_width(line) <= WIDTH for line in out.splitlines())
    run.play("""
        elastic plan --explain big | 0 | default/big: 0 -> 0 trainers | waiting: | missing:
        elastic plan --explain default/bog | 4 | did you mean `default/big`?
        elastic plan --explain zz | 4 | no job `zz` takes part in the plan | there is default/big
    """)
    assert stage.memory.list("v1", "Pod").resource_version == before


def test_plan_names_pods_of_others_that_have_no_place_and_ports_in_words(run: Runner, stage: Stage) -> None:
    stage.put(training_job("net", minimum=3, cpu="1", hostNetwork=True))
    container = {"name": "main", "ports": [{"containerPort": 80, "hostPort": 7164}]}
    container["resources"] = {"requests": {"cpu": "30"}}
    stage.put(pod("gate", priority=1000, containers=[container]))
    run.play("""
        elastic plan | 0 | pods without a place: |   default/gate: cpu 30, pods 1, host port 7164/TCP
        elastic plan --explain net | 0 | no room for 3 host ports 7164/TCP, 3 host ports 7165/TCP of its gang
        elastic plan -o json | 0 | !hostport:
        elastic plan -o yaml | 0 | !hostport:
    """)


def test_plan_and_run_count_with_the_priority_that_is_granted(run: Runner, stage: Stage) -> None:
    stage.put(training_job("first", minimum=2, maximum=2, cpu="4", priority=70))

    def priority(options: str) -> str:
        out = run.ok(f"elastic plan --explain first {options}")
        return next(line.split()[1] for line in out.splitlines() if "priority:" in line)

    assert priority("") == "0"
    assert priority("--max-priority 50") == "50"
    assert priority("--max-priority 10 --max-priority default=60") == "60"
    assert priority("--max-priority other=60") == "0"
    assert priority("--max-priority=-5") == "-5"
    assert run("elastic run --once --max-priority default=60").code == 0
    assert stage.status("first")["priority"] == 60
    messages = [condition["message"] for condition in stage.status("first")["conditions"]]
    assert "asks for priority 70, and counts with 60, the highest of namespace `default`" in messages


def test_a_saved_moment_gives_the_same_plan(run: Runner, stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "moment.json"
    live = run("elastic", "plan", "--save", str(file), "-o", "json").json
    again = run("elastic", "plan", "--snapshot", str(file), "-o", "json").json
    assert again == live
    assert {row["job"] for row in again["jobs"]} == {"default/big", "default/small"}
    moment = json.loads(file.read_text())
    for name, value in {"minimum": "2", "trainer": [1], "state": "gone", "trainers": [None]}.items():
        file.write_text(json.dumps({**moment, "jobs": [{**moment["jobs"][0], name: value}]}))
        run.play(f"elastic plan --snapshot {file} | 3 | saved snapshot: `jobs[0].{name}")


def test_plan_moves_no_more_than_it_may(run: Runner) -> None:
    stage = Stage("n1", "n2")
    stage.put(training_job("old", minimum=1, maximum=16, cpu="1"))
    stage.settle()
    stage.put(training_job("new", minimum=1, maximum=16, cpu="1"))
    run.clusters["minikube"] = run.clusters[""] = stage.memory
    targets = [
        {row["job"]: row["target"] for row in run(f"elastic plan -o json --moves {count}").json["jobs"]}
        for count in (0, 1, 15)
    ]
    assert targets == [
        {"default/new": 1, "default/old": 15},
        {"default/new": 2, "default/old": 14},
        {"default/new": 8, "default/old": 8},
    ]


@pytest.mark.parametrize(
    ("words", "trainers"), [("", 15), ("--headroom 0", 16), ("--headroom 25", 12), ("--policy fair", 16)]
)
def test_the_head_room_of_edl_is_three_percent_unless_it_is_said(
    run: Runner, words: str, trainers: int
) -> None:
    stage = Stage("n1", "n2")
    stage.put(training_job(minimum=1, maximum=40, cpu="1"))
    run.clusters["minikube"] = run.clusters[""] = stage.memory
    [row] = run(f"elastic plan --policy edl {words} -o json").json["jobs"]
    assert row["target"] == trainers


@pytest.mark.parametrize(
    ("command", "policies"),
    [
        ("run --once", "`edl`, `fair`, `throughput`"),
        ("plan", "`edl`, `fair`, `throughput`"),
        ("simulate case1", "`edl`, `edl-v010`, `fair`, `off`, `throughput`"),
    ],
)
def test_the_policies_that_are_named_are_those_that_the_command_takes(
    run: Runner, command: str, policies: str
) -> None:
    ran = run(f"elastic {command} --policy fiar")
    assert ran.code == 4
    assert ran.err.splitlines() == [
        f"error: no scaling policy `fiar`; known: {policies}",
        "hint: did you mean `fair`?",
    ]


def test_status_shows_phase_and_reason(run: Runner, stage: Stage) -> None:
    stage.put(training_job("bad", minimum=5, maximum=2))
    assert rows_of(run.ok("elastic status"))["bad"][1:4] == ["Pending", "0/0", "-"]
    stage.delete("TrainingJob", "bad", "paddlepaddle.org/v1")
    stage.step()
    rows = rows_of(run.ok("elastic status"))
    assert rows["small"][1:4] == ["Running", "4/4", "1-4"]
    assert rows["big"][1:4] == ["Pending", "0/0", "9-12"]
    stage.put(training_job("new"))
    assert "no controller has looked at it yet" in run.ok("elastic status")
    stage.step()
    stage.delete("Pod", "small-trainer-1")
    stage.step()
    out = run.ok("elastic status")
    lines = {words[0]: " ".join(words) for words in rows_of(out).values()}
    assert "no room for 36 cpu" in lines["default/big"]
    assert "Scaling" in lines["default/small"] and "3 of 4 trainers are ready" in lines["default/small"]
    assert all(text_width(line) <= WIDTH for line in out.splitlines())


def test_one_pass_does_what_is_due_and_frees_the_lease(run: Runner, stage: Stage) -> None:
    run.play("elastic run --once --dry-run | 0 | status TrainingJob default/big: Pending")
    assert stage.status("big") == {}
    run.ok("elastic run --once --lease-namespace default --identity me")
    assert stage.status("big")["phase"] == "Pending"
    run.play("elastic run --once --dry-run | 0 | nothing to do | !status")
    lease = stage.get("Lease", "mlstack-elastic", "coordination.k8s.io/v1")
    assert lease is not None and "holderIdentity" not in lease["spec"]


def test_requests_to_the_cluster_are_told_to_the_metrics(
    run: Runner, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[str, int | None]] = []
    monkeypatch.setattr(Metrics, "answered", lambda _, verb, status: requests.append((verb, status)))
    run.ok("elastic run --once --dry-run --listen 127.0.0.1:0")
    run.counted("get", 200)
    run.ok("elastic run --once --dry-run")
    run.counted("get", 200)
    assert requests == [("get", 200)]


# Where others lead, the namespace of our pod, and what is run then.
LEASES = {
    "it stands by where another leads in another namespace": (
        ("kube-system",),
        "",
        "elastic run --once --identity me | 6 | me stands by: pod-0 has the Lease"
        " `kube-system/mlstack-elastic` | another controller leads\nbig = None",
    ),
    "with several leases it asks which": (
        ("kube-system", "kube-public"),
        "",
        "elastic run --once | 2 | `kube-public/mlstack-elastic`, `kube-system/mlstack-elastic`\n"
        "elastic run --once --dry-run\nelastic run --once --lease-namespace default\nbig = Pending",
    ),
    "in a pod the lease is in its own namespace": (
        ("kube-system",),
        "default",
        "elastic run --once\nlease = there\nbig = Pending",
    ),
    "by a lease of its own it leads beside others": (
        ("default",),
        "",
        "elastic run --once --lease-name mine\nmine = there\nbig = Pending",
    ),
}


@pytest.mark.parametrize(("leading", "own", "session"), LEASES.values(), ids=LEASES)
def test_of_several_controllers_one_leads(
    run: Runner,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    leading: tuple[str, ...],
    own: str,
    session: str,
) -> None:
    for namespace in leading:
        place = {"namespace": namespace, "name": "mlstack-elastic", "holder": "pod-0"}
        Lease(cluster=stage.memory, now_s=stage.clock, **place).take()  # type: ignore[arg-type]
    if own:
        monkeypatch.setenv("POD_NAMESPACE", own)

    def lease(name: str) -> str:
        return "there" if stage.get("Lease", name, "coordination.k8s.io/v1") else "gone"

    run.play(
        session,
        big=lambda: stage.status("big").get("phase"),
        lease=lambda: lease("mlstack-elastic"),
        mine=lambda: lease("mine"),
    )


SCENARIO = """\
seconds: 40
nodes: [{name: node, count: 2, cpu: 8, memory: 32Gi}]
jobs: [{name: j, at: 2, min: 1, max: 5, trainer: {cpu: 1}}]
"""


CROWDED = """\
seconds: 60
nodes: [{name: node, cpu: 4, memory: 16Gi}]
jobs: [{name: j, at: 1, min: 1, max: 4, trainer: {cpu: 1}}]
services: [{name: web, at: 20, replicas: 1, cpu: 2}]
"""


def test_simulate_sums_a_scenario_up(run: Runner) -> None:
    Path("mine.yaml").write_text(SCENARIO, encoding="utf-8")
    report = run("elastic simulate mine.yaml --csv rows.csv -o json").json
    (job,) = report["jobs"]
    assert (job["name"], job["most"], job["phase"]) == ("j", 5, "Running")
    assert report["ok"] and report["violations"] == []
    rows = Path("rows.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 42
    assert rows[0].startswith("seconds,utilisation,")


BUSY = """\
seconds: 70
nodes: [{name: node, count: 2, cpu: 8, memory: 32Gi, gpu: 4}]
jobs:
- {name: short, at: 2, min: 1, max: 4, trainer: {cpu: 1, gpu: 1}, work: 60}
- {name: huge, at: 4, min: 4, max: 4, trainer: {cpu: 9}}
services: [{name: web, replicas: 1, cpu: 1}]
events: [{at: 40, what: scale, name: web, count: 3}, {at: 55, what: scale, name: web, count: 30}]
"""


def test_simulate_tells_people_what_applies_in_lines_that_fit(run: Runner) -> None:
    Path("mine.yaml").write_text(BUSY, encoding="utf-8")
    lines = run.ok("elastic simulate mine.yaml").splitlines()
    words = {line.split()[0]: line.split() for line in lines if line}
    assert all(text_width(line) <= WIDTH for line in lines)
    assert words["JOB"][5:] == ["DONE", "PHASE"]
    assert words["short"][-1] == "Succeeded" and words["short"][-3].isdigit()
    assert words["huge"][1:3] == [">66", "s"]
    summary = {line.partition(":")[0]: line for line in lines}
    assert {"utilisation", "memory", "nvidia.com/gpu", "first trainer", "whole gang"} < summary.keys()
    assert "1 never" in summary["whole gang"]
    assert summary["done"].split()[1:3] == ["1", "job,"] and "makespan" in summary["done"]
    assert summary["web"].endswith("99 % after 6, >15")
    assert "create" in summary["controller"]


def test_simulate_leaves_out_for_people_what_does_not_apply(run: Runner) -> None:
    Path("mine.yaml").write_text(SCENARIO, encoding="utf-8")
    out = run.ok("elastic simulate mine.yaml --policy off")
    assert "DONE" not in out and "\ndone" not in out and "short on average" not in out
    assert "controller" not in out
    Path("idle.yaml").write_text(SCENARIO.replace("jobs:", "#"), encoding="utf-8")
    assert "first trainer" not in run.ok("elastic simulate idle.yaml")


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[SeedTrial]:
    """Make no runs, and give those that were to be made."""
    trials: list[SeedTrial] = []

    def run_all(function: object, asked: Sequence[SeedTrial], workers: int) -> list[Figures]:
        trials.extend(asked)
        return [Figures(seed=trial.seed, values=defaultdict(float), violations=()) for trial in asked]

    monkeypatch.setattr("mlstack.simulator.experiments.run_all", run_all)
    return trials


def test_simulate_begins_with_the_seed_that_is_asked_for(run: Runner, trials: list[SeedTrial]) -> None:
    table = run("elastic simulate case1 --seeds 3 --first-seed 100 -o json").json
    assert [trial.seed for trial in trials] == table["seeds"] == [100, 101, 102]


@pytest.mark.parametrize(
    ("words", "is_preempting"),
    [
        ("case2", True),
        ("case2 --no-preemption", False),
        ("case2-roomy", False),
        ("case2-roomy --preemption", True),
    ],
)
def test_simulate_leaves_making_room_to_whom_it_is_told(
    run: Runner, trials: list[SeedTrial], words: str, is_preempting: bool
) -> None:
    run(f"elastic simulate {words} --seeds 2")
    assert [trial.scenario.services[0].is_preempting for trial in trials] == [is_preempting] * 2


def test_simulate_judges_cases_with_the_settings_that_are_asked_for(
    run: Runner, trials: list[SeedTrial]
) -> None:
    run("elastic simulate case1 --seeds 1 --headroom 20 --moves 3 --tick 2s --policy throughput")
    run("elastic simulate case1 --seeds 1")
    tried, usual = trials
    assert (tried.config.mode, tried.config.headroom_pct, tried.config.moves) == ("throughput", 20, 3)
    assert (usual.config.mode, usual.config.headroom_pct, usual.config.moves) == ("fair", 0, 15)
    assert (tried.tick_ms, usual.tick_ms) == (2_000, 5_000)


PAIR = """\
seconds: 60
nodes: [{name: node, cpu: 8}]
jobs: [{name: j, count: 2, at: 1, every: 14, min: 1, max: 9, trainer: {cpu: 1}}]
"""
# Scenario, options, what is told of the run, and what it is.
SETTINGS = {
    "all of the room": (SCENARIO.replace("max: 5", "max: 50"), "--headroom 0", "most", (16, 16)),
    "half of the room": (SCENARIO.replace("max: 5", "max: 50"), "--headroom 50", "most", (8, 8)),
    "no moves": (PAIR, "--moves 0", "spread", (6, 6)),
    "moves": (PAIR, "--moves 9", "spread", (0, 0)),
    "a seldom look": (SCENARIO, "--tick 20s", "passes", (0, 14)),
    "a look each second": (SCENARIO, "--tick 1s", "passes", (39, 999)),
    "pods of services wait": (CROWDED, "--no-preemption --policy off", "deletions", (0, 0)),
    "pods of services push": (CROWDED, "--preemption --policy off", "deletions", (2, 2)),
}


@pytest.mark.parametrize(("scenario", "options", "key", "bounds"), SETTINGS.values(), ids=SETTINGS)
def test_simulate_does_what_it_is_told(
    run: Runner, scenario: str, options: str, key: str, bounds: tuple[int, int]
) -> None:
    Path("mine.yaml").write_text(scenario, encoding="utf-8")
    report = run(f"elastic simulate mine.yaml {options} -o json").json
    value = report["jobs"][0]["most"] if key == "most" else report[key]
    assert bounds[0] <= value <= bounds[1]


def test_simulate_draws(run: Runner) -> None:
    pytest.importorskip("matplotlib")
    Path("mine.yaml").write_text(SCENARIO, encoding="utf-8")
    run.ok("elastic simulate mine.yaml --plot a.svg")
    run.ok("elastic simulate mine.yaml --plot b.svg")
    drawn = Path("a.svg").read_text(encoding="utf-8")
    assert "<svg" in drawn and drawn == Path("b.svg").read_text(encoding="utf-8")


def test_simulate_says_how_plots_are_had(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    run.play("elastic simulate case1 --plot a.svg | 2 | pip install 'mlstack[plot]'")
