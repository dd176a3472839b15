"""The inventory as a value: its name, hashes, union."""

import re
from dataclasses import replace

import pytest

from mlstack.deploy.inventory import Inventory, Member, name_of, owned_hash, payload_hash
from mlstack.objects.kube_object import Identity

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def member(name: str, component: str = "web", **facts: str) -> Member:
    identity = Identity("", "ConfigMap", "ml", name)
    return Member(identity=identity, api_version="v1", component=component, **facts)


EMPTY = Inventory(app="demo", environment="dev", namespace="ml")


@pytest.mark.parametrize(
    ("app", "environment", "expected"),
    [
        ("my-kubeflow", "minikube", "mlstack-my-kubeflow.minikube"),
        ("a", "us/staging", "mlstack-a.us.staging"),
    ],
)
def test_plain_names_stay_readable(app: str, environment: str, expected: str) -> None:
    assert name_of(app, environment) == expected


@pytest.mark.parametrize(
    ("app", "environment"),
    [("My_App", "dev"), ("a.b", "c"), ("a", "b.c"), ("a", "b_-/c"), ("a" * 63, "/".join(["e" * 60] * 4))],
)
def test_other_names_are_made_to_fit_and_stay_apart(app: str, environment: str) -> None:
    found = name_of(app, environment)
    assert SUBDOMAIN.fullmatch(found)
    assert len(found) <= 200
    assert found != name_of(app.lower().replace("_", "-"), environment + "x")


def test_names_that_read_the_same_stay_apart() -> None:
    assert len({name_of("a.b", "c"), name_of("a", "b.c"), name_of("a", "b/c"), name_of("A", "b/c")}) == 4


def test_union_then_without() -> None:
    grown = EMPTY.with_members([member("a"), member("b", "job")])
    again = grown.with_members([member("a", uid="1")])
    assert again.members[member("a").identity].uid == "1"
    assert [one.identity.name for one in again.of_components(["job"])] == ["b"]
    assert list(again.without([member("a").identity]).members) == [member("b").identity]
    assert (grown.exists, replace(grown, version="7").exists) == (False, True)


def test_the_hash_of_a_payload_is_of_what_it_says() -> None:
    data = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"x": "1", "y": "2"}}
    same = {"data": {"y": "2", "x": "1"}, "apiVersion": "v1", "kind": "ConfigMap"}
    versioned = {**same, "metadata": {"name": "a", "uid": "7", "resourceVersion": "8"}}
    assert payload_hash(data) == payload_hash(versioned)
    assert payload_hash(data) != payload_hash({**data, "data": {"x": "1"}})
    assert re.fullmatch("[0-9a-f]{16}", payload_hash(data))


def test_secrets_leave_no_hash() -> None:
    data = {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"password": "aHVzaA=="}}
    assert payload_hash(data) == ""
    assert payload_hash({**data, "apiVersion": "example.com/v1"}) != ""


def test_the_hash_of_our_fields_ignores_others_and_time() -> None:
    def live(time: str, *others: dict[str, object]) -> dict[str, object]:
        own = {"manager": "mlstack", "operation": "Apply", "time": time, "fieldsV1": {"f:data": {"f:a": {}}}}
        return {"metadata": {"managedFields": [*others, own]}}

    other = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:data": {"f:b": {}}}}
    assert owned_hash(live("1")) == owned_hash(live("2", other)) != ""
    assert owned_hash({"metadata": {"managedFields": [other]}}) == ""
