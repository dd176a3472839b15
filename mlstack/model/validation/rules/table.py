"""The table of rules, and what a rule looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mlstack.model.validation.base import Field, Keys, Problems

ANY = "*"
"""In place of a kind: the rule looks at every object."""

# Where the kinds that make pods keep the template of a pod; a Pod is one itself.
TEMPLATES: dict[str, Keys] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "ReplicationController": ("spec", "template"),
    "apps/DaemonSet": ("spec", "template"),
    "apps/Deployment": ("spec", "template"),
    "apps/ReplicaSet": ("spec", "template"),
    "apps/StatefulSet": ("spec", "template"),
    "batch/CronJob": ("spec", "jobTemplate", "spec", "template"),
    "batch/Job": ("spec", "template"),
}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One object under a rule.

    Attributes:
        root: the whole object.
        kind: `group/Kind`, or the kind alone in the core group.
        minor: the Kubernetes version, 36 for 1.36.
        built_in: whether Kubernetes itself serves the kind.
    """

    root: Field
    kind: str
    minor: int
    built_in: bool = True

    @property
    def spec(self) -> Field:
        """Give the specification."""
        return self.root.at("spec")

    @property
    def metadata(self) -> Field:
        """Give the metadata."""
        return self.root.at("metadata")

    @property
    def template(self) -> Field:
        """Give the template of the pods that the object makes, itself for a Pod."""
        keys = TEMPLATES.get(self.kind)
        return Field(None) if keys is None else self.root.at(*(str(key) for key in keys))


@dataclass(frozen=True, kw_only=True)
class PodSubject:
    """One pod, or the template of one, under a rule.

    Attributes:
        spec: the pod's specification.
        claims: volumes that are added from outside the template (a StatefulSet's claims).
        minor: the Kubernetes version, 36 for 1.36.
    """

    spec: Field
    claims: frozenset[str] = frozenset()
    minor: int

    @property
    def containers(self) -> tuple[Field, ...]:
        """Give all containers, initial ones first."""
        return (*self.spec.at("initContainers").items, *self.spec.at("containers").items)


Rule = Callable[[Subject], Problems]
PodRule = Callable[[PodSubject], Problems]

RULES: dict[str, list[Rule]] = {}
POD_RULES: list[PodRule] = []


def rule(*kinds: str) -> Callable[[Rule], Rule]:
    """Enter a rule for objects of these kinds (`apps/Deployment`, `Service`, or `ANY`)."""

    def enter(function: Rule) -> Rule:
        for kind in kinds:
            RULES.setdefault(kind, []).append(function)
        return function

    return enter


def pod_rule(function: PodRule) -> PodRule:
    """Enter a rule for the pods that objects of any kind make."""
    POD_RULES.append(function)
    return function


def rules_for(kind: str) -> Iterator[Rule]:
    """Give the rules for objects of a kind."""
    yield from RULES.get(ANY, ())
    yield from RULES.get(kind, ())
