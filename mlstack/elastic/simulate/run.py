"""Run a scenario under a policy: the door to the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.pace import TICK_MS
from mlstack.elastic.sampling import Sample
from mlstack.elastic.simulate import cases
from mlstack.elastic.simulate.baseline import Baseline
from mlstack.elastic.simulate.cluster import Environment
from mlstack.elastic.simulate.happenings import Happenings
from mlstack.elastic.simulate.laws import breaches_of_sample, stale_pods
from mlstack.elastic.simulate.managed import Managed
from mlstack.elastic.simulate.scenario import Scenario

BASELINES = ("edl-v010", "off")
"""Policies with EDL's own way to run jobs instead of the controller."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a simulation gave.

    Attributes:
        scenario: what it was of.
        policy: how the jobs were scaled.
        seed: of chance.
        samples: one a second.
        violations: breaches of the laws of plans and samples, with their times.
        passes: how often the controller looked.
        calls: its requests to the API server, by verb.
    """

    scenario: Scenario
    policy: str
    seed: int
    samples: tuple[Sample, ...]
    violations: tuple[str, ...]
    passes: int
    calls: Mapping[str, int]


def simulate(scenario: Scenario, policy: str = "fair", *, seed: int = 0) -> Outcome:
    """Run a scenario to its end.

    Args:
        scenario: what happens.
        policy: a policy of the controller, or `edl-v010` or `off` for EDL's own way.
        seed: of chance; the same one gives the same outcome.

    Raises:
        NotFoundError: there is no such policy.
    """
    return simulate_with(scenario, PolicyConfig(mode=policy), seed=seed)


def simulate_with(
    scenario: Scenario, config: PolicyConfig, *, seed: int = 0, tick_ms: int = TICK_MS
) -> Outcome:
    """Run a scenario to its end with all settings given.

    Args:
        scenario: what happens.
        config: of the policy.
        seed: of chance.
        tick_ms: longest time between two passes of the controller; EDL's own way has one of its own.
    """
    if config.mode == "off":
        scenario = cases.unelastic(scenario)
    environment = Environment(scenario, seed)
    if config.mode in BASELINES:
        Baseline(environment, config.mode)
        Happenings(environment)
        environment.run()
        return _outcome(environment, config, seed, None)
    managed = Managed(environment, config, tick_ms=tick_ms)
    Happenings(environment, managed)
    environment.run()
    return _outcome(environment, config, seed, managed)


def _outcome(environment: Environment, config: PolicyConfig, seed: int, managed: Managed | None) -> Outcome:
    found = list(managed.violations) if managed else []
    for sample in environment.samples if managed else ():
        found += [f"{sample.at_ms / 1000:g} s: {text}" for text in breaches_of_sample(sample)]
    found += stale_pods(environment.samples) if managed else ()
    return Outcome(
        scenario=environment.scenario,
        policy=config.mode,
        seed=seed,
        samples=tuple(environment.samples),
        violations=tuple(found),
        passes=managed.passes if managed else 0,
        calls=dict(sorted(managed.cluster.calls.items())) if managed else {},
    )
