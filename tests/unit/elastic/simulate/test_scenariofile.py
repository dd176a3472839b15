"""Scenarios that people write: what they may say, and what is said when they are wrong."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from mlstack.elastic.simulate import scenariofile
from mlstack.elastic.simulate.run import simulate
from mlstack.elastic.simulate.scenario import Happening
from mlstack.errors import ConfigError

GUIDE = Path(__file__).parents[4] / "prototypes" / "elastic" / "README.md"

NODES = [{"name": "n", "cpu": 8, "memory": "32Gi"}]


def test_a_job_counted_comes_several_times() -> None:
    job = {"name": "j", "count": 3, "at": 5, "every": 10, "max": 4, "trainer": {"cpu": 1}}
    found = scenariofile.read({"nodes": NODES, "jobs": [job]}, where="a.yaml")
    assert [(job.name, job.at_ms) for job in found.jobs] == [("j-0", 5_000), ("j-1", 15_000), ("j-2", 25_000)]


def test_spec_is_laid_over_the_short_fields() -> None:
    spec = {"trainer": {"max-instance": 9}, "scaling": "Manual"}
    job = {"name": "j", "max": 4, "trainer": {"cpu": 1}, "spec": spec}
    found = scenariofile.read({"nodes": NODES, "jobs": [job]}, where="a.yaml").jobs[0].spec
    assert (found["trainer"]["max-instance"], found["trainer"]["min-instance"]) == (9, 1)
    assert found["scaling"] == "Manual"


def test_spec_may_be_in_camel_case() -> None:
    spec = {"trainer": {"maxInstance": 9}, "faultTolerant": True}
    job = {"name": "j", "max": 4, "trainer": {"cpu": 1}, "spec": spec}
    found = scenariofile.read({"nodes": NODES, "jobs": [job]}, where="a.yaml").jobs[0].spec
    assert (found["trainer"]["max-instance"], found["fault_tolerant"]) == (9, True)


def test_gpus_are_limits_too() -> None:
    job = {"name": "j", "trainer": {"gpu": 2}}
    found = scenariofile.read({"nodes": NODES, "jobs": [job]}, where="a.yaml").jobs[0].spec
    assert found["trainer"]["resources"]["limits"] == {"nvidia.com/gpu": "2"}


def test_pods_of_services_preempt_unless_it_is_said() -> None:
    services = [{"name": "a", "cpu": 1}, {"name": "b", "cpu": 1, "preempts": False}]
    found = scenariofile.read({"nodes": NODES, "services": services}, where="a.yaml")
    assert [service.is_preempting for service in found.services] == [True, False]


def test_a_scenario_is_called_like_its_file() -> None:
    assert scenariofile.read({"nodes": NODES}, where="dir/mine.yaml").name == "mine"


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
        ({"nodes": NODES, "begin": 30, "seconds": 30}, "`begin` must be less"),
        ([], "must be a map"),
    ],
    ids=["empty", "unknown", "event", "nameless", "range", "time", "twice", "name", "start", "begin", "list"],
)
def test_faults_are_told(data: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        scenariofile.read(data, where="a.yaml")


def test_the_example_of_the_guide_runs_and_breaks_no_law() -> None:
    block = re.search(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert block
    outcome = simulate(scenariofile.read(yaml.safe_load(block[1]), where="README.md"))
    assert outcome.violations == ()
    assert {job.key: job.phase for job in outcome.samples[-1].jobs}["default/faces"] == "Succeeded"


def test_the_guide_names_every_event() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    assert [what for what in get_args(Happening) if f"`{what}`" not in text] == []
