"""Rules on what every object carries: name, namespace, labels, annotations."""

from __future__ import annotations

from collections.abc import Callable

from mlstack.model.validation import syntax
from mlstack.model.validation.base import Problems
from mlstack.model.validation.rules.shared import labels, needed_name
from mlstack.model.validation.rules.table import ANY, Subject, rule

_MAX_ANNOTATIONS_BYTES = 256 * 1024
_MAX_CRON_JOB = 52
_RELAXED_SERVICE_NAMES = 36
"""From 1.36 on the name of a Service may start with a digit."""
_SYNTAX: dict[str, Callable[[str], str | None]] = {
    "Namespace": syntax.label,
    "rbac.authorization.k8s.io/ClusterRole": syntax.path_segment,
    "rbac.authorization.k8s.io/ClusterRoleBinding": syntax.path_segment,
    "rbac.authorization.k8s.io/Role": syntax.path_segment,
    "rbac.authorization.k8s.io/RoleBinding": syntax.path_segment,
}


@rule(ANY)
def name_fits(subject: Subject) -> Problems:
    """An object needs a name that its kind allows."""
    check = _SYNTAX.get(subject.kind, syntax.subdomain)
    if subject.kind == "Service":
        check = syntax.label if subject.minor >= _RELAXED_SERVICE_NAMES else syntax.label_1035
    yield from needed_name(subject.metadata.at("name"), check)


@rule("batch/CronJob")
def name_leaves_room_for_jobs(subject: Subject) -> Problems:
    """A CronJob's Jobs append a time to its name."""
    name = subject.metadata.at("name")
    if len(name.text) > _MAX_CRON_JOB:
        yield name.says(f"must have at most {_MAX_CRON_JOB} characters, got {len(name.text)}")


@rule(ANY)
def namespace_is_a_label(subject: Subject) -> Problems:
    """A namespace is a DNS label."""
    namespace = subject.metadata.at("namespace")
    if namespace.text:
        yield from needed_name(namespace, syntax.label)


@rule(ANY)
def labels_fit(subject: Subject) -> Problems:
    """Labels have qualified keys and short values."""
    yield from labels(subject.metadata.at("labels"))


@rule(ANY)
def annotations_fit(subject: Subject) -> Problems:
    """Annotations have qualified keys and stay below 256 KiB together."""
    annotations = subject.metadata.at("annotations")
    total = 0
    for key, value in annotations.entries:
        wrong = syntax.qualified_name(key.lower())
        if wrong:
            yield value.says(f"key {wrong}")
        total += len(key.encode()) + len(value.text.encode())
    if total > _MAX_ANNOTATIONS_BYTES:
        yield annotations.says(f"must have at most {_MAX_ANNOTATIONS_BYTES} bytes together, got {total}")


@rule(ANY)
def finalizers_are_qualified(subject: Subject) -> Problems:
    """A finalizer is a qualified name."""
    for finalizer in subject.metadata.at("finalizers").items:
        yield from needed_name(finalizer, syntax.qualified_name)


@rule(ANY)
def owners_are_named(subject: Subject) -> Problems:
    """A reference to an owner names it fully, and at most one owner controls."""
    owners = subject.metadata.at("ownerReferences").items
    for owner in owners:
        for name in ("apiVersion", "kind", "name", "uid"):
            yield from owner.at(name).needed()
    if sum(owner.at("controller").value is True for owner in owners) > 1:
        yield subject.metadata.at("ownerReferences").says("must have at most one owner with `controller`")
