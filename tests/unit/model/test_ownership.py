"""Whose an object is."""

from __future__ import annotations

import pytest

from mlstack.deploy.inventory import MEMBER_LABEL
from mlstack.deploy.replacement import is_shared, other_owner
from mlstack.objects.kube_object import KubeObject, marks
from mlstack.objects.managed_fields import FieldChange


def an_object(kind: str = "ConfigMap", api_version: str = "v1", **labels: str) -> KubeObject:
    metadata = {"name": "a", "labels": {name.replace("__", "/"): value for name, value in labels.items()}}
    return KubeObject(data={"apiVersion": api_version, "kind": kind, "metadata": metadata})


def of(app: str, environment: str, **more: str) -> KubeObject:
    return an_object(**marks(app=app, environment=environment, component="c"), **more)


@pytest.mark.parametrize(
    ("live", "owner"),
    [
        (of("demo", "gke"), ""),
        (an_object(), ""),
        (an_object(app="web"), ""),
        (of("demo", "prod/eu"), "environment `prod.eu` of app `demo`"),
        (of("other", "gke"), "environment `gke` of app `other`"),
        (an_object(**{MEMBER_LABEL: "applyset-x-v1"}), "ApplySet `applyset-x-v1`"),
        (of("demo", "gke", **{MEMBER_LABEL: "applyset-of-another-namespace-v1"}), ""),
    ],
    ids=["ours", "nobody's", "other labels", "other environment", "other app", "other set", "moved"],
)
def test_owners_are_told_by_their_marks(live: KubeObject, owner: str) -> None:
    assert other_owner(of("demo", "gke", **{MEMBER_LABEL: "applyset-ours-v1"}), live) == owner


def changed(path: str) -> FieldChange:
    return FieldChange(path=path, action="changed", old="a", new="b")


def test_definitions_may_be_shared_while_they_are_alike() -> None:
    crd = an_object("CustomResourceDefinition", "apiextensions.k8s.io/v1")
    label = changed('metadata.labels["mlstack.dev/environment"]')
    assert is_shared(crd, [label])
    assert not is_shared(crd, [label, changed("spec.versions")])
    assert not is_shared(crd, [changed('metadata.labels["team"]')])
    assert is_shared(an_object("Namespace"), [label])
    assert not is_shared(an_object("ConfigMap"), [label])
