"""How long an object is waited for, and what becomes of a run when it does not get ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from mlstack import clock
from mlstack.errors import ConfigError
from mlstack.objects.kube_object import KubeObject
from mlstack.readiness.rule import Readiness, runs_to_an_end

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
            found: what the rule of the object's kind says now.
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
    wanted: KubeObject,
    *,
    timeout_s: float | None = None,
    component_s: Mapping[str, float] | None = None,
    wait_for_jobs: bool = False,
) -> Terms:
    """Give the terms of an object: its annotation before its component's timeout, that of the run above all.

    A timeout that somebody chose holds for pods without a node as well.

    Args:
        wanted: the object as the files bring it.
        timeout_s: what was chosen for the run, None if nothing was; it bounds what the files say.
        component_s: timeouts of components by name.
        wait_for_jobs: whether what runs to an end is waited for until it runs.

    Raises:
        ConfigError: an annotation says something else than a policy or a duration.
    """
    policy = _policy(wanted)
    chosen = _timeout(wanted)
    if chosen is None:
        chosen = (component_s or {}).get(wanted.component)
    if timeout_s is not None:
        chosen = timeout_s if chosen is None else min(chosen, timeout_s)
    is_job = runs_to_an_end(wanted.data) and not wait_for_jobs and WAIT_ANNOTATION not in wanted.annotations
    return Terms(
        policy=policy,
        brief=policy == "optional" or is_job,
        timeout_s=DEFAULT_TIMEOUT_S if chosen is None else chosen,
        no_node_s=NO_NODE_S if chosen is None else chosen,
    )


def _policy(wanted: KubeObject) -> Policy:
    text = wanted.annotations.get(WAIT_ANNOTATION, "required")
    for known in get_args(Policy):
        if text == known:
            return known  # type: ignore[no-any-return]  # get_args forgets that these are policies
    raise ConfigError(
        f"`{wanted.identity}`: annotation `{WAIT_ANNOTATION}` is `{text}`",
        where=str(wanted.source) if wanted.source else None,
        hint=f"write one of {', '.join(get_args(Policy))}",
    )


def _timeout(wanted: KubeObject) -> float | None:
    text = wanted.annotations.get(TIMEOUT_ANNOTATION)
    if text is None:
        return None
    try:
        return clock.seconds(str(text))
    except ValueError as error:
        raise ConfigError(
            f"`{wanted.identity}`: annotation `{TIMEOUT_ANNOTATION}`: {error}",
            where=str(wanted.source) if wanted.source else None,
        ) from error
