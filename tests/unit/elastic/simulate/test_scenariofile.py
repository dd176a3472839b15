"""Scenarios that people write: what they may say, and what is said when they are wrong."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from mlstack.errors import ConfigError
from mlstack.simulator import scenario
from mlstack.simulator.run import simulate
from mlstack.simulator.scenario import Happening
from mlstack.yaml.read import read_document

GUIDE = Path(__file__).parents[4] / "prototypes" / "elastic" / "README.md"

NODES = [{"name": "n", "cpu": 8, "memory": "32Gi"}]


def test_a_job_counted_comes_several_times() -> None:
    job = {"name": "j", "count": 3, "at": 5, "every": 10, "max": 4, "trainer": {"cpu": 1}}
    found = scenario.read({"nodes": NODES, "jobs": [job]}, where="a.yaml")
    assert [(job.name, job.at_ms) for job in found.jobs] == [("j-0", 5_000), ("j-1", 15_000), ("j-2", 25_000)]


def test_spec_is_laid_over_the_short_fields() -> None:
    spec = {"trainer": {"max-instance": 9}, "scaling": "Manual"}
    job = {"name": "j", "max": 4, "trainer": {"cpu": 1}, "spec": spec}
    found = scenario.read({"nodes": NODES, "jobs": [job]}, where="a.yaml").jobs[0].spec
    assert (found["trainer"]["max-instance"], found["trainer"]["min-instance"]) == (9, 1)
    assert found["scaling"] == "Manual"


def test_spec_may_be_in_camel_case() -> None:
    spec = {"trainer": {"maxInstance": 9}, "faultTolerant": True}
    job = {"name": "j", "max": 4, "trainer": {"cpu": 1}, "spec": spec}
    found = scenario.read({"nodes": NODES, "jobs": [job]}, where="a.yaml").jobs[0].spec
    assert (found["trainer"]["max-instance"], found["fault_tolerant"]) == (9, True)


def test_gpus_are_limits_too() -> None:
    job = {"name": "j", "trainer": {"gpu": 2}}
    found = scenario.read({"nodes": NODES, "jobs": [job]}, where="a.yaml").jobs[0].spec
    assert found["trainer"]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_pods_of_services_preempt_unless_it_is_said() -> None:
    services = [{"name": "a", "cpu": 1}, {"name": "b", "cpu": 1, "preempts": False}]
    found = scenario.read({"nodes": NODES, "services": services}, where="a.yaml")
    assert [service.is_preempting for service in found.services] == [True, False]


def test_a_scenario_is_called_like_its_file() -> None:
    assert scenario.read({"nodes": NODES}, where="dir/mine.yaml").name == "mine"


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
        ([], "must be a map"),
    ],
    ids=[
        "empty",
        "unknown",
        "event",
        "nameless",
        "range",
        "time",
        "twice",
        "name",
        "start",
        "no times",
        "backwards",
        "nodes",
        "jobs",
        "pods",
        "begin",
        "list",
    ],
)
def test_faults_are_told(data: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        scenario.read(data, where="a.yaml")


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
    found = scenario.read({"nodes": NODES, "events": events}, where="a.yaml")
    assert [event.name for event in found.events] == ["n", "n-2"]


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
        scenario.read({"nodes": [{"name": "n", **fields}]}, where="a.yaml")


def test_no_more_than_every_write_fails() -> None:
    with pytest.raises(ConfigError, match="`errors` must be at most 100, got 101"):
        scenario.read({"nodes": NODES, "faults": {"errors": 101}}, where="a.yaml")


@pytest.mark.parametrize("seconds", [1e99, float("inf"), float("nan")])
def test_a_scenario_has_an_end(seconds: float) -> None:
    with pytest.raises(ConfigError, match="`seconds` must be at most 604800"):
        scenario.read({"nodes": NODES, "seconds": seconds}, where="a.yaml")


def test_a_field_of_a_scenario_is_not_said_to_be_one_of_a_job() -> None:
    with pytest.raises(ConfigError, match=r"scenario\.nodes\[0\]: `memry` is no field$") as caught:
        scenario.read({"nodes": [{"name": "n", "cpu": 4, "memry": "1Gi"}]}, where="a.yaml")
    assert "mlstack elastic simulate --example" in str(caught.value.hint)


def test_the_example_runs_and_breaks_no_law() -> None:
    example = read_document(scenario.EXAMPLE.read_text("utf-8"), source="example.yaml").value
    outcome = simulate(scenario.read(example, where="example.yaml"))
    assert outcome.violations == ()
    assert {job.key: job.phase for job in outcome.samples[-1].jobs}["default/faces"] == "Succeeded"


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        ("", scenario.TOP),
        ("nodes", scenario.NODE),
        ("jobs", scenario.JOB),
        ("services", [name for name in scenario.SERVICE if name != "gpu"]),
        ("events", scenario.EVENT),
    ],
)
def test_the_example_has_every_field(place: str, fields: Sequence[str]) -> None:
    example = read_document(scenario.EXAMPLE.read_text("utf-8"), source="example.yaml").value
    entries = example[place] if place else [example]
    assert set(fields) == {name for entry in entries for name in entry}


def test_the_example_names_every_event() -> None:
    text = scenario.EXAMPLE.read_text("utf-8")
    assert [what for what in get_args(Happening) if what not in text] == []


def test_the_guide_names_every_event() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert [what for what in get_args(Happening) if f"`{what}`" not in text] == []
