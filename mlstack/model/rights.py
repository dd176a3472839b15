"""Rights in a cluster: what a request needs, and what a person has, as RBAC rules say it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True, kw_only=True)
class Right:
    """The right to one verb on one kind of object.

    Attributes:
        group: API group, empty for the core group.
        resource: plural name of the kind, as `deployments`.
        namespace: empty for cluster-scoped kinds, and for all namespaces.
        verb: `get`, `list`, `watch`, `create`, `patch`, `update`, `delete`.
        name: one object alone, empty for all.
    """

    group: str
    resource: str
    namespace: str = ""
    verb: str
    name: str = ""

    @property
    def full_resource(self) -> str:
        """Give the resource as kubectl takes it: `deployments.apps`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(frozen=True, kw_only=True)
class Rights:
    """What somebody may do in one namespace, as far as the server can list it.

    Attributes:
        rules: the rules, as a SelfSubjectRulesReview gives them.
    """

    rules: tuple[Mapping[str, Any], ...] = ()

    def allow(self, right: Right) -> bool:
        """Tell whether a rule gives a right; a right that none gives may be had in other ways."""
        return any(_gives(rule, right) for rule in self.rules)


def _gives(rule: Mapping[str, Any], right: Right) -> bool:
    names = rule.get("resourceNames") or ()
    return (
        _has(rule.get("verbs"), right.verb)
        and _has(rule.get("apiGroups"), right.group)
        and _has(rule.get("resources"), right.resource)
        and (not names or right.name in names)
    )


def _has(words: Iterable[str] | None, word: str) -> bool:
    listed = tuple(words or ())
    return "*" in listed or word in listed


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Verbs that are missing for one kind in one place.

    Attributes:
        full_resource: the kind, as kubectl takes it.
        namespace: where; empty for the whole cluster.
        verbs: the verbs, sorted.
    """

    full_resource: str
    namespace: str
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        """Write the sentence: `create, patch deployments.apps in namespace ml`."""
        place = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{', '.join(self.verbs)} {self.full_resource} {place}"


def grouped(rights: Iterable[Right]) -> tuple[Missing, ...]:
    """Put the verbs of each kind and place together, sorted by place and kind."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for right in rights:
        verbs.setdefault((right.namespace, right.full_resource), set()).add(right.verb)
    return tuple(
        Missing(full_resource=resource, namespace=namespace, verbs=tuple(sorted(found)))
        for (namespace, resource), found in sorted(verbs.items())
    )


def commands(missing: Iterable[Missing], *, name: str) -> tuple[str, ...]:
    """Give the kubectl commands that would grant what is missing to `USER`.

    Kinds of one place that lack the same verbs share a role; each role is bound as well. A role is called
    after what it grants, so that two messages never name two roles alike.
    """
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in missing:
        alike.setdefault((one.namespace, one.verbs), []).append(one.full_resource)
    lines = []
    for (namespace, verbs), resources in sorted(alike.items()):
        content = f"{namespace} {verbs} {resources}"
        role = f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"
        kind, where = ("role", f" -n {namespace}") if namespace else ("clusterrole", "")
        lines.append(
            f"kubectl create {kind} {role}{where} --verb={','.join(verbs)} --resource={','.join(resources)}"
        )
        lines.append(f"kubectl create {kind}binding {role}{where} --{kind}={role} --user=USER")
    return tuple(lines)
