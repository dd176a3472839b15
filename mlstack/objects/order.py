"""What comes after what in a run: objects, gates between them, and the bonds that hold them in order.

A bond is one of three. `user`: an annotation or a component's `dependsOn`; what comes after waits until what
comes before works. `needs`: an object's content names the other, so it makes no sense without it. `wave`: a
default by kind, which gives way to the other two. A failure takes along what is bound by the first two.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from mlstack.errors import ConfigError
from mlstack.objects.kinds import Kind, Kinds, kinds_of_crd
from mlstack.objects.kube_object import Identity, KubeObject, group_of

# --- What comes after what in a run: objects, gates between them, and the bonds that hold them in
# order
# A bond is one of three. `user`: an annotation or a component's `dependsOn`; what comes after waits until
# what comes before works. `needs`: an object's content names the other, so it makes no sense without it.
# `wave`: a default by kind, which gives way to the other two. A failure takes along what is bound by the
# first two.

Bond = Literal["user", "needs", "wave"]
Depends = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Barrier:
    """A point that a run passes once other objects have come so far; nothing is written there."""

    # `ready`, `component` (all `members` work), `endpoint` (the Service behind a webhook answers) or `wave`
    # (its predecessors were written)
    kind: Literal["ready", "component", "endpoint", "wave"]
    name: str  # what people call it
    about: Identity | None = None  # the one object it waits for, where it is one
    members: tuple[Identity, ...] = field(default=(), compare=False)  # all objects it waits for

    def __str__(self) -> str:
        """Name it for people."""
        return f"component `{self.name}`" if self.kind == "component" else f"`{self.name}`"


Node = Identity | Barrier


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What comes after what."""

    nodes: tuple[Node, ...]  # objects and gates, each after what it depends on
    before: Mapping[Node, Mapping[Node, Bond]]  # what each node depends on, and how

    @property
    def objects(self) -> tuple[Identity, ...]:
        """Give the objects alone, in their order."""
        return tuple(node for node in self.nodes if isinstance(node, Identity))

    def reversed(self) -> Graph:
        """Give the graph of taking away: what depends on something goes before it."""
        turned: dict[Node, dict[Node, Bond]] = {node: {} for node in reversed(self.nodes)}
        for node, needed in self.before.items():
            for one, bond in needed.items():
                turned[one][node] = bond
        return Graph(nodes=tuple(turned), before=turned)


# --- Directed graphs of anything: a cycle in them, and an order in which nothing comes before what
# it needs

N = TypeVar("N", bound=Hashable)


def find_cycle(nodes: Sequence[N], before: Mapping[N, Collection[N]]) -> tuple[N, ...]:
    """Give nodes that need each other in a circle, each the next one and the last the first."""
    done: set[N] = set()
    for start in nodes:
        if start in done:
            continue
        path: dict[N, Iterator[N]] = {start: iter(before.get(start, ()))}
        while path:
            node = next(reversed(path))
            step = next(path[node], None)
            if step is None:
                done.add(node)
                del path[node]
            elif step in path:
                way = list(path)
                return tuple(way[way.index(step) :])
            elif step not in done:
                path[step] = iter(before.get(step, ()))
    return ()


def sort(nodes: Sequence[N], before: Mapping[N, Collection[N]], priority: Callable[[N], Any]) -> list[N]:
    """Give the nodes so that each comes after what it needs; of several that could come, the smallest.

    Args:
        nodes: all nodes; equal priorities keep this order.
        before: what each node needs.
        priority: what decides between nodes that nothing else decides about.

    Raises:
        ValueError: some nodes need each other in a circle.
    """
    numbers = {node: number for number, node in enumerate(nodes)}
    open_needs = {node: len(before.get(node, ())) for node in nodes}
    behind: dict[N, list[N]] = {node: [] for node in nodes}
    for node in nodes:
        for needed in before.get(node, ()):
            behind[needed].append(node)
    heap = [(priority(node), numbers[node], node) for node in nodes if not open_needs[node]]
    heapq.heapify(heap)
    found: list[N] = []
    while heap:
        _, _, node = heapq.heappop(heap)
        found.append(node)
        for after in behind[node]:
            open_needs[after] -= 1
            if not open_needs[after]:
                heapq.heappush(heap, (priority(after), numbers[after], after))
    if len(found) < len(nodes):
        raise ValueError("nodes need each other in a circle")
    return found


