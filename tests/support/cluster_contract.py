"""What every cluster does behind the port: one suite for the memory cluster and the real one.

A subclass gives the fixtures `cluster` and `namespace`. Where a real cluster needs a moment, the test waits
with `eventually`. What a test says of the memory cluster is what the real one does.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from itertools import count, islice
from typing import Any, TypeVar

import pytest

from mlstack.deploy import conflicts
from mlstack.deploy.changes import with_uid
from mlstack.errors import ConflictError, InvalidError, ObjectNotFoundError
from mlstack.kube.client import Cluster, ObjectRef, Right
from mlstack.kube.parallel import HeldError, Lease, LostError, Term
from mlstack.objects.managed_fields import path_text

T = TypeVar("T")
Obj = dict[str, Any]

_NUMBERS = count(1)


def eventually(probe: Callable[[], T], *, timeout_s: float = 15.0) -> T:
    """Try until what a function gives is true, and give that."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.1)


def lease(
    cluster: Cluster, namespace: str, holder: str, *, behind_s: float = 0.0, duration_s: int = 15
) -> Lease:
    return Lease(
        cluster=cluster,
        namespace=namespace,
        name="lock",
        holder=holder,
        now_s=lambda: time.time() - behind_s,
        duration_s=duration_s,
    )


def _taken(wanted: Lease) -> Term | None:
    try:
        return wanted.take()
    except HeldError:
        return None


def config_map(namespace: str, name: str = "a", **data: Any) -> Obj:
    content = {"data": data} if data else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        **content,
    }


def deployment(namespace: str, name: str = "web", **spec: Any) -> Obj:
    labels = {"app": name}
    container = {"name": "main", "image": "example.com/web:1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            **spec,
        },
    }


def with_container(obj: Obj, **fields: Any) -> Obj:
    """Give a copy of a workload whose first container has more fields."""
    changed = deepcopy(obj)
    changed["spec"]["template"]["spec"]["containers"][0] |= fields
    return changed


def container_of(obj: Mapping[str, Any]) -> Obj:
    container: Obj = obj["spec"]["template"]["spec"]["containers"][0]
    return container


def definition(group: str, *, kind: str = "Widget", schema: Obj | None = None, **version: Any) -> Obj:
    plural = f"{kind.lower()}s"
    openapi = {"type": "object", "properties": schema or {"spec": _OPEN, "status": _OPEN}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": openapi},
                    **version,
                }
            ],
        },
    }


_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def entry(obj: Mapping[str, Any], manager: str, operation: str = "Apply", subresource: str = "") -> Obj:
    """Give the fields that a manager owns, none if it has no entry."""
    for owner in obj["metadata"].get("managedFields") or ():
        if (owner["manager"], owner["operation"], owner.get("subresource", "")) == (
            manager,
            operation,
            subresource,
        ):
            fields: Obj = owner["fieldsV1"]
            return fields
    return {}


