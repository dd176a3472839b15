"""Scenarios that people write: what they may say, and what is said when they are wrong."""

import re
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ConfigError
from mlstack.simulator import scenario
from mlstack.simulator.run import simulate
from mlstack.simulator.scenario import CASES, EVENTS, FIELDS, FOLDER, Scenario
from mlstack.yaml.read import read_document

GUIDE = Path(__file__).parents[3] / "prototypes" / "elastic" / "README.md"
EXAMPLE = (FOLDER / "example.yaml").read_text("utf-8")
NODES = [{"name": "n", "cpu": 8, "memory": "32Gi"}]


def read(where: str = "a.yaml", **data: object) -> Scenario:
    return scenario.read({"nodes": NODES, **data}, where=where)


def spec_of(**job: object) -> Any:
    return read(jobs=[{"name": "j", "max": 4, "trainer": {"cpu": 1}, **job}]).jobs[0].spec


def test_a_job_counted_comes_several_times() -> None:
    job = {"name": "j", "count": 3, "at": 5, "every": 10, "max": 4, "trainer": {"cpu": 1}}
    jobs = read(jobs=[job]).jobs
    assert [(job.name, job.at_ms) for job in jobs] == [("j-0", 5_000), ("j-1", 15_000), ("j-2", 25_000)]


@pytest.mark.parametrize(
    "spec",
    [
        {"trainer": {"max-instance": 9}, "fault_tolerant": True},
        {"trainer": {"maxInstance": 9}, "faultTolerant": True},
    ],
    ids=["own names", "camel case"],
)
def test_spec_is_laid_over_the_short_fields(spec: dict[str, object]) -> None:
    merged = spec_of(spec=spec)
    assert (merged["trainer"]["max-instance"], merged["trainer"]["min-instance"]) == (9, 1)
    assert merged["fault_tolerant"] is True


def test_gpus_are_limits_too() -> None:
    assert spec_of(trainer={"gpu": 2})["trainer"]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_pods_of_services_preempt_unless_it_is_said() -> None:
    services = read(services=[{"name": "a", "cpu": 1}, {"name": "b", "cpu": 1, "preempts": False}]).services
    assert [service.is_preempting for service in services] == [True, False]


def test_a_scenario_is_called_like_its_file() -> None:
    assert read("dir/mine.yaml").name == "mine"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "no `nodes`"),
        ({"nodes": NODES, "job": []}, "`job`"),
        ({"nodes": NODES, "events": [{"what": "explode", "at": 3}]}, "explode"),
        ({"nodes": NODES, "events": [{"what": "fail-node", "at": 3}]}, "needs the `name`"),
        ({"nodes": NODES, "jobs": [{"name": "j", "min": 3, "max": 2}]}, "job `j`"),
        ({"nodes": NODES, "jobs": [{"name": "j", "at": -1}]}, "not negative"),
        ({"nodes": NODES, "jobs": [{"name": "j"}, {"name": "j"}]}, "two jobs"),
        ({"nodes": [{"name": False, "cpu": 1}]}, r"`name` must be text, got False$"),
        ({"nodes": NODES, "start": 3}, "`start`"),
        ({"nodes": NODES, "start": ["a", "b"]}, "`start`"),
        ({"nodes": NODES, "start": [5, 2]}, "`start`"),
        ({"nodes": [{"name": "n", "cpu": 1, "count": 10**9}]}, "`count` must be at most 10000"),
        ({"nodes": NODES, "jobs": [{"name": "j", "count": 10**9}]}, "`count` must be at most 10000"),
        ({"nodes": NODES, "services": [{"name": "s", "replicas": 10**9}]}, "must be at most 100000"),
        ({"nodes": NODES, "begin": 30, "seconds": 30}, "`begin` must be less"),
        ({"nodes": NODES, "events": [{"name": "w"}]}, r"used: scenario.events\[0\]: `what` is missing$"),
        ({"nodes": NODES, "events": [{"what": "break-watch", "every": 0.1}]}, "`every` must be at least 1 "),
        ({"nodes": [*NODES, *NODES]}, "two nodes are called `n-0`"),
        ({"nodes": NODES, "services": [{"name": "s"}, {"name": "s"}]}, "two services are called `s`"),
        ({"nodes": NODES, "scheduler": {"bindRate": 0}}, "`bindRate` must be at least 1"),
        ([], r"must be a map, got \[\]$"),
        ({"nodes": NODES[0]}, r"`nodes` must be a list of maps, got {[^}]*}$"),
        ({"nodes": [{**NODES[0], "background": {"cpu": 9}}]}, "`n`: their `background` takes 9 cpu of 8"),
        ({"nodes": [{**NODES[0], "taints": [{"effect": "noExecute"}]}]}, "`effect` must be one"),
        (
            {"nodes": NODES, "seconds": 9, "jobs": [{"name": "j", "at": 9}]},
            "no job comes before the end, .* 9",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_faults_are_told(data: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        scenario.read(data, where="a.yaml")


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"trainer": {"cpu": 1, "memroy": 1}}, r"trainer: `memroy` is no field$"),
        ({"pservers": {"cpu": 1, "cuont": 1}}, r"pservers: `cuont` is no field$"),
        ({"spec": {"sped": 1}}, r"used: job `j`: spec: `sped` is no field$"),
        ({"spec": {"trainer": 5}}, r"spec.trainer: must be a map, got 5"),
        ({"pservers": 2}, r"used: scenario.jobs\[0\].pservers: must be a map, got 2$"),
    ],
    ids=["trainer", "servers", "spec", "no map", "servers no map"],
)
def test_what_nobody_reads_of_a_job_is_told(job: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        spec_of(**job)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"what": "scale", "name": "wed"}, "no service `wed`; did you mean `web`?"),
        ({"what": "fail-node", "name": "n"}, "no node `n`"),
        ({"what": "fail-node", "name": "n-2"}, "no node `n-2`"),
        ({"what": "add-nodes", "name": "m-0"}, "no group of nodes `m-0`"),
        ({"what": "crash-trainers", "name": "j"}, "no job `j`"),
    ],
    ids=["service", "group", "node", "node as group", "job"],
)
def test_events_happen_to_what_there_is(event: dict[str, object], words: str) -> None:
    data = {
        "nodes": NODES,
        "jobs": [{"name": "j", "count": 2, "trainer": {"cpu": 1}}],
        "services": [{"name": "web", "cpu": 1}],
        "events": [{"what": "add-nodes", "name": "n", "at": 1}, event],
    }
    with pytest.raises(ConfigError, match=re.escape(f"scenario.events[1]: there is {words}")):
        scenario.read(data, where="a.yaml")