# --- Which kinds are written before which others when nothing else says so ---

_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

# Each rank needs only what stands above it. Bindings come after roles, because the API server looks
# the role up when it checks that nobody grants more than they hold. Webhooks come last: from then on
# the API server refuses what they do not answer for.
RANKS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("namespaces", (("", "Namespace"),)),
    ("definitions", (("apiextensions.k8s.io", "CustomResourceDefinition"),)),
    (
        "policies",
        (
            ("scheduling.k8s.io", "PriorityClass"),
            ("node.k8s.io", "RuntimeClass"),
            ("networking.k8s.io", "IngressClass"),
            ("networking.k8s.io", "NetworkPolicy"),
            ("", "ResourceQuota"),
            ("", "LimitRange"),
        ),
    ),
    ("access", (("", "ServiceAccount"), (_RBAC, "ClusterRole"), (_RBAC, "Role"))),
    ("bindings", ((_RBAC, "ClusterRoleBinding"), (_RBAC, "RoleBinding"))),
    ("configuration", (("", "ConfigMap"), ("", "Secret"))),
    (
        "storage",
        (("storage.k8s.io", "StorageClass"), ("", "PersistentVolume"), ("", "PersistentVolumeClaim")),
    ),
    (
        "services",
        (
            ("", "Service"),
            ("", "Endpoints"),
            ("discovery.k8s.io", "EndpointSlice"),
            ("policy", "PodDisruptionBudget"),
        ),
    ),
    (
        "workloads",
        (
            ("apps", "DaemonSet"),
            ("apps", "Deployment"),
            ("apps", "ReplicaSet"),
            ("apps", "StatefulSet"),
            ("", "ReplicationController"),
            ("", "Pod"),
            ("batch", "Job"),
            ("batch", "CronJob"),
        ),
    ),
    (
        "traffic",
        (
            ("autoscaling", "HorizontalPodAutoscaler"),
            ("networking.k8s.io", "Ingress"),
            ("apiregistration.k8s.io", "APIService"),
        ),
    ),
    ("custom resources", ()),
    (
        "webhooks",
        (
            (_ADMISSION, "MutatingWebhookConfiguration"),
            (_ADMISSION, "ValidatingWebhookConfiguration"),
            (_ADMISSION, "ValidatingAdmissionPolicy"),
            (_ADMISSION, "ValidatingAdmissionPolicyBinding"),
        ),
    ),
)

RANK = {kind: rank for rank, (_, kinds) in enumerate(RANKS) for kind in kinds}
COUNT = len(RANKS)
FIRST = ("namespaces", "definitions")
WEBHOOKS = COUNT - 1
_OTHERS = next(number for number, (_, kinds) in enumerate(RANKS) if not kinds)


def rank(identity: Identity) -> int:
    """Give the number of the rank an object belongs to; kinds nobody lists are custom resources."""
    return RANK.get((identity.group, identity.kind), _OTHERS)


def is_first(identity: Identity) -> bool:
    """Tell whether an object is a namespace or a definition: what everything else may need."""
    return rank(identity) < len(FIRST)


def is_webhook(identity: Identity) -> bool:
    """Tell whether an object makes the API server ask somebody else before it writes."""
    return identity.group == _ADMISSION and identity.kind.endswith("WebhookConfiguration")


# --- What a person says about order: the annotation `config.kubernetes.io/depends-on`, and
# `dependsOn`

DEPENDS_ON = "config.kubernetes.io/depends-on"
"""Annotation of cli-utils: `group/kind/name` or `group/namespaces/NS/kind/name`, separated by commas."""

_FORM = (
    "write `group/namespaces/NAMESPACE/Kind/name` or `group/Kind/name`; the core group is empty: `/Kind/name`"
)


def wanted(found: KubeObject) -> tuple[Identity, ...]:
    """Give what the annotation of an object names, as it is written.

    Raises:
        ConfigError: it does not read as a list of objects, or names the object itself.
    """
    text = found.annotations.get(DEPENDS_ON)
    if text is None:
        return ()
    names = tuple(dict.fromkeys(_identity(part.strip(), found) for part in str(text).split(",")))
    if found.identity in names:
        raise ConfigError(f"`{found.identity}` says that it depends on itself", where=_place(found))
    return names


