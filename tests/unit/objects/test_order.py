"""What comes after what, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mlstack.errors import ConfigError
from mlstack.objects import order
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.objects.order import DEPENDS_ON, Barrier, Graph, GraphNode

KINDS = [
    ("", "Namespace"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("", "ServiceAccount"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "Service"),
    ("apps", "Deployment"),
    ("kubeflow.org", "TFJob"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
]


def make(
    group: str,
    kind: str,
    name: str = "a",
    *,
    namespace: str = "ml",
    component: str = "c",
    after: str | None = None,
    **content: Any,
) -> KubeObject:
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if after is not None:
        metadata["annotations"] = {DEPENDS_ON: after}
    version = f"{group}/v1" if group else "v1"
    data = {"apiVersion": version, "kind": kind, "metadata": metadata, **content}
    return KubeObject(data=data, component=component)


def workload(name: str, pod: Mapping[str, Any] | None = None, **more: Any) -> KubeObject:
    container = {"name": "main", "image": "i", **more.pop("container", {})}
    spec = {"containers": [container], **(pod or {})}
    template = {"metadata": {"labels": more.pop("labels", {"app": name})}, "spec": spec}
    return make("apps", "Deployment", name, spec={"template": template}, **more)


def crd(kind: str = "Lamp", plural: str = "lamps", group: str = "ex.com") -> KubeObject:
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": kind, "plural": plural},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    }
    return make(
        "apiextensions.k8s.io", "CustomResourceDefinition", f"{plural}.{group}", namespace="", spec=spec
    )


def webhook(service: str = "hook", *, policy: str = "Fail", resources: str = "lamps") -> KubeObject:
    entry = {
        "name": "a.ex.com",
        "failurePolicy": policy,
        "clientConfig": {"service": {"namespace": "ml", "name": service}},
        "rules": [
            {"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resources]}
        ],
    }
    return make(
        "admissionregistration.k8s.io", "MutatingWebhookConfiguration", "hook", namespace="", webhooks=[entry]
    )


def comes_before(graph: Graph, first: KubeObject, other: KubeObject) -> set[str]:
    """Give the bonds along which something is reached from what comes after it, gates passed through."""
    reached: set[str] = set()
    rest: list[tuple[GraphNode, frozenset[str]]] = [(other.identity, frozenset())]
    while rest:
        node, bonds = rest.pop()
        for before, bond in graph.before[node].items():
            if before == first.identity:
                reached |= {*bonds, bond}
            elif isinstance(before, Barrier):
                rest.append((before, bonds | {bond}))
    return reached


def needs(needed: KubeObject, other: KubeObject, *others: KubeObject) -> bool:
    return "needs" in comes_before(order.graph([other, *others, needed]), needed, other)


RBAC = "rbac.authorization.k8s.io"


# --- by default -----------------------------------------------------------------------------------


def test_kinds_follow_what_they_need() -> None:
    backwards = [make(*kind) for kind in reversed(KINDS)]
    ranks = [order.rank(obj.identity) for obj in order.ordered(backwards)]
    assert ranks == [order.RANK.get(kind, 10) for kind in KINDS]


def test_roles_come_before_their_bindings_and_equal_ranks_keep_their_order() -> None:
    binding, role = make(RBAC, "RoleBinding"), make(RBAC, "Role")
    assert order.ordered([binding, role]) == (role, binding)
    settings = [make("", "ConfigMap", name) for name in ("c", "a", "b", "b")]
    assert order.ordered(settings) == tuple(settings)
    assert list(order.RANKS)[order.rank(Identity("x.org", "Thing", "", "a"))] == "custom resources"


def test_waves_bind_inside_a_namespace_and_a_component_alone() -> None:
    settings = make("", "ConfigMap", namespace="one", component="a")
    near = make("apps", "Deployment", namespace="one", component="b")
    own = make("apps", "Deployment", namespace="two", component="a")
    far = make("apps", "Deployment", "far", namespace="two", component="b")
    graph = order.graph([settings, near, own, far])
    assert comes_before(graph, settings, near) == {"wave"}
    assert comes_before(graph, settings, own) == {"wave"}
    assert comes_before(graph, settings, far) == set()


def test_nothing_waits_for_a_webhook_by_default() -> None:
    hook, lamp = webhook(resources="others"), make("ex.com", "Lamp")
    graph = order.graph([hook, crd(), lamp])
    assert comes_before(graph, hook, lamp) == set()
    assert comes_before(graph, lamp, hook) == {"wave"}


# --- what content needs ---------------------------------------------------------------------------


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def main(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "i", **fields}]}


@pytest.mark.parametrize(
    ("group", "kind", "namespace", "pod"),
    [
        ("", "ConfigMap", "ml", volume(configMap={"name": "x"})),
        ("", "Secret", "ml", volume(secret={"secretName": "x"})),
        ("", "Secret", "ml", volume(projected={"sources": [{"secret": {"name": "x"}}]})),
        ("", "PersistentVolumeClaim", "ml", volume(persistentVolumeClaim={"claimName": "x"})),
        ("", "ServiceAccount", "ml", {"serviceAccountName": "x"}),
        ("", "Secret", "ml", {"imagePullSecrets": [{"name": "x"}]}),
        ("scheduling.k8s.io", "PriorityClass", "", {"priorityClassName": "x"}),
        ("", "ConfigMap", "ml", main(envFrom=[{"configMapRef": {"name": "x"}}])),
        (
            "",
            "Secret",
            "ml",
            main(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}}]),
        ),
    ],
    ids=["volume", "secret", "projected", "claim", "account", "pull secret", "priority", "all", "variable"],
)
def test_a_workload_or_job_needs_what_its_pods_name(
    group: str, kind: str, namespace: str, pod: Mapping[str, Any]
) -> None:
    needed, web = make(group, kind, "x", namespace=namespace), workload("web", pod)
    other = workload("other", component="d")
    template = {"template": {"spec": {"containers": [{"name": "tensorflow"}], **pod}}}
    job = make("kubeflow.org", "TFJob", spec={"tfReplicaSpecs": {"Worker": template}})
    assert needs(needed, web, other)
    assert needs(needed, job)
    assert not needs(needed, other, web)


def test_a_binding_needs_its_role_and_accounts() -> None:
    role = make(RBAC, "ClusterRole", "x", namespace="")
    account = make("", "ServiceAccount", "x", namespace="other")
    subjects = [{"kind": "ServiceAccount", "name": "x", "namespace": "other"}]
    binding = make(RBAC, "RoleBinding", roleRef={"kind": "ClusterRole", "name": "x"}, subjects=subjects)
    assert needs(role, binding)
    assert needs(account, binding)


def test_a_claim_needs_its_class_and_an_autoscaler_its_target() -> None:
    claim = make("", "PersistentVolumeClaim", spec={"storageClassName": "x"})
    assert needs(make("storage.k8s.io", "StorageClass", "x", namespace=""), claim)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    assert needs(
        workload("web"), make("autoscaling", "HorizontalPodAutoscaler", spec={"scaleTargetRef": target})
    )


def test_a_custom_resource_needs_exactly_its_definition() -> None:
    lamps, fans = crd(), crd("Fan", "fans")
    lamp = make("ex.com", "Lamp", component="other")
    graph = order.graph([lamp, lamps, fans])
    assert comes_before(graph, lamps, lamp) == {"needs"}
    assert comes_before(graph, fans, lamp) == set()


def test_an_object_needs_its_own_namespace_alone() -> None:
    mine, other = (make("", "Namespace", name, namespace="") for name in ("ml", "other"))
    settings = make("", "ConfigMap", component="d")
    graph = order.graph([settings, mine, other])
    assert "needs" in comes_before(graph, mine, settings)
    assert comes_before(graph, other, settings) == set()


# --- webhooks -------------------------------------------------------------------------------------


def test_a_webhook_needs_its_service_and_the_pods_behind_it() -> None:
    service = make("", "Service", "hook", spec={"selector": {"app": "hook"}})
    server, other = workload("hook"), workload("other", component="d")
    hook = webhook()
    graph = order.graph([hook, service, server, other])
    assert "needs" in comes_before(graph, service, hook)
    assert "needs" in comes_before(graph, server, hook)
    assert "needs" not in comes_before(graph, other, hook)
    assert Barrier("endpoint", str(service.identity), service.identity) in graph.nodes


def test_a_webhook_whose_failure_is_ignored_needs_nothing() -> None:
    hook, service = webhook(policy="Ignore"), make("", "Service", "hook", component="d")
    assert comes_before(order.graph([hook, service]), service, hook) == {"wave"}


def test_a_webhook_comes_after_the_objects_of_every_component_and_namespace() -> None:
    hook = webhook()
    far = make("", "ConfigMap", namespace="far", component="d")
    late = make("", "ConfigMap", "late", component="e", after="ex.com/namespaces/ml/Lamp/a")
    graph = order.graph([hook, far, make("ex.com", "Lamp"), crd(), late])
    assert comes_before(graph, far, hook) == {"wave"}
    assert comes_before(graph, late, hook) == set()  # it may itself come after the webhook


def test_custom_resources_that_a_webhook_sees_come_after_it() -> None:
    hook, lamp = webhook(), make("ex.com", "Lamp")
    assert "needs" in comes_before(order.graph([lamp, hook, crd()]), hook, lamp)


def test_what_a_webhook_needs_itself_never_waits_for_it() -> None:
    service = make("", "Service", "hook", spec={"selector": {"app": "hook"}})
    pod = {"volumes": [{"name": "v", "configMap": {"name": "x"}}]}
    parts = [webhook(resources="*"), service, workload("hook", pod), make("", "ConfigMap", "x")]
    assert order.ordered(parts)[-1].kind == "MutatingWebhookConfiguration"


# --- what people say ------------------------------------------------------------------------------


def test_an_annotation_orders_objects_against_their_ranks() -> None:
    settings = make("", "ConfigMap", after="apps/namespaces/ml/Deployment/web")
    for pod in ({}, main(envFrom=[{"configMapRef": {"name": "a"}}])):  # even against what content needs
        web = workload("web", pod)
        graph = order.graph([settings, web])
        assert graph.objects == (web.identity, settings.identity)
        assert comes_before(graph, web, settings) == {"user"}
        assert comes_before(graph, settings, web) == set()


def test_nothing_comes_later_only_because_something_waits_for_a_person_s_word() -> None:
    web, settings = workload("web"), make("", "ConfigMap", after="apps/Deployment/web")
    scaler = make("ex.com", "Thing")
    graph = order.graph([settings, web, scaler])
    assert comes_before(graph, settings, scaler) == set()
    assert comes_before(graph, web, scaler) == {"wave"}


def test_an_annotation_without_namespace_means_the_own_one_or_none() -> None:
    near, far = make("", "Secret", "x"), make("", "Secret", "x", namespace="other")
    cluster_wide = make("scheduling.k8s.io", "PriorityClass", "high", namespace="")
    settings = make("", "ConfigMap", after="/Secret/x, scheduling.k8s.io/PriorityClass/high")
    graph = order.graph([settings, near, far, cluster_wide])
    assert comes_before(graph, near, settings) == {"user"}
    assert comes_before(graph, cluster_wide, settings) == {"user", "wave"}
    assert comes_before(graph, far, settings) == set()


@pytest.mark.parametrize("text", ["", "web", "apps/Deployment", "apps/ns/ml/Deployment/web", "a/b/c, "])
def test_an_annotation_that_names_nothing_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match=r"`ConfigMap ml/a`: annotation .* names no object"):
        order.graph([make("", "ConfigMap", after=text)])


def test_a_circle_is_named_also_through_a_component() -> None:
    circle = [make("", "ConfigMap", name, after=f"/ConfigMap/{after}") for name, after in ("ab", "bc", "ca")]
    with pytest.raises(ConfigError) as caught:
        order.graph(circle)
    assert caught.value.message == (
        "objects depend on each other in a circle: "
        "`ConfigMap ml/a` → `ConfigMap ml/b` → `ConfigMap ml/c` → `ConfigMap ml/a`"
    )
    with pytest.raises(ConfigError, match="depends on itself"):
        order.graph([make("", "ConfigMap", "a", after="/namespaces/ml/ConfigMap/a")])
    core, jobs = (make("", "ConfigMap", name, component=name) for name in ("core", "jobs"))
    late = make("", "ConfigMap", "late", component="core", after="/ConfigMap/jobs")
    with pytest.raises(ConfigError, match="`ConfigMap ml/jobs` → component `core` → `ConfigMap ml/late`"):
        order.graph([core, jobs, late], {"jobs": ["core"]})


def test_a_component_comes_after_all_of_the_one_it_depends_on() -> None:
    core = [workload("web", component="core"), make("ex.com", "Thing", component="core", namespace="far")]
    job = make("", "ConfigMap", component="jobs")
    graph = order.graph([job, *core], {"jobs": ["core"]})
    assert graph.objects == (core[0].identity, core[1].identity, job.identity)
    assert all("user" in comes_before(graph, obj, job) for obj in core)


def test_a_component_that_comes_later_keeps_its_own_waves() -> None:
    parts = [make(*kind, component="jobs", namespace="far") for kind in reversed(KINDS[2:])]
    first, *later = order.ordered([*parts, workload("web", component="core")], {"jobs": ["core"]})
    assert first.name == "web"
    assert [order.rank(obj.identity) for obj in later] == sorted(order.rank(obj.identity) for obj in parts)


# --- the other way --------------------------------------------------------------------------------


def test_deletion_goes_the_other_way_and_takes_no_offence_at_what_people_wrote() -> None:
    objects = [make("", "Service"), make("apps", "Deployment", "a"), make("apps", "Deployment", "b")]
    names = [identity.name + identity.kind for identity in order.last_first(objects)]
    assert names == ["bDeployment", "aDeployment", "aService"]
    odd = (("a", "?"), ("b", "/ConfigMap/c"), ("c", "/ConfigMap/b"))
    assert len(order.last_first([make("", "ConfigMap", name, after=after) for name, after in odd])) == 3


# --- hooks of charts ---


def hook(
    kind: str, name: str, events: str, weight: str = "0", group: str = "batch", **more: Any
) -> KubeObject:
    obj = make(group, kind, name, **more)
    annotations = {"helm.sh/hook": events, "helm.sh/hook-weight": weight}
    return KubeObject(
        data={**obj.data, "metadata": {**obj.data["metadata"], "annotations": annotations}},
        component=obj.component,
    )


def test_hooks_come_by_weight_before_and_after_their_component() -> None:
    objects = [
        workload("web"),
        make("", "ConfigMap", "settings"),
        hook("Job", "report", "post-install,post-upgrade"),
        hook("Job", "migrate", "pre-install", "5"),
        hook("Job", "check", "pre-install", "-5"),
        hook("ServiceAccount", "checker", "pre-install", "-5", group=""),
        make("", "Namespace", "ml", namespace=""),
    ]
    names = [obj.name for obj in order.ordered(objects)]
    assert names == ["ml", "checker", "check", "migrate", "settings", "web", "report"]
    plan = order.graph(objects)
    waits = [node for node in plan.nodes if isinstance(node, Barrier) and node.kind == "ready"]
    assert [str(node) for node in waits] == [
        "`ServiceAccount ml/checker`",
        "`Job ml/check`",
        "`Job ml/migrate`",
        "`c without its hooks`",
    ]


def test_what_a_hook_needs_comes_before_it() -> None:
    migrate = hook("Job", "migrate", "pre-install")
    pod = {"containers": [{"name": "m", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}
    migrate = KubeObject(data={**migrate.data, "spec": {"template": {"spec": pod}}}, component="c")
    objects = [workload("web"), migrate, make("", "ConfigMap", "settings"), make("", "ConfigMap", "other")]
    names = [obj.name for obj in order.ordered(objects)]
    assert names == ["settings", "migrate", "other", "web"]


@pytest.mark.parametrize("events", ["test", "pre-delete", "pre-upgrade", "post-rollback"])
def test_events_that_an_apply_does_not_have_order_nothing(events: str) -> None:
    objects = [hook("Job", "clean", events), workload("web")]
    assert not [node for node in order.graph(objects).nodes if isinstance(node, Barrier)]


def test_components_after_one_with_hooks_keep_their_waves() -> None:
    objects = [
        workload("api", component="b"),
        make("", "ConfigMap", "api", component="b"),
        workload("web", component="a"),
        hook("Job", "migrate", "pre-install", component="a"),
    ]
    names = [(obj.kind, obj.name) for obj in order.ordered(objects, {"b": ("a",)})]
    assert names == [("Job", "migrate"), ("Deployment", "web"), ("ConfigMap", "api"), ("Deployment", "api")]
