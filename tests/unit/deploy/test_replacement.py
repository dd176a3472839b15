"""Objects that cannot change in place, and objects of others."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from mlstack.deploy.changes import Refusal
from mlstack.deploy.inventory import MEMBER_LABEL, other_owner
from mlstack.deploy.replacement import (
    RECREATE,
    demands,
    earlier_state,
    judge,
    losses,
    narrowed,
    says_fixed,
    sentence,
    unless_refused,
)
from mlstack.errors import Cause, ConfigError, ForbiddenError, InvalidError, MlstackError
from mlstack.kube.client import ObjectRef
from mlstack.objects.kube_object import DesiredState, KubeObject, marks
from mlstack.objects.managed_fields import FieldChange
from mlstack.testing.cluster import MemoryCluster
from mlstack.testing.controllers import Simulation
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock, crd, outcomes
from tests.support.revisions import obj


def an_object(api_version: str, kind: str, recreate: str | None = None) -> KubeObject:
    annotations = {"annotations": {RECREATE: recreate}} if recreate is not None else {}
    metadata: dict[str, Any] = {"name": "web", "namespace": "ml", **annotations}
    return KubeObject(data={"apiVersion": api_version, "kind": kind, "metadata": metadata}, component="web")


DEPLOYMENT = ("apps/v1", "Deployment")
FIXED = "`spec.selector` cannot change while the object exists"


def refusal_of(manifest: KubeObject, *, why: str | None = None) -> Refusal:
    refusal = judge(manifest, "gke", fixed=FIXED, why=why)
    assert isinstance(refusal, Refusal)
    return refusal


def test_the_annotation_keeps_a_job_from_being_made_anew() -> None:
    for why in (None, "the training operator does not change a running job."):
        refusal = refusal_of(an_object("batch/v1", "Job", "never"), why=why)
        assert "mlstack.dev/recreate: never" in refusal.hint


def test_a_job_and_what_a_rule_wants_anew_are_made_anew_by_themselves() -> None:
    reason = judge(an_object("batch/v1", "Job"), "gke", fixed="`spec.template` cannot change", why=None)
    assert isinstance(reason, str) and reason.endswith("Kubernetes does not change the pods of a Job.")
    assert judge(an_object("kubeflow.org/v1", "TFJob"), "gke", fixed="x", why="because") == "because"


@pytest.mark.parametrize(
    ("api_version", "kind", "hint"),
    [
        ("v1", "PersistentVolumeClaim", "its data would be lost"),
        ("v1", "PersistentVolume", "its data would be lost"),
        ("v1", "Namespace", "everything in it would be lost"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "every object of its kind would be lost"),
    ],
)
@pytest.mark.parametrize("annotation", ["true", None])
def test_what_would_lose_data_is_never_made_anew(
    api_version: str, kind: str, hint: str, annotation: str | None
) -> None:
    assert hint in refusal_of(an_object(api_version, kind, annotation)).hint


@pytest.mark.parametrize("value", ["yes", "True", "false"])
def test_an_annotation_that_says_neither_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match=f'must be "true" or "never", got "{value}"'):
        judge(an_object(*DEPLOYMENT, value), "gke", fixed=FIXED, why=None)


@pytest.mark.parametrize(
    "message",
    [
        "field is immutable",
        "may not change once set",
        "cannot change roleRef",
        "Forbidden: field is immutable when `immutable` is set",
        "Forbidden: may not be changed in an update.",
        "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden",
        "Forbidden: spec is immutable after creation except resources.requests",
    ],
)
def test_the_words_of_the_server_for_fixed_fields_are_known(message: str) -> None:
    assert says_fixed(InvalidError("no", causes=[Cause(field="spec", message=message)]))
    assert says_fixed(InvalidError(f"admission webhook `x` denied the request: {message}"))


def test_a_fault_beside_a_fixed_field_is_a_fault() -> None:
    fixed, fault = Cause(field="a", message="field is immutable"), Cause(field="b", message="Required value")
    assert not says_fixed(InvalidError("no", causes=[fixed, fault]))
    assert not says_fixed(InvalidError("not on Sundays"))


def test_what_would_be_refused_when_made_anew_stays() -> None:
    cause = Cause(field="spec.clusterIP", message="is not in the valid range")
    refusal = unless_refused(FIXED, InvalidError("`Service ml/web-mlstack-probe` is refused", causes=[cause]))
    assert isinstance(refusal, Refusal)
    assert refusal.reasons == (
        f"{FIXED}, and made anew it would be refused: `spec.clusterIP` is not in the valid range",
    )


@pytest.mark.parametrize(
    "fault",
    [
        InvalidError(
            "`Service ml/x` is refused: `spec.ports[0].nodePort` provided port is already allocated"
        ),
        ForbiddenError("cannot create resource", why="rights"),
    ],
    ids=["its own port", "no right to try"],
)
def test_what_only_the_copy_stumbles_over_is_made_anew(fault: MlstackError) -> None:
    assert unless_refused(FIXED, fault) == FIXED


def differing(path: str) -> FieldChange:
    return FieldChange(path=path, action="changed", old="a", new="b")


def test_the_words_of_a_rule_of_the_definition_are_told() -> None:
    causes = [Cause(field="spec.mode", message="mode is chosen once: Invalid value: SECRET")]
    text = sentence(an_object("example.com/v1", "Widget"), causes, [])
    assert text == "`spec.mode` cannot change while the object exists (mode is chosen once)"


def test_a_stateful_set_names_the_fields_that_are_meant() -> None:
    causes = [
        Cause(field="spec", message="updates to statefulset spec for fields other than .. are forbidden")
    ]
    paths = ["metadata.labels.x", "spec.template.spec.containers[main].image", "spec.serviceName"]
    text = sentence(an_object("apps/v1", "StatefulSet"), causes, [differing(path) for path in paths])
    assert text == "`spec.serviceName` cannot change while the object exists"


def test_many_fields_are_counted() -> None:
    causes = [Cause(field="spec", message="spec is immutable after creation")]
    claim = an_object("v1", "PersistentVolumeClaim")
    text = sentence(claim, causes, [differing(f"spec.f{number}") for number in range(5)])
    assert text.startswith("`spec.f0`, `spec.f1`, `spec.f2` and 2 more cannot change")


def marked_object(kind: str = "ConfigMap", api_version: str = "v1", **labels: str) -> KubeObject:
    metadata = {"name": "a", "labels": {name.replace("__", "/"): value for name, value in labels.items()}}
    return KubeObject(data={"apiVersion": api_version, "kind": kind, "metadata": metadata})


def of(app: str, environment: str, **more: str) -> KubeObject:
    return marked_object(**marks(app=app, environment=environment, component="c"), **more)


@pytest.mark.parametrize(
    ("live", "owner"),
    [
        (of("demo", "gke"), ""),
        (marked_object(), ""),
        (marked_object(app="web"), ""),
        (of("demo", "prod/eu"), "environment `prod.eu` of app `demo`"),
        (of("other", "gke"), "environment `gke` of app `other`"),
        (marked_object(**{MEMBER_LABEL: "applyset-x-v1"}), "ApplySet `applyset-x-v1`"),
        (of("demo", "gke", **{MEMBER_LABEL: "applyset-of-another-namespace-v1"}), ""),
    ],
    ids=["ours", "nobody's", "other labels", "other environment", "other app", "other set", "moved"],
)
def test_owners_are_told_by_their_marks(live: KubeObject, owner: str) -> None:
    assert other_owner(of("demo", "gke", **{MEMBER_LABEL: "applyset-ours-v1"}), live.data) == owner


# --- what a StatefulSet leaves behind when it is made anew ---


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"), clock=VirtualClock())


@pytest.fixture
def stack(tmp_path: Any, cluster: MemoryCluster) -> Stack:
    return Stack(tmp_path / "app", namespace="ml", opener=lambda context: cluster, clock=VirtualClock())


def test_a_failed_hook_of_helm_runs_again_and_no_other_job(stack: Stack, cluster: MemoryCluster) -> None:
    spec = {"restartPolicy": "Never", "containers": [{"name": "m", "image": "i"}]}
    hook = {"helm.sh/hook": "pre-install"}
    for name, more in (("hook", hook), ("kept", {**hook, RECREATE: "never"}), ("plain", {})):
        metadata = {"name": name, "annotations": more}
        manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
        stack.write(name, {**manifest, "spec": {"template": {"spec": spec}}})
    stack.apply()
    assert stack.diff().counts == {"unchanged": 3}
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    for name in ("hook", "kept", "plain"):
        job = ObjectRef("batch/v1", "Job", "ml", name)
        cluster.patch(job, {"status": failed}, subresource="status", manager="controller")
    assert stack.diff().counts == {"recreate": 1, "unchanged": 2}
    assert outcomes(stack.apply()) == {"hook": "recreated", "kept": "unchanged", "plain": "unchanged"}


def stateful_set(
    service: str = "db", size: str = "1Gi", recreate: str = "true", **labels: str
) -> dict[str, Any]:
    marks = {"app": "db", **labels}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "db", "annotations": {"mlstack.dev/recreate": recreate}},
        "spec": {
            "serviceName": service,
            "replicas": 1,
            "selector": {"matchLabels": marks},
            "template": {
                "metadata": {"labels": marks},
                "spec": {"containers": [{"name": "main", "image": "db:1"}]},
            },
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
                }
            ],
        },
    }


def pod_uid(cluster: MemoryCluster) -> str | None:
    pod = cluster.get(ObjectRef("v1", "Pod", "ml", "db-0"))
    return str(pod["metadata"]["uid"]) if pod else None


def test_pods_go_on_where_the_new_set_can_adopt_them(stack: Stack, cluster: MemoryCluster) -> None:
    stack.write("db", stateful_set())
    stack.apply()
    Simulation(cluster).settle()
    before = pod_uid(cluster)
    stack.write("db", stateful_set(size="2Gi"))
    (row,) = (row for row in stack.apply().objects if row.name == "db")
    assert row.outcome == "recreated"
    assert before is not None
    assert pod_uid(cluster) == before


@pytest.mark.parametrize("changed", [{"service": "other"}, {"tier": "x"}], ids=["service", "selector"])
def test_pods_end_where_the_new_set_could_not_adopt_them(
    stack: Stack, cluster: MemoryCluster, changed: dict[str, str]
) -> None:
    stack.write("db", stateful_set())
    stack.apply()
    Simulation(cluster).settle()
    claims = [claim["metadata"]["uid"] for claim in cluster.list("v1", "PersistentVolumeClaim").items]
    stack.write("db", stateful_set(**changed))
    stack.apply()
    assert pod_uid(cluster) is None
    assert [claim["metadata"]["uid"] for claim in cluster.list("v1", "PersistentVolumeClaim").items] == claims


# --- what a change of a definition would take away ---

Obj = dict[str, Any]


def version(name: str = "v1", *, served: bool = True, storage: bool = True, **properties: Any) -> Obj:
    spec = {"type": "object", "properties": properties}
    schema = {"type": "object", "properties": {"spec": spec}}
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}}


def definition(*versions: Obj, stored: tuple[str, ...] = ("v1",), **spec: Any) -> Obj:
    manifest = crd(group="example.com")
    manifest["spec"] |= {"versions": list(versions) or [version()], **spec}
    return {**manifest, "status": {"storedVersions": list(stored)}}


TEXT = {"type": "string"}


MANY = {f"f{number}": TEXT for number in range(9)}


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ({"a": TEXT}, {"a": TEXT}, []),
        ({"a": TEXT, "b": TEXT}, {"b": TEXT}, ["field `spec.a` would be removed"]),
        (
            {"a": {"type": "array", "items": {"type": "object", "properties": {"x": TEXT}}}},
            {"a": {"type": "array", "items": {"type": "object", "properties": {}}}},
            ["field `spec.a[].x` would be removed"],
        ),
        (
            MANY,
            {},
            [*(f"field `spec.{name}` would be removed" for name in list(MANY)[:5]), "and 4 fields more"],
        ),
    ],
    ids=["the same", "a field", "in a list", "many are counted"],
)
def test_a_removed_field_is_a_loss(old: Obj, new: Obj, lost: list[str]) -> None:
    texts = tuple(f"version `v1`: {text}" for text in lost)
    assert losses(definition(version(**old)), definition(version(**new))) == texts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scope": "Cluster"}, "`scope` would change from Namespaced to Cluster"),
        ({"group": "other.com"}, "`group` would change from example.com to other.com"),
        (
            {"names": {"kind": "Gadget", "plural": "widgets"}},
            "`names.kind` would change from Widget to Gadget",
        ),
        ({"names": {"kind": "Widget", "plural": "wids"}}, "`names.plural` would change from widgets to wids"),
    ],
    ids=["scope", "group", "kind", "plural"],
)
def test_another_name_or_scope_is_a_loss(change: Obj, message: str) -> None:
    (loss,) = losses(definition(), definition(**change))
    assert loss.startswith(message)


def test_short_names_may_go() -> None:
    names = {"kind": "Widget", "plural": "widgets"}
    assert losses(definition(names={**names, "shortNames": ["w"]}), definition(names=names)) == ()


def test_a_removed_stored_version_is_a_loss_even_without_objects() -> None:
    live = definition(version("v1", storage=False), version("v2"), stored=("v1", "v2"))
    lost = (
        "version `v1` would be removed, and objects are stored in it; once all are written anew in another,"
        " take it from `status.storedVersions` of the definition",
    )
    assert losses(live, definition(version("v2")), has_objects=False) == lost
    assert losses(live, definition(version("v2"))) == lost


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (TEXT, {"type": "integer"}, "field `a` would be integer instead of string"),
        ({"type": "number"}, {"type": "integer"}, "field `a` would be integer instead of number"),
        ({**TEXT, "nullable": True}, TEXT, "field `a` would not be null any more"),
        ({**TEXT, "enum": ["x", "y"]}, {**TEXT, "enum": ["x"]}, "field `a` would not be `y` any more"),
        (TEXT, {**TEXT, "enum": ["x"]}, "field `a` would be one of `x` alone"),
        (TEXT, {**TEXT, "maxLength": 5}, "field `a` would have `maxLength` 5"),
        ({**TEXT, "minLength": 1}, {**TEXT, "minLength": 2}, "field `a` would have `minLength` 2, not 1"),
        (TEXT, {**TEXT, "pattern": "^x$"}, "field `a` would have to match `^x$`"),
        (
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            {"type": "object", "properties": {}},
            "field `a` would drop fields that the schema does not name",
        ),
        (
            {"type": "object", "additionalProperties": TEXT},
            {"type": "object", "additionalProperties": {"type": "integer"}},
            "field `a.*` would be integer instead of string",
        ),
        (
            {"type": "object", "properties": {"x": TEXT}},
            {"type": "object", "properties": {"x": TEXT}, "required": ["x"]},
            "field `a.x` would be required",
        ),
        ({"x-kubernetes-int-or-string": True}, TEXT, "field `a` would be string instead of int-or-string"),
    ],
)
def test_what_allows_less_is_said(old: Obj, new: Obj, text: str) -> None:
    assert list(narrowed(_around(old), _around(new))) == [text]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "integer"}, {"type": "number"}),
        (TEXT, {"x-kubernetes-int-or-string": True}),
        ({**TEXT, "enum": ["x"]}, {**TEXT, "enum": ["x", "y"]}),
        ({**TEXT, "enum": ["x"]}, TEXT),
        ({**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 6}),
        ({**TEXT, "pattern": "x"}, TEXT),
        (TEXT, {**TEXT, "nullable": True}),
        ({"type": "object", "properties": {"x": TEXT}}, {"x-kubernetes-preserve-unknown-fields": True}),
        (
            {"type": "object", "properties": {"x": TEXT}},
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
        ({"type": "object", "properties": {"x": TEXT}}, {"type": "object", "additionalProperties": TEXT}),
        (
            {"type": "object", "properties": {"x": TEXT}},
            {"type": "object", "properties": {"x": {**TEXT, "default": "y"}}, "required": ["x"]},
        ),
        (TEXT, {**TEXT, "description": "a text"}),
    ],
)
def test_what_allows_more_is_no_loss(old: Obj, new: Obj) -> None:
    assert list(narrowed(_around(old), _around(new))) == []


def _around(schema: Mapping[str, Any]) -> Obj:
    return {"type": "object", "properties": {"a": deepcopy(dict(schema))}}


RULE = {"rule": "self.size() > 2", "message": "too short"}


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (TEXT, {**TEXT, "x-kubernetes-validations": [RULE]}, "field `spec.a` has a new rule: too short"),
        (TEXT, {**TEXT, "x-kubernetes-validations": [{"rule": "self != ''"}]}, "has a new rule: self != ''"),
        (TEXT, {**TEXT, "format": "date-time"}, "field `spec.a` has another `format` `date-time`"),
        ({**TEXT, "pattern": "a"}, {**TEXT, "pattern": "b"}, "field `spec.a` has another `pattern` `b`"),
        (TEXT, {**TEXT, "anyOf": [{"minLength": 1}]}, "field `spec.a` has another `anyOf`"),
        (
            {"type": "array", "items": TEXT},
            {"type": "array", "items": {**TEXT, "format": "uri"}},
            "field `spec.a[]` has another `format` `uri`",
        ),
    ],
)
def test_what_nobody_can_compare_is_a_demand(old: Obj, new: Obj, text: str) -> None:
    before, after = definition(version(a=old)), definition(version(a=new))
    (demand,) = demands(before, after)
    assert demand.startswith("version `v1`: ") and text in demand
    assert losses(before, after) == ()
    assert demands(after, after) == ()


@pytest.mark.parametrize(
    "new",
    [
        {**TEXT, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        {**TEXT, "description": "new", "default": "x"},
    ],
)
def test_what_an_object_as_it_is_cannot_break_is_none(new: Obj) -> None:
    assert demands(definition(version(a=TEXT)), definition(version(a=new))) == ()


def test_a_wider_number_and_a_new_pattern_are_no_demands() -> None:
    number = {"type": "integer", "format": "int32"}
    wider = definition(version(a={**number, "format": "int64"}))
    assert demands(definition(version(a=number)), wider) == ()
    after = definition(version(a={**TEXT, "pattern": "b"}))
    assert demands(definition(version(a=TEXT)), after) == ()
    assert losses(definition(version(a=TEXT)), after)


# --- what does not go back to an earlier revision ---


def test_a_claim_stays_as_it_is_now_and_is_told() -> None:
    def claims(**size: str) -> DesiredState:
        pvcs = tuple(obj(name, kind="PersistentVolumeClaim", storage=value) for name, value in size.items())
        return DesiredState(app="demo", environment="gke", namespace="ml", objects=pvcs)

    mixed, notes = earlier_state(claims(data="1Gi", old="1Gi"), claims(data="5Gi", later="1Gi"))
    assert [claim.data["spec"]["storage"] for claim in mixed.objects] == ["5Gi", "1Gi"]
    assert notes == ("PersistentVolumeClaim ml/data stays as it is: a claim is not rolled back",)


def versions(*names: str, **fields: str) -> DesiredState:
    """Build a set of one definition."""
    manifest = crd(group="x.org")
    version = manifest["spec"]["versions"][0]
    manifest["spec"]["versions"] = [{**version, "name": name, "storage": name == names[0]} for name in names]
    obj = KubeObject(data={**manifest, "metadata": {**manifest["metadata"], **fields}}, component="a")
    return DesiredState(app="demo", environment="gke", namespace="ml", objects=(obj,))


def test_a_definition_that_would_lose_a_version_stays_as_it_is() -> None:
    today = versions("v1", "v2")
    mixed, notes = earlier_state(versions("v1"), today)
    assert mixed.objects == today.objects
    assert notes[0].startswith("CustomResourceDefinition widgets.x.org stays as it is: going back would lose")