def _identity(text: str, found: KubeObject) -> Identity:
    parts = text.split("/")
    if len(parts) == 3 and all(parts[1:]):
        return Identity(parts[0], parts[1], "", parts[2])
    if len(parts) == 5 and parts[1] == "namespaces" and all(parts[2:]):
        return Identity(parts[0], parts[3], parts[2], parts[4])
    raise ConfigError(
        f"`{found.identity}`: annotation `{DEPENDS_ON}` names no object: `{text}`",
        where=_place(found),
        hint=_FORM,
    )


def resolved(target: Identity, found: KubeObject, known: Mapping[Identity, object]) -> Identity:
    """Give the object that an annotation means.

    A name without a namespace means a cluster-scoped object, or else one of the object's own namespace: so
    the same annotation does in every environment.
    """
    here = Identity(target.group, target.kind, found.namespace, target.name)
    return here if not target.namespace and target not in known and here in known else target


def outside(objects: Iterable[KubeObject]) -> tuple[tuple[KubeObject, Identity], ...]:
    """Give the objects that depend on something which none of them is, and on what.

    Raises:
        ConfigError: an annotation cannot be read.
    """
    listed = tuple(objects)
    known = {found.identity: found for found in listed}
    pairs = ((found, resolved(one, found, known)) for found in listed for one in wanted(found))
    return tuple((found, target) for found, target in pairs if target not in known)