def version(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


def generation(obj: Mapping[str, Any]) -> int:
    return int(obj["metadata"]["generation"])


def _taken_over(cluster: Cluster, ref: ObjectRef) -> tuple[Obj, Obj] | None:
    """Take an object over; controllers write its status meanwhile."""
    live = cluster.get(ref)
    assert live is not None
    patch = conflicts.own(live, api_version=ref.api_version, adopt=True)
    try:
        return live, dict(cluster.patch(ref, patch, kind="json").object)
    except InvalidError:
        return None


class ClusterContract:
    """The suite; see the module."""

    @pytest.fixture
    def widgets(self, cluster: Cluster) -> Iterator[Callable[..., str]]:
        """Define the kind Widget in a group of this test's own, and give its API version."""
        definitions: list[ObjectRef] = []

        def define(**options: Any) -> str:
            group = f"contract-{next(_NUMBERS)}.example.com"
            crd = definition(group, **options)
            definitions.append(ObjectRef.of(crd))
            cluster.apply(crd)
            eventually(lambda: _is_established(cluster.get(definitions[-1])))
            return f"{group}/v1"

        yield define
        for ref in definitions:
            cluster.delete(ref, propagation="Background")

    # Rights and Leases

    def test_whoever_may_do_everything_is_told_so(self, cluster: Cluster, namespace: str) -> None:
        right = Right(group="apps", resource="deployments", namespace=namespace, verb="patch")
        assert cluster.may(right)
        assert cluster.may(Right(group="", resource="namespaces", verb="create"))
        assert cluster.rights(namespace).allow(right)

    def test_a_lease_is_held_by_one(self, cluster: Cluster, namespace: str) -> None:
        first, second = (lease(cluster, namespace, holder) for holder in ("ada", "grace"))
        term = first.renew(first.take())
        with pytest.raises(HeldError) as refused:
            second.take()
        assert refused.value.term.holder == "ada"
        assert 10 < refused.value.left_s <= 16
        first.release(term)
        assert second.take().before is None
        with pytest.raises(LostError):
            first.renew(term)

    def test_a_lease_expires_by_the_clock_of_the_server(self, cluster: Cluster, namespace: str) -> None:
        first = lease(cluster, namespace, "ada", behind_s=3600, duration_s=1)
        second = lease(cluster, namespace, "grace", behind_s=-3600, duration_s=1)
        first.take()
        with pytest.raises(HeldError):
            second.take()
        taken = eventually(lambda: _taken(second))
        assert taken.before is not None
        assert taken.before.holder == "ada"
        assert taken.transitions == 1

    # Server-side apply: creation, repetition, change

    def test_apply_creates(self, cluster: Cluster, namespace: str) -> None:
        applied = cluster.apply(config_map(namespace, x="1"))
        assert applied.created
        metadata = applied.object["metadata"]
        assert applied.object["data"] == {"x": "1"}
        assert metadata["uid"]
        assert metadata["creationTimestamp"].endswith("Z")
        assert entry(applied.object, "mlstack") == {"f:data": {"f:x": {}}}
        assert cluster.get(ObjectRef.of(applied.object)) == applied.object

    @pytest.mark.parametrize("dry_run", [True, False], ids=["dry", "real"])
    def test_apply_of_the_same_changes_nothing(self, cluster: Cluster, namespace: str, dry_run: bool) -> None:
        first = cluster.apply(deployment(namespace))
        again = cluster.apply(deployment(namespace), dry_run=dry_run)
        assert not again.created
        assert again.object["spec"] == first.object["spec"]
        live = cluster.get(ObjectRef.of(first.object))
        assert live is not None
        assert entry(live, "mlstack") == entry(first.object, "mlstack")
        assert generation(again.object) == 1

    def test_apply_of_the_same_keeps_the_version(self, cluster: Cluster, namespace: str) -> None:
        first = cluster.apply(config_map(namespace, x="1")).object
        assert cluster.apply(config_map(namespace, x="1")).object == first
        assert cluster.apply(config_map(namespace, x="1"), force=True).object == first

    def test_a_dry_run_changes_nothing(self, cluster: Cluster, namespace: str) -> None:
        created = cluster.apply(config_map(namespace, x="1"), dry_run=True)
        assert created.created
        assert cluster.get(ObjectRef.of(created.object)) is None
        first = cluster.apply(config_map(namespace, x="1")).object
        assert cluster.apply(config_map(namespace, x="2"), dry_run=True).object["data"] == {"x": "2"}
        assert cluster.get(ObjectRef.of(first)) == first

    def test_a_changed_spec_counts_as_a_generation_and_labels_do_not(
        self, cluster: Cluster, namespace: str
    ) -> None:
        wanted = deployment(namespace)
        first = cluster.apply(wanted).object
        wanted["metadata"]["labels"] = {"a": "b"}
        labelled = cluster.apply(wanted).object
        changed = cluster.apply(with_container(wanted, image="example.com/web:2")).object
        assert [generation(obj) for obj in (first, labelled, changed)] == [1, 1, 2]
        assert int(version(labelled)) < int(version(changed))

    def test_kinds_without_a_generation_have_none(self, cluster: Cluster, namespace: str) -> None:
        assert "generation" not in cluster.apply(config_map(namespace, x="1")).object["metadata"]

    # Ownership

    def test_a_field_we_drop_goes(self, cluster: Cluster, namespace: str) -> None:
        cluster.apply(config_map(namespace, x="1", y="2"))
        assert cluster.apply(config_map(namespace, x="1")).object["data"] == {"x": "1"}
        assert "data" not in cluster.apply(config_map(namespace)).object

    def test_a_label_we_drop_goes(self, cluster: Cluster, namespace: str) -> None:
        wanted = config_map(namespace, x="1")
        wanted["metadata"]["labels"] = {"a": "b"}
        cluster.apply(wanted)
        assert "labels" not in cluster.apply(config_map(namespace, x="1")).object["metadata"]

    def test_a_field_of_others_stays(self, cluster: Cluster, namespace: str) -> None:
        ref = ObjectRef.of(cluster.apply(config_map(namespace, x="1")).object)
        cluster.patch(ref, {"data": {"z": "3"}, "metadata": {"labels": {"l": "m"}}}, manager="kubectl-edit")
        applied = cluster.apply(config_map(namespace, x="2")).object
        assert applied["data"] == {"x": "2", "z": "3"}
        assert applied["metadata"]["labels"] == {"l": "m"}
        assert entry(applied, "kubectl-edit", "Update")["f:data"] == {"f:z": {}}

    def test_a_field_that_another_applies_too_stays(self, cluster: Cluster, namespace: str) -> None:
        cluster.apply(config_map(namespace, x="1", y="2"))
        both = cluster.apply(config_map(namespace, x="1"), manager="other").object
        assert entry(both, "mlstack") == {"f:data": {"f:x": {}, "f:y": {}}}
        assert entry(both, "other") == {"f:data": {"f:x": {}}}
        assert cluster.apply(config_map(namespace, y="2")).object["data"] == {"x": "1", "y": "2"}
        left = cluster.apply(config_map(namespace), manager="other").object
        assert left["data"] == {"y": "2"}

    def test_a_conflict_names_manager_and_field(self, cluster: Cluster, namespace: str) -> None:
        ref = ObjectRef.of(cluster.apply(deployment(namespace)).object)
        cluster.patch(ref, {"spec": {"replicas": 2}}, manager="kubectl-edit")
        cluster.apply(
            with_container(deployment(namespace), image="example.com/web:9") | {"spec": _only_image()},
            manager="other",
            force=True,
        )
        with pytest.raises(ConflictError) as caught:
            cluster.apply(deployment(namespace))
        assert {(conflict.manager, conflict.path) for conflict in caught.value.conflicts} == {
            ("kubectl-edit", ".spec.replicas"),
            ("other", '.spec.template.spec.containers[name="main"].image'),
        }
        with pytest.raises(ConflictError):
            cluster.apply(deployment(namespace), dry_run=True)

    def test_force_takes_the_field(self, cluster: Cluster, namespace: str) -> None:
        ref = ObjectRef.of(cluster.apply(config_map(namespace, x="1")).object)
        taken = cluster.patch(ref, {"data": {"x": "2"}}, manager="kubectl-edit").object
        assert entry(taken, "mlstack") == {}
        applied = cluster.apply(config_map(namespace, x="1"), force=True).object
        assert applied["data"] == {"x": "1"}
        assert entry(applied, "mlstack") == {"f:data": {"f:x": {}}}
        assert entry(applied, "kubectl-edit", "Update") == {}

    def test_an_update_with_our_value_owns_nothing(self, cluster: Cluster, namespace: str) -> None:
        first = cluster.apply(config_map(namespace, x="1")).object
        assert cluster.patch(ObjectRef.of(first), {"data": {"x": "1"}}, manager="edit").object == first

    def test_scaling_is_an_update_of_its_own_kind(self, cluster: Cluster, namespace: str) -> None:
        ref = ObjectRef.of(cluster.apply(deployment(namespace)).object)
        scale = cluster.patch(ref, {"spec": {"replicas": 1}}, subresource="scale", manager="kubectl").object
        assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 1})
        live = cluster.get(ref)
        assert live is not None
        assert live["spec"]["replicas"] == 1
        assert entry(live, "kubectl", "Update", "scale") == {"f:spec": {"f:replicas": {}}}
        with pytest.raises(ConflictError) as caught:
            cluster.apply(deployment(namespace))
        (conflict,) = caught.value.conflicts
        assert (conflict.manager, conflict.subresource) == ("kubectl", "scale")

    def test_scaling_to_zero_leaves_the_number_without_an_owner(
        self, cluster: Cluster, namespace: str
    ) -> None:
        ref = ObjectRef.of(cluster.apply(deployment(namespace, replicas=1)).object)
        scale = cluster.patch(ref, {"spec": {"replicas": 0}}, subresource="scale", manager="kubectl").object
        assert scale["spec"] == {}
        live = cluster.get(ref)
        assert live is not None
        assert live["spec"]["replicas"] == 0
        assert entry(live, "kubectl", "Update", "scale") == {}
        assert "f:replicas" not in entry(live, "mlstack")["f:spec"]
        assert cluster.apply(deployment(namespace, replicas=1)).object["spec"]["replicas"] == 1

    def test_replicas_we_drop_go_to_one(self, cluster: Cluster, namespace: str) -> None:
        wanted = deployment(namespace)
        cluster.apply(wanted)
        del wanted["spec"]["replicas"]
        assert cluster.apply(wanted, dry_run=True).object["spec"]["replicas"] == 1

    def test_an_object_without_owners_gets_the_first_apply_as_an_addition(
        self, cluster: Cluster, namespace: str
    ) -> None:
        cluster.create(config_map(namespace, x="1", y="2"), manager="kubectl-create")
        stripped = [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]
        ref = ObjectRef("v1", "ConfigMap", namespace, "a")
        assert "managedFields" not in cluster.patch(ref, stripped, kind="json").object["metadata"]
        applied = cluster.apply(config_map(namespace, x="1")).object
        assert applied["data"] == {"x": "1", "y": "2"}
        assert entry(applied, "before-first-apply", "Update")["f:data"] == {".": {}, "f:x": {}, "f:y": {}}

    def test_managed_fields_can_be_rewritten_to_take_over(self, cluster: Cluster, namespace: str) -> None:
        created = cluster.create(config_map(namespace, x="1", y="2"), manager="kubectl-create").object
        mine = {
            "manager": "mlstack",
            "operation": "Apply",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}, "f:y": {}}},
        }
        operations = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version(created)},
            {"op": "replace", "path": "/metadata/managedFields", "value": [mine]},
        ]
        taken = cluster.patch(ObjectRef.of(created), operations, kind="json").object
        assert entry(taken, "mlstack") == mine["fieldsV1"]
        assert cluster.apply(config_map(namespace, x="1")).object["data"] == {"x": "1"}

    def test_a_take_over_changes_nothing_until_the_next_apply(self, cluster: Cluster, namespace: str) -> None:
        theirs = with_container(deployment(namespace, replicas=0), args=["old"])
        theirs["metadata"]["labels"] = {"team": "ml"}
        created = cluster.create(theirs, manager="kubectl-client-side-apply").object
        cluster.apply(deployment(namespace))
        live, patched = eventually(lambda: _taken_over(cluster, ObjectRef.of(created)))
        assert generation(patched) == generation(live)
        assert patched["spec"] == live["spec"]
        assert entry(patched, "kubectl-client-side-apply", "Update") == {}
        after = cluster.apply(with_uid(deployment(namespace), patched["metadata"]["uid"]), force=True).object
        assert "args" not in container_of(after)
        assert "team" not in after["metadata"].get("labels", {})
        assert generation(after) == generation(live) + 1

    def test_a_take_over_of_another_version_is_refused(self, cluster: Cluster, namespace: str) -> None:
        created = cluster.create(config_map(namespace, x="1"), manager="kubectl-create").object
        cluster.patch(ObjectRef.of(created), {"data": {"y": "2"}}, manager="other")
        with pytest.raises(InvalidError) as caught:
            cluster.patch(
                ObjectRef.of(created), conflicts.own(created, api_version="v1", adopt=True), kind="json"
            )
        assert not caught.value.causes

    def test_another_manager_holds_a_number_that_changes_hands(
        self, cluster: Cluster, namespace: str
    ) -> None:
        first = cluster.apply(deployment(namespace, replicas=3)).object
        bare = deployment(namespace)
        del bare["spec"]["replicas"]
        held = {key: first[key] for key in ("apiVersion", "kind")} | {
            "metadata": {"name": "web", "namespace": namespace},
            "spec": {"replicas": 3},
        }
        both = cluster.apply(held, manager="mlstack-handover").object
        assert entry(both, "mlstack-handover") == {"f:spec": {"f:replicas": {}}}
        after = cluster.apply(bare, force=True).object
        assert after["spec"]["replicas"] == 3
        assert generation(after) == generation(first)
        scale = {"spec": {"replicas": 5}}
        cluster.patch(ObjectRef.of(first), scale, subresource="scale", manager="kube-controller-manager")
        live = cluster.get(ObjectRef.of(first))
        assert live is not None
        assert entry(live, "mlstack-handover") == {}
        assert cluster.apply(bare, force=True, dry_run=True).object["spec"]["replicas"] == 5

    def test_a_write_of_another_version_is_refused(self, cluster: Cluster, namespace: str) -> None:
        first = cluster.apply(config_map(namespace, x="1")).object
        ref = ObjectRef.of(first)
        cluster.patch(ref, {"metadata": {"labels": {"a": "b"}}}, manager="other")
        stale = with_uid(config_map(namespace, x="2"), first["metadata"]["uid"], version(first))
        with pytest.raises(ConflictError) as caught:
            cluster.apply(stale, force=True)
        assert caught.value.conflicts == ()
        live = cluster.get(ref)
        assert live is not None
        assert cluster.apply(with_uid(stale, live["metadata"]["uid"], version(live)), force=True)
        new = with_uid(config_map(namespace, "new"), "", "1")  # a version that no object has
        assert cluster.apply(new).created
        with pytest.raises(ConflictError):
            cluster.apply(new)

    def test_a_forced_dry_run_shows_what_others_would_lose(self, cluster: Cluster, namespace: str) -> None:
        env = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]
        wanted = with_container(deployment(namespace), env=env, args=["x"])
        ref = ObjectRef.of(cluster.apply(wanted).object)
        theirs = with_container(
            deployment(namespace), env=[{"name": "A", "value": "2"}], args=["y"], image="example.com/web:2"
        )
        cluster.apply(theirs, manager="operator", force=True)
        cluster.patch(ref, {"spec": {"replicas": 2}}, subresource="scale", manager="hpa")
        live = cluster.get(ref)
        assert live is not None
        forced = cluster.apply(wanted, force=True, dry_run=True).object
        lost = {(owner.manager, path_text(path)) for owner, path in conflicts.lost(live, forced)}
        main = "spec.template.spec.containers[main]"
        assert lost == {
            ("hpa", "spec.replicas"),
            ("operator", f"{main}.env[A].value"),
            ("operator", f"{main}.args"),
            ("operator", f"{main}.image"),
        }
        with pytest.raises(ConflictError) as caught:
            cluster.apply(wanted)
        assert len(caught.value.conflicts) == len(lost)

    # Lists

    def test_ports_are_told_apart_by_number_and_protocol(self, cluster: Cluster, namespace: str) -> None:
        def service(*ports: Obj) -> Obj:
            return {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "s", "namespace": namespace},
                "spec": {"selector": {"app": "web"}, "ports": list(ports)},
            }

        tcp, udp = {"name": "tcp", "port": 80}, {"name": "udp", "port": 80, "protocol": "UDP"}
        first = cluster.apply(service(tcp, udp)).object
        owned = entry(first, "mlstack")["f:spec"]["f:ports"]
        assert set(owned) == {'k:{"port":80,"protocol":"TCP"}', 'k:{"port":80,"protocol":"UDP"}'}
        assert first["spec"]["ports"][0] == {"name": "tcp", "port": 80, "protocol": "TCP", "targetPort": 80}
        other = {"name": "more", "port": 81}
        both = cluster.apply(service(other), manager="other", force=True).object
        assert [port["name"] for port in both["spec"]["ports"]] == ["tcp", "udp", "more"]
        left = cluster.apply(service(udp)).object
        assert sorted(port["name"] for port in left["spec"]["ports"]) == ["more", "udp"]

    def test_environment_variables_merge_by_name(self, cluster: Cluster, namespace: str) -> None:
        first, second = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}
        wanted = with_container(deployment(namespace), env=[first, second])
        applied = cluster.apply(wanted).object
        owned = entry(applied, "mlstack")["f:spec"]["f:template"]["f:spec"]["f:containers"]
        assert owned == {
            'k:{"name":"main"}': {
                ".": {},
                "f:name": {},
                "f:image": {},
                "f:env": {
                    'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}},
                    'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}},
                },
            }
        }
        foreign = with_container(deployment(namespace), env=[{"name": "Z", "value": "9"}])
        cluster.apply(foreign, manager="other", force=True)
        left = cluster.apply(with_container(deployment(namespace), env=[second])).object
        assert {(row["name"], row["value"]) for row in container_of(left)["env"]} == {("B", "2"), ("Z", "9")}

    def test_the_order_of_a_keyed_list_is_ours(self, cluster: Cluster, namespace: str) -> None:
        rows = [{"name": name, "value": name} for name in "ABCD"]
        cluster.apply(with_container(deployment(namespace), env=rows))
        turned = cluster.apply(with_container(deployment(namespace), env=rows[::-1])).object
        assert [row["name"] for row in container_of(turned)["env"]] == ["D", "C", "B", "A"]

    def test_a_container_we_drop_goes_with_what_others_put_into_it(
        self, cluster: Cluster, namespace: str
    ) -> None:
        wanted = deployment(namespace)
        side = {"name": "side", "image": "example.com/side:1"}
        wanted["spec"]["template"]["spec"]["containers"].append(side)
        ref = ObjectRef.of(cluster.apply(wanted).object)
        added = {"name": "X", "value": "1"}
        cluster.patch(
            ref,
            [{"op": "add", "path": "/spec/template/spec/containers/1/env", "value": [added]}],
            kind="json",
            manager="kubectl-edit",
        )
        left = cluster.apply(deployment(namespace)).object
        assert [container["name"] for container in left["spec"]["template"]["spec"]["containers"]] == ["main"]

    def test_an_atomic_list_is_replaced_whole(self, cluster: Cluster, namespace: str) -> None:
        wanted = with_container(deployment(namespace), args=["a", "b"])
        first = cluster.apply(wanted).object
        owned = entry(first, "mlstack")["f:spec"]["f:template"]["f:spec"]["f:containers"]
        assert owned['k:{"name":"main"}']["f:args"] == {}
        changed = cluster.apply(with_container(deployment(namespace), args=["c"])).object
        assert container_of(changed)["args"] == ["c"]
        assert "args" not in container_of(cluster.apply(deployment(namespace)).object)

    def test_a_selector_is_atomic(self, cluster: Cluster, namespace: str) -> None:
        owned = entry(cluster.apply(deployment(namespace)).object, "mlstack")
        assert owned["f:spec"]["f:selector"] == {}

    def test_a_set_merges_by_value(self, cluster: Cluster, namespace: str) -> None:
        def marked(*finalizers: str) -> Obj:
            wanted = config_map(namespace, x="1")
            wanted["metadata"]["finalizers"] = list(finalizers)
            return wanted

        first = cluster.apply(marked("example.com/a", "example.com/b")).object
        assert entry(first, "mlstack")["f:metadata"]["f:finalizers"] == {
            'v:"example.com/a"': {},
            'v:"example.com/b"': {},
        }
        cluster.apply(marked("example.com/c"), manager="other")
        left = cluster.apply(marked("example.com/b")).object
        assert sorted(left["metadata"]["finalizers"]) == ["example.com/b", "example.com/c"]
        cluster.patch(ObjectRef.of(left), {"metadata": {"finalizers": None}})

    def test_an_empty_map_owns_the_map(self, cluster: Cluster, namespace: str) -> None:
        wanted = config_map(namespace) | {"data": {}}
        cluster.apply(wanted)
        with pytest.raises(ConflictError) as caught:
            cluster.apply(config_map(namespace, x="1"), manager="other")
        assert [conflict.path for conflict in caught.value.conflicts] == [".data"]

    # Identity and preconditions

    def test_a_uid_makes_apply_an_update_of_that_object(self, cluster: Cluster, namespace: str) -> None:
        wanted = config_map(namespace, x="1")
        wanted["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000"
        with pytest.raises(ConflictError) as gone:
            cluster.apply(wanted)
        assert gone.value.conflicts == ()
        live = cluster.apply(config_map(namespace, x="1")).object
        with pytest.raises(InvalidError) as another:
            cluster.apply(wanted)
        assert {cause.field for cause in another.value.causes} == {"metadata.uid"}
        wanted["metadata"]["uid"] = live["metadata"]["uid"]
        assert cluster.apply(wanted).object == live

    def test_a_version_makes_apply_a_compare_and_swap(self, cluster: Cluster, namespace: str) -> None:
        first = cluster.apply(config_map(namespace, x="1")).object
        second = cluster.apply(config_map(namespace, x="2")).object
        wanted = config_map(namespace, x="3")
        wanted["metadata"]["resourceVersion"] = version(first)
        with pytest.raises(ConflictError) as caught:
            cluster.apply(wanted)
        assert caught.value.conflicts == ()
        wanted["metadata"]["resourceVersion"] = version(second)
        assert cluster.apply(wanted).object["data"] == {"x": "3"}

    def test_a_version_without_an_object_creates(self, cluster: Cluster, namespace: str) -> None:
        wanted = config_map(namespace, x="1")
        wanted["metadata"]["resourceVersion"] = "1"
        assert cluster.apply(wanted).created

    # Refusals

    @pytest.mark.parametrize("dry_run", [True, False], ids=["dry", "real"])
    def test_a_missing_namespace_is_told(self, cluster: Cluster, dry_run: bool) -> None:
        with pytest.raises(ObjectNotFoundError) as caught:
            cluster.apply(config_map("no-such-namespace", x="1"), dry_run=dry_run)
        assert caught.value.what == "namespace"

    def test_nothing_is_outside_of_namespaces_whose_kind_lives_in_them(
        self, cluster: Cluster, namespace: str
    ) -> None:
        assert cluster.get(ObjectRef("v1", "ConfigMap", "", "a")) is None
        with pytest.raises(InvalidError, match="needs a namespace"):
            cluster.delete(ObjectRef("v1", "ConfigMap", "", "a"))

    def test_an_unknown_kind_is_told(self, cluster: Cluster, namespace: str) -> None:
        ref = ObjectRef("nowhere.example.com/v1", "Widget", namespace, "w")
        assert cluster.get(ref) is None
        wanted = {
            "apiVersion": ref.api_version,
            "kind": ref.kind,
            "metadata": {"name": "w", "namespace": namespace},
        }
        for attempt in (
            lambda: cluster.apply(wanted),
            lambda: cluster.list(ref.api_version, ref.kind),
            lambda: cluster.delete(ref),
            lambda: list(cluster.watch(ref.api_version, ref.kind, timeout_s=1)),
        ):
            with pytest.raises(ObjectNotFoundError) as caught:
                attempt()
            assert caught.value.what == "kind"
        assert cluster.kinds().lookup(ref.api_version, ref.kind) is None

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"bogus": 1}, ".bogus"),
            ({"spec": {"bogus": 1}}, ".spec.bogus"),
            ({"spec": {"replicas": "2"}}, ".spec.replicas"),
            ({"spec": {"paused": "yes"}}, ".spec.paused"),
            ({"metadata": {"labels": {"a": 1}}}, ".metadata.labels.a"),
        ],
        ids=["top", "nested", "number", "boolean", "label"],
    )
    def test_a_field_that_does_not_fit_is_refused(
        self, cluster: Cluster, namespace: str, change: Obj, field: str
    ) -> None:
        wanted = deployment(namespace)
        for name, value in change.items():
            wanted[name] = {**wanted.get(name, {}), **value} if isinstance(value, dict) else value
        with pytest.raises(InvalidError) as caught:
            cluster.apply(wanted)
        assert [cause.field for cause in caught.value.causes] == [field]
        assert cluster.get(ObjectRef.of(wanted)) is None

    def test_the_same_item_twice_is_refused(self, cluster: Cluster, namespace: str) -> None:
        rows = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
        with pytest.raises(InvalidError, match="duplicate entries"):
            cluster.apply(with_container(deployment(namespace), env=rows))

    def test_what_is_required_is_asked_for(self, cluster: Cluster, namespace: str) -> None:
        wanted = deployment(namespace)
        del wanted["spec"]["selector"]
        with pytest.raises(InvalidError) as caught:
            cluster.apply(wanted)
        assert "spec.selector" in [cause.field for cause in caught.value.causes]

    def test_a_wrong_name_is_refused(self, cluster: Cluster, namespace: str) -> None:
        with pytest.raises(InvalidError) as caught:
            cluster.apply(config_map(namespace, "Not_A_Name", x="1"))
        assert [cause.field for cause in caught.value.causes] == ["metadata.name"]

    def test_a_field_that_cannot_change_is_refused(self, cluster: Cluster, namespace: str) -> None:
        cluster.apply(deployment(namespace))
        wanted = deployment(namespace)
        labels = {"app": "other"}
        wanted["spec"]["selector"] = {"matchLabels": labels}
        wanted["spec"]["template"]["metadata"]["labels"] = labels
        for dry_run in (True, False):
            with pytest.raises(InvalidError) as caught:
                cluster.apply(wanted, dry_run=dry_run)
            (cause,) = caught.value.causes
            assert (cause.field, cause.reason) == ("spec.selector", "FieldValueInvalid")
            assert cause.message.endswith("field is immutable")

    def test_null_is_as_absent(self, cluster: Cluster, namespace: str) -> None:
        wanted = with_container(deployment(namespace), env=[{"name": "A", "value": None}], args=None)
        wanted["metadata"] |= {"creationTimestamp": None, "annotations": None}
        applied = cluster.apply(wanted).object
        assert container_of(applied)["env"] == [{"name": "A"}]
        assert "args" not in container_of(applied)
        assert "annotations" not in applied["metadata"]
        assert cluster.apply(wanted).object["metadata"]["generation"] == 1

    def test_string_data_becomes_data(self, cluster: Cluster, namespace: str) -> None:
        wanted = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": namespace},
            "stringData": {"x": "hello"},
        }
        applied = cluster.apply(wanted).object
        assert applied["data"] == {"x": base64.b64encode(b"hello").decode()}
        assert applied["type"] == "Opaque"
        assert "stringData" not in applied

    # Other writes

    def test_create_owns_as_an_update_and_only_once(self, cluster: Cluster, namespace: str) -> None:
        created = cluster.create(config_map(namespace, x="1"), manager="kubectl-create")
        assert created.created
        assert entry(created.object, "kubectl-create", "Update") == {"f:data": {".": {}, "f:x": {}}}
        with pytest.raises(ConflictError, match="already exists"):
            cluster.create(config_map(namespace, x="1"))

    def test_logs_of_what_is_not_there(self, cluster: Cluster, namespace: str) -> None:
        with pytest.raises(ObjectNotFoundError):
            cluster.logs(
                ObjectRef("v1", "Pod", namespace, "missing"), "main", lines=5, most_bytes=99, timeout_s=2.0
            )

    def test_create_can_be_tried(self, cluster: Cluster, namespace: str) -> None:
        cluster.create(config_map(namespace, x="1"), dry_run=True)
        assert cluster.get(ObjectRef("v1", "ConfigMap", namespace, "a")) is None

    def test_replace_wants_the_live_version(self, cluster: Cluster, namespace: str) -> None:
        first = cluster.create(config_map(namespace, x="1", y="2")).object
        second = cluster.replace(first | {"data": {"x": "2"}}).object
        assert second["data"] == {"x": "2"}
        with pytest.raises(ConflictError):
            cluster.replace(first)
        with pytest.raises(ObjectNotFoundError):
            cluster.replace(config_map(namespace, "missing"))

    def test_a_merge_patch_removes_with_null(self, cluster: Cluster, namespace: str) -> None:
        ref = ObjectRef.of(cluster.apply(config_map(namespace, x="1", y="2")).object)
        tried = cluster.patch(ref, {"data": {"x": None}}, dry_run=True).object
        assert tried["data"] == {"y": "2"}
        patched = cluster.patch(ref, {"data": {"x": None, "z": "3"}}, manager="edit").object
        assert patched["data"] == {"y": "2", "z": "3"}
        assert entry(patched, "mlstack") == {"f:data": {"f:y": {}}}
        assert entry(patched, "edit", "Update") == {"f:data": {"f:z": {}}}

    def test_a_json_patch_tests_before_it_writes(self, cluster: Cluster, namespace: str) -> None:
        ref = ObjectRef.of(cluster.apply(config_map(namespace, x="1")).object)
        wrong = [
            {"op": "test", "path": "/data/x", "value": "9"},
            {"op": "add", "path": "/data/y", "value": "2"},
        ]
        with pytest.raises(InvalidError) as caught:
            cluster.patch(ref, wrong, kind="json")
        assert caught.value.causes == ()
        right = [{**wrong[0], "value": "1"}, wrong[1], {"op": "remove", "path": "/data/x"}]
        assert cluster.patch(ref, right, kind="json").object["data"] == {"y": "2"}

    def test_a_patch_needs_an_object(self, cluster: Cluster, namespace: str) -> None:
        with pytest.raises(ObjectNotFoundError) as caught:
            cluster.patch(ObjectRef("v1", "ConfigMap", namespace, "missing"), {"data": {"x": "1"}})
        assert caught.value.what == "object"

    def test_status_is_written_apart(self, cluster: Cluster, namespace: str) -> None:
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": namespace},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        applied = cluster.apply(claim | {"status": {"phase": "Lost"}}).object
        assert applied.get("status", {}).get("phase") != "Lost"
        ref = ObjectRef.of(applied)
        changed = cluster.patch(
            ref,
            {"status": {"phase": "Lost"}, "metadata": {"labels": None}},
            subresource="status",
            manager="tool",
        )
        assert changed.object["status"]["phase"] == "Lost"
        assert entry(changed.object, "tool", "Update", "status")["f:status"] == {"f:phase": {}}
        assert changed.object["spec"] == applied["spec"]

    # Deletion

    def test_delete_in_the_background_is_done_at_once(self, cluster: Cluster, namespace: str) -> None:
        ref = ObjectRef.of(cluster.apply(config_map(namespace, x="1")).object)
        assert cluster.delete(ref, propagation="Background") is None
        assert cluster.get(ref) is None
        with pytest.raises(ObjectNotFoundError):
            cluster.delete(ref)

    def test_delete_in_the_foreground_waits_for_the_collector(self, cluster: Cluster, namespace: str) -> None:
        ref = ObjectRef.of(cluster.apply(config_map(namespace, x="1")).object)
        going = cluster.delete(ref)
        assert going is not None
        assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
        assert going["metadata"]["deletionTimestamp"]
        eventually(lambda: cluster.get(ref) is None)

    def test_delete_keeps_its_preconditions(self, cluster: Cluster, namespace: str) -> None:
        first = cluster.apply(config_map(namespace, x="1")).object
        ref = ObjectRef.of(first)
        with pytest.raises(ConflictError):
            cluster.delete(ref, uid="00000000-0000-4000-8000-000000000000")
        with pytest.raises(ConflictError):
            cluster.delete(ref, resource_version="1")
        assert cluster.get(ref) == first
        uid = first["metadata"]["uid"]
        cluster.delete(ref, propagation="Background", uid=uid, resource_version=version(first))
        assert cluster.get(ref) is None

    def test_a_finalizer_holds_the_object(self, cluster: Cluster, namespace: str) -> None:
        wanted = config_map(namespace, x="1")
        wanted["metadata"]["finalizers"] = ["example.com/hold"]
        ref = ObjectRef.of(cluster.apply(wanted).object)
        going = cluster.delete(ref, propagation="Background")
        assert going is not None
        held = cluster.get(ref)
        assert held is not None
        assert held["metadata"]["deletionTimestamp"]
        applied = cluster.apply(wanted | {"data": {"x": "2"}}).object
        assert applied["metadata"]["deletionTimestamp"]
        cluster.patch(ref, {"metadata": {"finalizers": None}})
        eventually(lambda: cluster.get(ref) is None)

    @pytest.mark.parametrize("propagation", ["Foreground", "Background"])
    def test_what_is_owned_goes_with_its_owner(
        self, cluster: Cluster, namespace: str, propagation: Any
    ) -> None:
        owner, owned = self._family(cluster, namespace)
        cluster.delete(owner, propagation=propagation)
        eventually(lambda: cluster.get(owned) is None)
        eventually(lambda: cluster.get(owner) is None)

    def test_what_is_owned_can_be_left(self, cluster: Cluster, namespace: str) -> None:
        owner, owned = self._family(cluster, namespace)
        cluster.delete(owner, propagation="Orphan")
        eventually(lambda: cluster.get(owner) is None)
        left = cluster.get(owned)
        assert left is not None
        assert "ownerReferences" not in left["metadata"]

    def test_in_the_foreground_an_owner_outlives_what_it_owns(self, cluster: Cluster, namespace: str) -> None:
        owner, owned = self._family(cluster, namespace, finalizers=["example.com/hold"])
        cluster.delete(owner, propagation="Foreground")
        eventually(lambda: (cluster.get(owned) or {}).get("metadata", {}).get("deletionTimestamp"))
        assert cluster.get(owner) is not None
        cluster.patch(owned, {"metadata": {"finalizers": None}})
        eventually(lambda: cluster.get(owner) is None)
        assert cluster.get(owned) is None

    def _family(self, cluster: Cluster, namespace: str, **metadata: Any) -> tuple[ObjectRef, ObjectRef]:
        owner = cluster.apply(config_map(namespace, "owner", x="1")).object
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
        child = config_map(namespace, "owned", x="1")
        child["metadata"] |= {"ownerReferences": [reference], **metadata}
        return ObjectRef.of(owner), ObjectRef.of(cluster.apply(child).object)

    def test_a_namespace_takes_everything_with_it(self, cluster: Cluster) -> None:
        name = f"contract-{next(_NUMBERS)}-{time.monotonic_ns()}"
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        applied = cluster.apply(space).object
        assert applied["status"]["phase"] == "Active"
        assert applied["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
        inner = ObjectRef.of(cluster.apply(config_map(name, x="1")).object)
        going = cluster.delete(ObjectRef.of(space))
        assert going is not None
        assert going["status"]["phase"] == "Terminating"
        eventually(lambda: cluster.get(ObjectRef.of(space)) is None, timeout_s=30)
        assert cluster.get(inner) is None

    # Reading

    def test_a_list_is_chosen_by_labels_and_namespace(self, cluster: Cluster, namespace: str) -> None:
        for name, labels in {"a": {"t": "1"}, "b": {"t": "2", "u": "x"}, "c": {}}.items():
            wanted = config_map(namespace, name, x="1")
            wanted["metadata"]["labels"] = {**labels, "mine": "yes"}
            cluster.apply(wanted)

        def names(labels: str, fields: str = "") -> list[str]:
            listed = cluster.list("v1", "ConfigMap", namespace=namespace, labels=labels, fields=fields)
            return [item["metadata"]["name"] for item in listed.items]

        assert names("mine=yes") == ["a", "b", "c"]
        assert names("t=1") == ["a"]
        assert names("mine,t!=1") == ["b", "c"]
        assert names("t in (1, 2),u") == ["b"]
        assert names("mine=yes,t notin (1)") == ["b", "c"]
        assert names("mine,!t") == ["c"]
        assert names("mine", "metadata.name=b") == ["b"]
        assert names("mine", "metadata.name!=b") == ["a", "c"]
        everywhere = cluster.list("v1", "ConfigMap", labels="mine=yes,t=1")
        assert namespace in {item["metadata"]["namespace"] for item in everywhere.items}

    def test_a_wrong_selector_is_refused(self, cluster: Cluster, namespace: str) -> None:
        with pytest.raises(InvalidError):
            cluster.list("v1", "ConfigMap", namespace=namespace, labels="a=(b")

    def test_a_list_can_be_of_metadata_alone(self, cluster: Cluster, namespace: str) -> None:
        applied = cluster.apply(config_map(namespace, x="1")).object
        listing = cluster.list(
            "v1", "ConfigMap", namespace=namespace, fields="metadata.name=a", metadata_only=True
        )
        (item,) = listing.items
        assert item == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": applied["metadata"]}
        assert int(listing.resource_version) >= int(version(applied))

    def test_items_of_a_list_are_whole_objects(self, cluster: Cluster, namespace: str) -> None:
        applied = cluster.apply(config_map(namespace, x="1")).object
        listing = cluster.list("v1", "ConfigMap", namespace=namespace, fields="metadata.name=a")
        assert listing.items == (applied,)

    def test_an_empty_list_has_a_version(self, cluster: Cluster, namespace: str) -> None:
        listing = cluster.list("apps/v1", "StatefulSet", namespace=namespace)
        assert listing.items == ()
        assert int(listing.resource_version) > 0

    def test_identity_is_that_of_the_cluster(self, cluster: Cluster) -> None:
        identity = cluster.identity()
        system = cluster.get(ObjectRef("v1", "Namespace", "", "kube-system"))
        assert system is not None
        assert identity.uid == system["metadata"]["uid"]
        assert identity.ca is not None
        assert identity.ca.startswith("sha256:")
        assert cluster.identity() == identity

    def test_kinds_are_told(self, cluster: Cluster) -> None:
        kinds = cluster.kinds()
        kind = kinds.lookup("apps/v1", "Deployment")
        assert kind is not None
        assert (kind.plural, kind.namespaced) == ("deployments", True)
        space = kinds.lookup("v1", "Namespace")
        assert space is not None
        assert not space.namespaced

    # Watching

    def test_a_watch_begins_with_what_there_is(self, cluster: Cluster, namespace: str) -> None:
        first = cluster.apply(config_map(namespace, x="1")).object
        fields = "metadata.name=a"
        events = cluster.watch("v1", "ConfigMap", namespace=namespace, fields=fields, timeout_s=5)
        begun = next(events)
        assert (begun.type, begun.object) == ("ADDED", first)
        assert next(events).is_initial_end
        second = cluster.apply(config_map(namespace, x="2")).object
        changed = next(events)
        assert (changed.type, changed.object) == ("MODIFIED", second)
        assert changed.resource_version == version(second)
        cluster.delete(ObjectRef.of(first), propagation="Background")
        gone = next(event for event in events if event.type != "BOOKMARK")
        assert gone.type == "DELETED"
        assert gone.object["data"] == {"x": "2"}
        assert int(gone.resource_version) > int(version(second))

    def test_a_watch_goes_on_from_a_version(self, cluster: Cluster, namespace: str) -> None:
        first = cluster.apply(_marked(namespace, "a", x="1")).object
        second = cluster.apply(_marked(namespace, "a", x="2")).object
        other = cluster.apply(_marked(namespace, "b", x="1")).object
        events = cluster.watch(
            "v1",
            "ConfigMap",
            namespace=namespace,
            labels="watch=me",
            resource_version=version(first),
            timeout_s=5,
        )
        changes = [(event.type, event.object) for event in islice(events, 2)]
        assert changes == [("MODIFIED", second), ("ADDED", other)]

    def test_a_watch_goes_on_from_a_list(self, cluster: Cluster, namespace: str) -> None:
        cluster.apply(_marked(namespace, "a", x="1"))
        listing = cluster.list("v1", "ConfigMap", namespace=namespace)
        second = cluster.apply(_marked(namespace, "a", x="2")).object
        events = cluster.watch(
            "v1",
            "ConfigMap",
            namespace=namespace,
            labels="watch=me",
            resource_version=listing.resource_version,
            timeout_s=5,
        )
        assert next(events).object == second

    def test_losing_the_label_is_a_deletion_to_a_watch(self, cluster: Cluster, namespace: str) -> None:
        wanted = config_map(namespace, x="1")
        first = cluster.apply(wanted).object
        labelled = _marked(namespace, "a", x="1")
        events = cluster.watch(
            "v1",
            "ConfigMap",
            namespace=namespace,
            labels="watch=me",
            resource_version=version(first),
            timeout_s=5,
        )
        cluster.apply(labelled)
        cluster.apply(wanted)
        assert [event.type for event in islice(events, 2)] == ["ADDED", "DELETED"]

    def test_a_watch_can_be_of_metadata_alone(self, cluster: Cluster, namespace: str) -> None:
        cluster.apply(config_map(namespace, x="1"))
        events = cluster.watch(
            "v1", "ConfigMap", namespace=namespace, fields="metadata.name=a", metadata_only=True, timeout_s=5
        )
        begun = next(events).object
        assert set(begun) == {"apiVersion", "kind", "metadata"}
        assert begun["kind"] == "ConfigMap"

    def test_a_watch_ends(self, cluster: Cluster, namespace: str) -> None:
        events = cluster.watch("apps/v1", "StatefulSet", namespace=namespace, timeout_s=1)
        assert [event.type for event in events if event.type != "BOOKMARK"] == []

    # Custom resources

    def test_a_definition_makes_a_kind(
        self, cluster: Cluster, namespace: str, widgets: Callable[..., str]
    ) -> None:
        api_version = widgets()
        kind = eventually(lambda: cluster.kinds(refresh=True).lookup(api_version, "Widget"))
        assert (kind.plural, kind.namespaced) == ("widgets", True)
        applied = cluster.apply(_widget(api_version, namespace, {"a": 1})).object
        assert applied["spec"] == {"a": 1}
        assert generation(applied) == 1
        assert generation(cluster.apply(_widget(api_version, namespace, {"a": 2})).object) == 2
        assert cluster.apply(_widget(api_version, namespace, {"b": 2})).object["spec"] == {"b": 2}
        assert len(cluster.list(api_version, "Widget", namespace=namespace).items) == 1

    def test_a_definition_takes_its_resources_with_it(
        self, cluster: Cluster, namespace: str, widgets: Callable[..., str]
    ) -> None:
        api_version = widgets()
        ref = ObjectRef.of(cluster.apply(_widget(api_version, namespace, {})).object)
        crd = ObjectRef(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "",
            f"widgets.{api_version.removesuffix('/v1')}",
        )
        going = cluster.delete(crd)
        assert going is not None
        eventually(lambda: cluster.get(crd) is None, timeout_s=30)
        eventually(lambda: cluster.get(ref) is None)
        cluster.apply(definition(api_version.removesuffix("/v1")))

    def test_lists_of_custom_resources_merge_as_their_schema_says(
        self, cluster: Cluster, namespace: str, widgets: Callable[..., str]
    ) -> None:
        keyed = {
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"type": "string"}, "kind": {"type": "string", "default": "x"}, "n": _INT},
        }
        schema = {
            "spec": {
                "type": "object",
                "properties": {
                    "keyed": _list(keyed, "map", "id", "kind"),
                    "set": _list({"type": "string"}, "set"),
                    "plain": {"type": "array", "items": {"type": "string"}},
                    "whole": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": _INT,
                    },
                },
            }
        }
        api_version = widgets(schema=schema)
        first = {"keyed": [{"id": "a", "n": 1}], "set": ["x"], "plain": ["p"], "whole": {"k": 1}}
        other = {"keyed": [{"id": "b", "n": 2}], "set": ["y"], "plain": ["q"], "whole": {"l": 2}}
        applied = cluster.apply(_widget(api_version, namespace, first)).object
        assert entry(applied, "mlstack")["f:spec"] == {
            "f:keyed": {'k:{"id":"a","kind":"x"}': {".": {}, "f:id": {}, "f:n": {}}},
            "f:set": {'v:"x"': {}},
            "f:plain": {},
            "f:whole": {},
        }
        assert applied["spec"]["keyed"] == [{"id": "a", "kind": "x", "n": 1}]
        with pytest.raises(ConflictError) as caught:
            cluster.apply(_widget(api_version, namespace, other), manager="other")
        assert {conflict.path for conflict in caught.value.conflicts} == {".spec.plain", ".spec.whole"}
        both = cluster.apply(_widget(api_version, namespace, other), manager="other", force=True).object
        assert sorted(row["id"] for row in both["spec"]["keyed"]) == ["a", "b"]
        assert sorted(both["spec"]["set"]) == ["x", "y"]
        assert (both["spec"]["plain"], both["spec"]["whole"]) == (["q"], {"l": 2})

    def test_custom_resources_are_held_to_their_schema(
        self, cluster: Cluster, namespace: str, widgets: Callable[..., str]
    ) -> None:
        spec = {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "maybe": {"type": "string", "nullable": True},
                "never": {"type": "string"},
            },
        }
        api_version = widgets(schema={"spec": spec})
        applied = cluster.apply(_widget(api_version, namespace, {"size": 1, "maybe": None})).object
        assert applied["spec"] == {"size": 1, "mode": "a", "maybe": None}
        for wrong, field in [
            ({"size": 0}, "spec.size"),
            ({"mode": "a"}, "spec.size"),
            ({"size": 1, "mode": "c"}, "spec.mode"),
            ({"size": 1, "never": None}, "spec.never"),
        ]:
            with pytest.raises(InvalidError) as caught:
                cluster.apply(_widget(api_version, namespace, wrong))
            assert [cause.field for cause in caught.value.causes] == [field]
        with pytest.raises(InvalidError) as unknown:
            cluster.apply(_widget(api_version, namespace, {"size": 1, "other": 1}))
        assert [cause.field for cause in unknown.value.causes] == [".spec.other"]

    def test_status_of_a_custom_resource_is_a_field_unless_it_is_a_subresource(
        self, cluster: Cluster, namespace: str, widgets: Callable[..., str]
    ) -> None:
        plain, apart = widgets(), widgets(subresources={"status": {}})
        both = [
            cluster.apply(_widget(api_version, namespace, {}) | {"status": {"a": 1}}).object
            for api_version in (plain, apart)
        ]
        assert [obj.get("status") for obj in both] == [{"a": 1}, None]
        ref = ObjectRef.of(both[1])
        changed = cluster.patch(ref, {"status": {"b": 2}}, subresource="status", manager="op").object
        assert changed["status"] == {"b": 2}
        assert generation(changed) == 1
        live = cluster.apply(_widget(apart, namespace, {"x": 1})).object
        assert (live["status"], generation(live)) == ({"b": 2}, 2)


_INT = {"type": "integer"}


def _list(items: Obj, kind: str, *keys: str) -> Obj:
    named = {"x-kubernetes-list-map-keys": list(keys)} if keys else {}
    return {"type": "array", "items": items, "x-kubernetes-list-type": kind, **named}


def _marked(namespace: str, name: str, **data: Any) -> Obj:
    """Give a ConfigMap that a watch can tell from those of the cluster's own."""
    wanted = config_map(namespace, name, **data)
    wanted["metadata"]["labels"] = {"watch": "me"}
    return wanted


def _widget(api_version: str, namespace: str, spec: Obj) -> Obj:
    metadata = {"name": "w", "namespace": namespace}
    return {"apiVersion": api_version, "kind": "Widget", "metadata": metadata, "spec": spec}


def _only_image() -> Obj:
    container = {"name": "main", "image": "example.com/web:9"}
    return {"template": {"spec": {"containers": [container]}}}


def _is_established(crd: Mapping[str, Any] | None) -> bool:
    rows = ((crd or {}).get("status") or {}).get("conditions") or ()
    return any((row["type"], row["status"]) == ("Established", "True") for row in rows)
