"""Objects that cannot change in place, and objects of others."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.deploy.changes import Refusal
from mlstack.deploy.inventory import MEMBER_LABEL
from mlstack.deploy.replacement import RECREATE, judge, other_owner, says_fixed, sentence, unless_refused
from mlstack.errors import Cause, ConfigError, ForbiddenError, InvalidError, MlstackError
from mlstack.kube.client import ObjectRef
from mlstack.objects.kube_object import KubeObject, marks
from mlstack.objects.managed_fields import FieldChange
from mlstack.testing.cluster import MemoryCluster
from mlstack.testing.controllers import Simulation
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock, outcomes


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
    said = judge(an_object("batch/v1", "Job"), "gke", fixed="`spec.template` cannot change", why=None)
    assert isinstance(said, str) and said.endswith("Kubernetes does not change the pods of a Job.")
    assert judge(an_object("kubeflow.org/v1", "TFJob"), "gke", fixed="x", why="because") == "because"


@pytest.mark.parametrize(
    ("api_version", "kind", "said"),
    [
        ("v1", "PersistentVolumeClaim", "its data would be lost"),
        ("v1", "PersistentVolume", "its data would be lost"),
        ("v1", "Namespace", "everything in it would be lost"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "every object of its kind would be lost"),
    ],
)
@pytest.mark.parametrize("annotation", ["true", None])
def test_what_would_lose_data_is_never_made_anew(
    api_version: str, kind: str, said: str, annotation: str | None
) -> None:
    assert said in refusal_of(an_object(api_version, kind, annotation)).hint


@pytest.mark.parametrize("said", ["yes", "True", "false"])
def test_an_annotation_that_says_neither_is_refused(said: str) -> None:
    with pytest.raises(ConfigError, match=f'must be "true" or "never", got "{said}"'):
        judge(an_object(*DEPLOYMENT, said), "gke", fixed=FIXED, why=None)


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
    assert says_fixed([Cause(field="spec", message=message)])


def test_a_fault_beside_a_fixed_field_is_a_fault() -> None:
    fixed, fault = Cause(field="a", message="field is immutable"), Cause(field="b", message="Required value")
    assert not says_fixed([fixed, fault])
    assert not says_fixed([])


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


def test_the_field_the_server_names_is_named() -> None:
    causes = [Cause(field="spec.selector", message="field is immutable")]
    assert sentence(an_object(*DEPLOYMENT), causes, [differing("spec.selector.matchLabels.app")]) == FIXED


def test_the_words_of_a_rule_of_the_definition_are_told() -> None:
    causes = [Cause(field="spec.mode", message="mode is chosen once: Invalid value: SECRET")]
    said = sentence(an_object("example.com/v1", "Widget"), causes, [])
    assert said == "`spec.mode` cannot change while the object exists (mode is chosen once)"


def test_a_stateful_set_names_the_fields_that_are_meant() -> None:
    causes = [
        Cause(field="spec", message="updates to statefulset spec for fields other than .. are forbidden")
    ]
    paths = ["metadata.labels.x", "spec.template.spec.containers[main].image", "spec.serviceName"]
    said = sentence(an_object("apps/v1", "StatefulSet"), causes, [differing(path) for path in paths])
    assert said == "`spec.serviceName` cannot change while the object exists"


def test_many_fields_are_counted() -> None:
    causes = [Cause(field="spec", message="spec is immutable after creation")]
    claim = an_object("v1", "PersistentVolumeClaim")
    said = sentence(claim, causes, [differing(f"spec.f{number}") for number in range(5)])
    assert said.startswith("`spec.f0`, `spec.f1`, `spec.f2` and 2 more cannot change")


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
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": size}},
                    },
                }
            ],
        },
    }


def pod_uid(cluster: MemoryCluster) -> str | None:
    found = cluster.get(ObjectRef("v1", "Pod", "ml", "db-0"))
    return str(found["metadata"]["uid"]) if found else None


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
    claims = [one["metadata"]["uid"] for one in cluster.list("v1", "PersistentVolumeClaim").items]
    stack.write("db", stateful_set(**changed))
    stack.apply()
    assert pod_uid(cluster) is None
    assert [one["metadata"]["uid"] for one in cluster.list("v1", "PersistentVolumeClaim").items] == claims