def closure(direct: Mapping[str, Sequence[str]], files: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Give all components that each component depends on, through others as well.

    Args:
        direct: what each component names itself; those that name nothing may be left out.
        files: the component's files, for messages.

    Raises:
        ConfigError: components depend on each other in a circle.
    """
    circle = find_cycle(sorted(direct), direct)
    if circle:
        way = " → ".join(f"`{name}`" for name in (*circle, circle[0]))
        raise ConfigError(
            f"components depend on each other in a circle: {way}",
            where=files.get(circle[0]),
            hint="take one of them out of `dependsOn`",
        )
    return {name: tuple(sorted(_reached(name, direct))) for name in direct if direct[name]}


def _reached(name: str, direct: Mapping[str, Sequence[str]]) -> set[str]:
    found: set[str] = set()
    rest = list(direct.get(name, ()))
    while rest:
        one = rest.pop()
        if one not in found:
            found.add(one)
            rest += direct.get(one, ())
    return found


def _place(found: KubeObject) -> str:
    return found.source.at(("metadata", "annotations", DEPENDS_ON)) if found.source else found.component


# --- Webhook configurations: which Services must answer, and for which objects the API server asks
# them

Data = Mapping[str, Any]
_WRITES = {"*", "CREATE", "UPDATE"}


def services(found: KubeObject) -> tuple[Identity, ...]:
    """Give the Services without which the API server refuses what a webhook configuration asks for.

    Webhooks that are named by address, and those whose failure is ignored, need none.
    """
    named = [_service(webhook) for webhook in _strict(found)]
    return tuple(dict.fromkeys(one for one in named if one is not None))


def intercepts(found: KubeObject, other: KubeObject, kinds: Kinds) -> bool:
    """Tell whether the API server asks a webhook before it writes a custom resource.

    Objects of built-in kinds are left out on purpose: what a webhook itself needs in order to start is
    made of them.
    """
    if is_webhook(other.identity) or Kinds.builtin().lookup(other.api_version, other.kind):
        return False
    kind = kinds.lookup(other.api_version, other.kind)
    if kind is None:
        return False
    webhooks = [webhook for webhook in _strict(found) if _labels_match(webhook, other)]
    return any(_rule_matches(rule, kind) for webhook in webhooks for rule in _maps(webhook.get("rules")))


def _strict(found: KubeObject) -> Iterator[Data]:
    webhooks = _maps(found.data.get("webhooks")) if is_webhook(found.identity) else ()
    yield from (webhook for webhook in webhooks if webhook.get("failurePolicy", "Fail") == "Fail")


def _service(webhook: Data) -> Identity | None:
    config = webhook.get("clientConfig")
    service = config.get("service") if isinstance(config, Mapping) else None
    if not isinstance(service, Mapping):
        return None
    return Identity("", "Service", str(service.get("namespace")), str(service.get("name")))


def _labels_match(webhook: Data, other: KubeObject) -> bool:
    selector = webhook.get("objectSelector")
    wanted = (selector.get("matchLabels") if isinstance(selector, Mapping) else None) or {}
    return all(other.labels.get(key) == value for key, value in wanted.items())


def _rule_matches(rule: Data, kind: Kind) -> bool:
    resources = {str(one).partition("/")[0] for one in rule.get("resources") or () if "/" not in str(one)}
    return bool(
        _WRITES & set(rule.get("operations") or ())
        and {"*", kind.group} & set(rule.get("apiGroups") or ())
        and {"*", kind.plural} & resources
    )


def _maps(found: Any) -> Iterator[Data]:
    yield from (one for one in (found if isinstance(found, list) else ()) if isinstance(one, Mapping))


# --- Which other objects an object names in its content: what must be there before it can work ---


def references(found: KubeObject) -> Iterator[Identity]:
    """Give what an object names, whether or not it exists."""
    namespace = found.namespace
    if namespace:
        yield Identity("", "Namespace", "", namespace)
    reader = _READERS.get((found.group, found.kind))
    if reader is not None:
        yield from reader(found.data, namespace)
    for spec in pod_specs(found.data):
        yield from _of_pod(spec, namespace)


def pod_specs(content: Any) -> Iterator[Data]:
    """Give every part of an object that says how a pod is made: workloads and training jobs alike."""
    if isinstance(content, Mapping):
        containers = content.get("containers")
        if isinstance(containers, list) and containers and isinstance(containers[0], Mapping):
            yield content
        else:
            for part in content.values():
                yield from pod_specs(part)
    elif isinstance(content, list):
        for part in content:
            yield from pod_specs(part)


def pod_labels(content: Any) -> Iterator[Mapping[str, str]]:
    """Give the labels of every pod an object makes."""
    if isinstance(content, Mapping):
        spec, metadata = content.get("spec"), content.get("metadata")
        if isinstance(spec, Mapping) and isinstance(metadata, Mapping) and spec.get("containers"):
            yield metadata.get("labels") or {}
        else:
            for part in content.values():
                yield from pod_labels(part)
    elif isinstance(content, list):
        for part in content:
            yield from pod_labels(part)


def _of_pod(spec: Data, namespace: str) -> Iterator[Identity]:
    if spec.get("serviceAccountName"):
        yield Identity("", "ServiceAccount", namespace, str(spec["serviceAccountName"]))
    if spec.get("priorityClassName"):
        yield Identity("scheduling.k8s.io", "PriorityClass", "", str(spec["priorityClassName"]))
    if spec.get("runtimeClassName"):
        yield Identity("node.k8s.io", "RuntimeClass", "", str(spec["runtimeClassName"]))
    for one in _dicts(spec, "imagePullSecrets"):
        yield Identity("", "Secret", namespace, str(one.get("name")))
    for volume in _dicts(spec, "volumes"):
        yield from _of_volume(volume, namespace)
        for source in _dicts(_map(volume, "projected"), "sources"):
            yield from _of_volume(source, namespace)
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for container in _dicts(spec, part):
            yield from _of_container(container, namespace)


def _of_volume(volume: Data, namespace: str) -> Iterator[Identity]:
    named = (
        ("ConfigMap", _map(volume, "configMap").get("name")),
        ("Secret", _map(volume, "secret").get("secretName") or _map(volume, "secret").get("name")),
        ("PersistentVolumeClaim", _map(volume, "persistentVolumeClaim").get("claimName")),
    )
    yield from (Identity("", kind, namespace, str(name)) for kind, name in named if name)


def _of_container(container: Data, namespace: str) -> Iterator[Identity]:
    for source in _dicts(container, "envFrom"):
        yield from _named(source, namespace, configMapRef="ConfigMap", secretRef="Secret")
    for variable in _dicts(container, "env"):
        found = _map(variable, "valueFrom")
        yield from _named(found, namespace, configMapKeyRef="ConfigMap", secretKeyRef="Secret")


def _named(source: Data, namespace: str, **kinds: str) -> Iterator[Identity]:
    for key, kind in kinds.items():
        name = _map(source, key).get("name")
        if name:
            yield Identity("", kind, namespace, str(name))


def _of_binding(data: Data, namespace: str) -> Iterator[Identity]:
    role = _map(data, "roleRef")
    kind = str(role.get("kind"))
    yield Identity(_RBAC, kind, namespace if kind == "Role" else "", str(role.get("name")))
    for subject in _dicts(data, "subjects"):
        if subject.get("kind") == "ServiceAccount":
            where = str(subject.get("namespace") or namespace)
            yield Identity("", "ServiceAccount", where, str(subject.get("name")))


def _of_claim(data: Data, namespace: str) -> Iterator[Identity]:
    spec = _map(data, "spec")
    if spec.get("storageClassName"):
        yield Identity("storage.k8s.io", "StorageClass", "", str(spec["storageClassName"]))
    if spec.get("volumeName"):
        yield Identity("", "PersistentVolume", "", str(spec["volumeName"]))


def _of_stateful_set(data: Data, namespace: str) -> Iterator[Identity]:
    spec = _map(data, "spec")
    if spec.get("serviceName"):
        yield Identity("", "Service", namespace, str(spec["serviceName"]))
    for template in _dicts(spec, "volumeClaimTemplates"):
        yield from _of_claim(template, namespace)


def _of_autoscaler(data: Data, namespace: str) -> Iterator[Identity]:
    target = _map(_map(data, "spec"), "scaleTargetRef")
    group = group_of(str(target.get("apiVersion") or ""))
    yield Identity(group, str(target.get("kind")), namespace, str(target.get("name")))


def _of_ingress(data: Data, namespace: str) -> Iterator[Identity]:
    name = _map(data, "spec").get("ingressClassName")
    if name:
        yield Identity("networking.k8s.io", "IngressClass", "", str(name))


def _of_secret(data: Data, namespace: str) -> Iterator[Identity]:
    annotations = _map(_map(data, "metadata"), "annotations")
    name = annotations.get("kubernetes.io/service-account.name")
    if name:
        yield Identity("", "ServiceAccount", namespace, str(name))


def _of_policy_binding(data: Data, namespace: str) -> Iterator[Identity]:
    name = str(_map(data, "spec").get("policyName"))
    yield Identity(_ADMISSION, "ValidatingAdmissionPolicy", "", name)


def _of_extension(data: Data, namespace: str) -> Iterator[Identity]:
    service = _map(_map(data, "spec"), "service")
    if service:
        yield Identity("", "Service", str(service.get("namespace")), str(service.get("name")))


_READERS = {
    (_RBAC, "RoleBinding"): _of_binding,
    (_RBAC, "ClusterRoleBinding"): _of_binding,
    ("", "PersistentVolumeClaim"): _of_claim,
    ("", "PersistentVolume"): _of_claim,
    ("", "Secret"): _of_secret,
    ("apps", "StatefulSet"): _of_stateful_set,
    ("autoscaling", "HorizontalPodAutoscaler"): _of_autoscaler,
    ("networking.k8s.io", "Ingress"): _of_ingress,
    ("apiregistration.k8s.io", "APIService"): _of_extension,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _of_policy_binding,
}


def _map(data: Data, key: str) -> Data:
    found = data.get(key)
    return found if isinstance(found, Mapping) else {}


def _dicts(data: Data, key: str) -> Iterator[Data]:
    found = data.get(key)
    yield from (one for one in (found if isinstance(found, list) else ()) if isinstance(one, Mapping))


# --- Collect what binds the objects of a run, the strongest bonds first, into a graph without
# circles


class Builder:
    """Collects bonds, the strongest first; none is added that would close a circle with stronger ones."""

    def __init__(self, objects: Sequence[KubeObject], depends: Depends, *, strict: bool) -> None:
        self._objects = {found.identity: found for found in objects}
        self._depends, self._strict = depends, strict
        self._nodes: list[Node] = list(self._objects)
        self._before: dict[Node, dict[Node, Bond]] = {node: {} for node in self._nodes}
        self._kinds = Kinds(kind for found in objects for kind in kinds_of_crd(found.data))

    def graph(self) -> Graph:
        """Put everything together."""
        self._component_bonds()
        self._annotation_bonds()
        if self._strict:
            self._refuse_circles()
        self._content_bonds()
        self._break_circles()
        levels = self._levels()
        self._waves(levels)
        nodes = sort(self._nodes, self._before, lambda node: levels.get(node, 0))
        return Graph(nodes=tuple(nodes), before=self._before)

    def _bind(self, before: Node, after: Node, bond: Bond) -> None:
        for node in (before, after):
            if node not in self._before:
                self._before[node] = {}
                self._nodes.append(node)
        if before != after:
            self._before[after].setdefault(before, bond)

    # --- what people say -----------------------------------------------------------------------------

    def _component_bonds(self) -> None:
        members: dict[str, list[Identity]] = {}
        for found in self._objects.values():
            members.setdefault(found.component, []).append(found.identity)
        for name in sorted(self._depends):
            for other in sorted(self._depends[name]):
                if name != other and members.get(name) and members.get(other):
                    self._component_bond(members[name], other, members[other])

    def _component_bond(self, mine: Iterable[Identity], other: str, theirs: Sequence[Identity]) -> None:
        gate = Barrier("component", other, members=tuple(theirs))
        for one in theirs:
            self._bind(one, gate, "user")
        for one in mine:
            # A namespace or definition does nothing by itself, and the other component may need it.
            if not is_first(one):
                self._bind(gate, one, "user")

    def _annotation_bonds(self) -> None:
        for found in self._objects.values():
            for named in self._wanted(found):
                target = resolved(named, found, self._objects)
                if target in self._objects:
                    gate = Barrier("ready", str(target), target, (target,))
                    self._bind(target, gate, "user")
                    self._bind(gate, found.identity, "user")

    def _wanted(self, found: KubeObject) -> tuple[Identity, ...]:
        try:
            return wanted(found)
        except ConfigError:
            if self._strict:
                raise
            return ()

    def _refuse_circles(self) -> None:
        circle = [
            node
            for node in find_cycle(self._nodes, self._before)
            if not (isinstance(node, Barrier) and node.kind == "ready")
        ]
        if circle:
            names = [str(one) if isinstance(one, Barrier) else f"`{one}`" for one in (*circle, circle[0])]
            first = next(self._objects[one] for one in circle if isinstance(one, Identity))
            raise ConfigError(
                f"objects depend on each other in a circle: {' → '.join(names)}",
                where=str(first.source) if first.source else None,
                hint=f"take one out of the annotation `{DEPENDS_ON}` or out of `dependsOn`",
            )

    # --- what kinds need -----------------------------------------------------------------------------

    def _content_bonds(self) -> None:
        definitions = {
            (kind.group, kind.kind): found.identity
            for found in self._objects.values()
            for kind in kinds_of_crd(found.data)
        }
        for found in self._objects.values():
            definition = definitions.get((found.group, found.kind))
            if definition is not None:
                self._bind(definition, found.identity, "needs")
            for named in references(found):
                if named in self._objects:
                    self._bind(named, found.identity, "needs")
        for found in self._objects.values():
            if is_webhook(found.identity):
                self._webhook_bonds(found)

    def _webhook_bonds(self, found: KubeObject) -> None:
        for service in services(found):
            behind = tuple(self._behind(service))
            gate = Barrier("endpoint", str(service), service, behind)
            self._bind(gate, found.identity, "needs")
            for one in (service, *behind):
                if one in self._objects:
                    self._bind(one, gate, "needs")
        for other in self._objects.values():
            if intercepts(found, other, self._kinds):
                self._bind(found.identity, other.identity, "needs")

    def _behind(self, service: Identity) -> Iterator[Identity]:
        """Give the workloads whose pods a Service leads to."""
        found = self._objects.get(service)
        selector = (found.data.get("spec") or {}).get("selector") if found is not None else None
        if not isinstance(selector, Mapping) or not selector:
            return
        for other in self._objects.values():
            if other.namespace == service.namespace and any(
                selector.items() <= labels.items() for labels in pod_labels(other.data)
            ):
                yield other.identity

    def _break_circles(self) -> None:
        """Take away what kinds need where people say otherwise."""
        while circle := find_cycle(self._nodes, self._before):
            pairs = list(zip(circle, (*circle[1:], circle[0]), strict=True))
            weak = (pair for pair in pairs if self._before[pair[0]][pair[1]] == "needs")
            after, before = next(weak, pairs[0])
            del self._before[after][before]

    # --- what is usual -------------------------------------------------------------------------------

    def _levels(self) -> dict[Node, int]:
        """Give each node its rank, raised above everything that it has to come after."""
        bases = self._bases()
        levels: dict[Node, int] = {}
        for node in sort(self._nodes, self._before, lambda node: 0):
            own = self._usual(node, bases) if isinstance(node, Identity) else 0
            levels[node] = max([own, *(levels[one] for one in self._before[node])])
        return levels

    def _usual(self, one: Identity, bases: Mapping[str, int]) -> int:
        """Give the level of an object as its kind and its component have it."""
        base = 0 if is_first(one) else bases.get(self._objects[one].component, 0)
        return rank(one) + base

    def _bases(self) -> dict[str, int]:
        """Give what is added to a component's ranks, so that it keeps its waves behind those of others."""
        known = {name: set(others) - {name} for name, others in self._depends.items()}
        names = sorted({*known, *(one for others in known.values() for one in others)})
        bases: dict[str, int] = {}
        for name in sort(names, known, lambda _: 0):
            bases[name] = max((bases[one] + COUNT for one in known.get(name, ())), default=0)
        return bases

    def _waves(self, levels: Mapping[Node, int]) -> None:
        """Bind lower ranks before higher ones, inside each component and each namespace.

        Nothing comes later only because something of a lower rank waits for what people say: that may take
        long, and the two may need each other. Nor does anything wait for webhooks.
        """
        bases = self._bases()
        scopes: dict[str, list[Identity]] = {}
        free: dict[str, set[Identity]] = {}
        for found in self._objects.values():
            one, level = found.identity, levels[found.identity]
            places = [(f"component {found.component}", self._usual(one, bases))]
            places += [(f"namespace {found.namespace}", rank(one))] if found.namespace else []
            for scope, usual in places:
                scopes.setdefault(scope, []).append(one)
                if level == usual and not is_webhook(one):
                    free.setdefault(scope, set()).add(one)
        for scope, members in scopes.items():
            self._waves_of(scope, members, free.get(scope, set()), levels)
        self._webhooks_last(set().union(*free.values()), levels)

    def _webhooks_last(self, free: Collection[Identity], levels: Mapping[Node, int]) -> None:
        """Bind the objects of every component and namespace before webhooks: they stand in no namespace."""
        webhooks = [one for one in self._objects if rank(one) == WEBHOOKS]
        for level in sorted({levels[one] for one in webhooks}):
            gate = Barrier("wave", f"webhooks, wave {level}")
            for before in (one for one in self._objects if one in free and levels[one] < level):
                self._bind(before, gate, "wave")
            for after in (one for one in webhooks if levels[one] == level and gate in self._before):
                self._bind(gate, after, "wave")

    def _waves_of(
        self, scope: str, members: Sequence[Identity], free: Collection[Identity], levels: Mapping[Node, int]
    ) -> None:
        last: tuple[Node, ...] = ()
        held: list[Node] = []
        for level in sorted({levels[one] for one in members}):
            if held:
                gate = Barrier("wave", f"{scope}, wave {level}")
                for before in (*held, *last):
                    self._bind(before, gate, "wave")
                last = (gate,)
            those = [one for one in members if levels[one] == level]
            for after in those if last else ():
                self._bind(last[0], after, "wave")
            held = [one for one in those if one in free]


# --- In which order objects are written, and the other way round deleted ---


def graph(objects: Sequence[KubeObject], depends: Depends | None = None, *, strict: bool = True) -> Graph:
    """Work out what has to come after what.

    Args:
        objects: the objects of a run; annotations are read from them.
        depends: for each component all components it depends on.
        strict: refuse what people say wrongly; else it is left out, as for objects that are deleted.

    Raises:
        ConfigError: an annotation cannot be read, or what people say goes in a circle; names it.
    """
    return Builder(objects, depends or {}, strict=strict).graph()


def ordered(objects: Iterable[KubeObject], depends: Depends | None = None) -> tuple[KubeObject, ...]:
    """Sort objects as they are written; where nothing decides they keep their order.

    Raises:
        ConfigError: as `graph`.
    """
    listed = tuple(objects)
    if not depends and not any(_is_special(found) for found in listed):
        return tuple(sorted(listed, key=lambda found: rank(found.identity)))
    known: dict[Identity, list[KubeObject]] = {}
    for found in listed:
        known.setdefault(found.identity, []).append(found)
    first = [same[0] for same in known.values()]
    return tuple(found for one in graph(first, depends).objects for found in known[one])


# Kinds that others may need although those are of no higher rank.
_SPECIAL = frozenset(
    {
        "StorageClass",
        "PersistentVolume",
        "HorizontalPodAutoscaler",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
    }
)


def _is_special(found: KubeObject) -> bool:
    """Tell whether an object may have to stand elsewhere than its rank says."""
    return found.kind in _SPECIAL or DEPENDS_ON in found.annotations


def last_first(objects: Sequence[KubeObject], depends: Depends | None = None) -> tuple[Identity, ...]:
    """Give the order in which objects are deleted: what depends on an object goes before it."""
    return tuple(reversed(graph(objects, depends, strict=False).objects))
