"""Rules on roles and their bindings."""

from __future__ import annotations

from mlstack.model.validation import syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.shared import needed_name, selector
from mlstack.model.validation.rules.table import Subject, rule

_GROUP = "rbac.authorization.k8s.io"


@rule(f"{_GROUP}/Role", f"{_GROUP}/ClusterRole")
def rules_are_complete(subject: Subject) -> Problems:
    """A rule allows verbs, on resources of groups or on addresses (those only cluster-wide)."""
    for one in subject.root.at("rules").items:
        yield from one.at("verbs").needed()
        addresses = one.at("nonResourceURLs")
        if not addresses.items:
            yield from one.at("apiGroups").needed()
            yield from one.at("resources").needed()
            continue
        if subject.kind.endswith("/Role"):
            yield addresses.says("must only be set in a ClusterRole")
        if any(one.at(name).items for name in ("apiGroups", "resources", "resourceNames")):
            yield addresses.says("must not stand beside `resources`")


@rule(f"{_GROUP}/ClusterRole")
def aggregation_selects(subject: Subject) -> Problems:
    """A ClusterRole that gathers others says which."""
    aggregation = subject.root.at("aggregationRule")
    if aggregation:
        yield from aggregation.at("clusterRoleSelectors").needed()
    for one in aggregation.at("clusterRoleSelectors").items:
        yield from selector(one)


@rule(f"{_GROUP}/RoleBinding", f"{_GROUP}/ClusterRoleBinding")
def binding_names_a_role(subject: Subject) -> Problems:
    """A binding refers to a role; one for the whole cluster only to a ClusterRole."""
    role = subject.root.at("roleRef")
    allowed = ("ClusterRole",) if subject.kind.endswith("/ClusterRoleBinding") else ("Role", "ClusterRole")
    group = role.at("apiGroup")
    if group.text not in ("", _GROUP):
        yield group.says(f"must be `{_GROUP}`, got {shown(group.value)}")
    if role.at("kind").text not in allowed:
        expected = " or ".join(f"`{one}`" for one in allowed)
        yield role.at("kind").says(f"must be {expected}, got {shown(role.at('kind').value)}")
    yield from needed_name(role.at("name"), syntax.path_segment)


@rule(f"{_GROUP}/RoleBinding", f"{_GROUP}/ClusterRoleBinding")
def subjects_are_complete(subject: Subject) -> Problems:
    """Rights go to accounts (with their namespace), users or groups."""
    for one in subject.root.at("subjects").items:
        yield from one.at("name").needed()
        yield from _subject(one, cluster_wide=subject.kind.endswith("/ClusterRoleBinding"))


def _subject(one: Field, *, cluster_wide: bool) -> Problems:
    kind, group = one.at("kind"), one.at("apiGroup")
    if kind.text == "ServiceAccount":
        yield from needed_name(one.at("name"), syntax.subdomain)
        if group.text:
            yield group.says(f"must be empty for a ServiceAccount, got {shown(group.value)}")
        if cluster_wide:
            yield from one.at("namespace").needed()
    elif kind.text in ("User", "Group"):
        if group.text not in ("", _GROUP):
            yield group.says(f"must be `{_GROUP}`, got {shown(group.value)}")
    else:
        yield kind.says(f"must be `ServiceAccount`, `User` or `Group`, got {shown(kind.value)}")