def test_events_may_happen_to_nodes_that_come_later() -> None:
    events = [{"what": "add-nodes", "name": "n", "count": 2}, {"what": "cordon-node", "name": "n-2", "at": 9}]
    assert [event.name for event in read(events=events).events] == ["n", "n-2"]


@pytest.mark.parametrize(
    "fields",
    [
        {"cpu": "four"},
        {"memory": "4 GB"},
        {"cpu": -1},
        {"allocatable": {"example.org/fpga": "some"}},
        {"background": {"cpu": "few"}},
    ],
    ids=["cpu", "memory", "negative", "allocatable", "background"],
)
def test_amounts_are_read_as_kubernetes_reads_them(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"scenario\.nodes\[0\]: `\S+` must be an amount such as"):
        read(nodes=[{"name": "n", **fields}])


def test_no_more_than_every_write_fails() -> None:
    with pytest.raises(ConfigError, match="`errors` must be at most 100, got 101"):
        read(faults={"errors": 101})


@pytest.mark.parametrize("seconds", [1e99, float("inf"), float("nan")])
def test_a_scenario_has_an_end(seconds: float) -> None:
    with pytest.raises(ConfigError, match="`seconds` must be at most 604800"):
        read(seconds=seconds)


def test_a_field_of_a_scenario_is_not_said_to_be_one_of_a_job() -> None:
    with pytest.raises(ConfigError, match=r"scenario\.nodes\[0\]: `memry` is no field$") as caught:
        read(nodes=[{"name": "n", "cpu": 4, "memry": "1Gi"}])
    assert "mlstack elastic simulate --example" in str(caught.value.hint)


@pytest.mark.slow
def test_the_example_runs_and_breaks_no_law() -> None:
    outcome = simulate(scenario.load(EXAMPLE, where="example.yaml"))
    assert outcome.violations == ()
    assert {job.key: job.phase for job in outcome.samples[-1].jobs}["default/faces"] == "Succeeded"


@pytest.mark.parametrize("level", FIELDS)
def test_the_example_has_every_field(level: str) -> None:
    example = read_document(EXAMPLE, source="example.yaml").value
    entries = example[level] if level else [example]
    fields = set(FIELDS[level]) - ({"gpu"} if level == "services" else set())
    assert fields == {name for entry in entries for name in entry}


@pytest.mark.parametrize("text", [EXAMPLE, GUIDE.read_text("utf-8")], ids=["example", "guide"])
def test_example_and_guide_name_every_event(text: str) -> None:
    assert [what for what in EVENTS if what not in text] == []


@pytest.mark.parametrize("name", CASES)
def test_a_published_experiment_is_called_like_its_file(name: str) -> None:
    assert scenario.published(name).name == name
