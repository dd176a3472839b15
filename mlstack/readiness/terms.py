"""How long an object is waited for, and what becomes of a run when it does not get ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

from mlstack import clock
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError
from mlstack.objects.kube_object import KubeObject
from mlstack.readiness.rule import RUN_TO_AN_END, Readiness, key_of

Policy = Literal["required", "optional", "none"]
Verdict = Literal["fine", "wait", "left", "failed", "late"]

WAIT_ANNOTATION = "mlstack.dev/wait"
TIMEOUT_ANNOTATION = "mlstack.dev/timeout"

DEFAULT_TIMEOUT_S = 300.0
# What runs to an end may queue for hours; so long it has to say what it waits for.
BRIEF_S = 10.0
# The same for what this run has not touched: its reason is there already.
UNTOUCHED_S = 2.0
# Without a sign of a new node, nobody is going to make room for a pod in the next minutes either.
NO_NODE_S = 120.0
# A workload that was mended a moment ago still shows the faults of its old pods.
SURE_S = 3.0


@dataclass(frozen=True, kw_only=True)
class ReadinessState:
    """How an object stood when its wait ended."""

    readiness: Readiness
    verdict: Verdict  # what that meant for the run

    @property
    def is_good(self) -> bool:
        """Tell whether the run may end well with this."""
        return self.verdict in ("fine", "left")


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms on which one object is waited for."""

    policy: Policy = "required"  # fail the run, `optional` ones are told of, `none` are not looked at
    brief: bool = False  # it may go on by itself: it is waited for only until its reason can be told
    timeout_s: float = DEFAULT_TIMEOUT_S  # until it is late
    no_node_s: float = NO_NODE_S  # that its pods may wait for a node before it is late
    brief_s: float = BRIEF_S  # after which a brief wait ends

    @property
    def untouched(self) -> Terms:
        """Give the terms for an object that this run has not written."""
        return replace(self, brief_s=min(self.brief_s, UNTOUCHED_S))

    def verdict(self, readiness: Readiness, *, waited_s: float, held_s: float = 0.0) -> Verdict:
        """Decide what a state means for the run.

        Args:
            readiness: what the rule of the object's kind says now.
            waited_s: seconds since the wait began.
            held_s: seconds for which the object has been in this state, and queueing for the same thing.
        """
        if self.policy == "none" or readiness.is_fine:
            return "fine"
        if readiness.state in ("failed", "missing"):
            settled: Verdict = "left" if self.policy == "optional" else "failed"
            return settled if held_s >= SURE_S else "wait"
        if self.brief:
            return "left" if waited_s >= min(self.brief_s, self.timeout_s) else "wait"
        lost = readiness.queue == "node" and held_s >= self.no_node_s
        return "late" if waited_s >= self.timeout_s or lost else "wait"


def terms_of(
    desired: KubeObject,
    *,
    timeout_s: float | None = None,
    component_s: Mapping[str, float] | None = None,
    wait_for_jobs: bool = False,
) -> Terms:
    """Give the terms of an object: its annotation before its component's timeout, that of the run above all.

    A timeout that somebody chose holds for pods without a node as well; `timeout_s`, that of the run, bounds
    what the files say. With `wait_for_jobs` what runs to an end is waited for until it runs.

    Raises:
        ConfigError: an annotation says something else than a policy or a duration.
    """
    annotations, where = desired.annotations, str(desired.source) if desired.source else None
    text = annotations.get(WAIT_ANNOTATION, "required")
    policy: Policy | None = next((policy for policy in get_args(Policy) if policy == text), None)
    if policy is None:
        message = f"`{desired.identity}`: annotation `{WAIT_ANNOTATION}` is `{text}`"
        raise ConfigError(message, where=where, hint=f"write one of {', '.join(get_args(Policy))}")
    chosen_s = (component_s or {}).get(desired.component)
    if TIMEOUT_ANNOTATION in annotations:
        try:
            chosen_s = clock.seconds(str(annotations[TIMEOUT_ANNOTATION]))
        except ValueError as error:
            message = f"`{desired.identity}`: annotation `{TIMEOUT_ANNOTATION}`: {error}"
            raise ConfigError(message, where=where) from error
    if timeout_s is not None:
        chosen_s = timeout_s if chosen_s is None else min(chosen_s, timeout_s)
    is_job = (
        key_of(desired.data) in RUN_TO_AN_END and not wait_for_jobs and WAIT_ANNOTATION not in annotations
    )
    return Terms(
        policy=policy,
        brief=policy == "optional" or is_job,
        timeout_s=DEFAULT_TIMEOUT_S if chosen_s is None else chosen_s,
        no_node_s=NO_NODE_S if chosen_s is None else chosen_s,
    )
