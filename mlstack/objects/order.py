"""In which order objects are written, and the other way round deleted.

A dependency is one of three. `user`: an annotation or a component's `dependsOn`; what comes after waits
until what comes before works. `needs`: an object's content names the other, so it makes no sense without it.
`wave`: a default by kind, which gives way to the other two. A failure takes along what depends by the first
two.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any, Literal, TypeVar

from mlstack.dataclass import Record, dataclass
from mlstack.errors import ConfigError
from mlstack.objects.kube_object import Identity, Kinds, KubeObject, kinds_of_crd
from mlstack.objects.references import intercepts, is_webhook, pod_labels, references, services

Dependency = Literal["user", "needs", "wave"]
Depends = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class Barrier:
    """A point that a run passes once other objects have come so far; nothing is written there.

    Its kind is `ready`, `component` (all `members` work), `endpoint` (the Service behind a webhook answers)
    or `wave` (its predecessors were written).
    """

    kind: Literal["ready", "component", "endpoint", "wave"]
    name: str  # what people call it
    about: Identity | None = None  # the one object it waits for, where it is one
    members: tuple[Identity, ...] = field(default=(), compare=False)  # all objects it waits for

    def __str__(self) -> str:
        return f"component `{self.name}`" if self.kind == "component" else f"`{self.name}`"


GraphNode = Identity | Barrier


class Graph(Record):
    """What comes after what."""

    nodes: tuple[GraphNode, ...]  # objects and barriers, each after what it depends on
    before: Mapping[GraphNode, Mapping[GraphNode, Dependency]]  # what each node depends on, and how

    @property
    def objects(self) -> tuple[Identity, ...]:
        """Give the objects alone, in their order."""
        return tuple(node for node in self.nodes if isinstance(node, Identity))

    def reversed(self) -> Graph:
        """Give the graph of taking away: what depends on something goes before it."""
        turned: dict[GraphNode, dict[GraphNode, Dependency]] = {node: {} for node in reversed(self.nodes)}
        for node, needed in self.before.items():
            for other, dependency in needed.items():
                turned[other][node] = dependency
        return Graph(nodes=tuple(turned), before=turned)


# --- directed graphs: a cycle in them, and an order in which nothing comes before what it needs --------

N = TypeVar("N", bound=Hashable)


def find_cycle(nodes: Sequence[N], before: Mapping[N, Collection[N]]) -> tuple[N, ...]:
    """Give nodes that need each other in a circle, each the next one and the last the first; none without.

    The search begins with the first of the nodes.
    """
    sorter: TopologicalSorter[N] = TopologicalSorter({node: () for node in nodes})
    for node in nodes:
        for needed in before.get(node, ()):
            sorter.add(needed, node)  # the other way round: so the circle found follows what is needed
    try:
        sorter.prepare()
    except CycleError as error:
        return tuple(error.args[1][:-1])
    return ()


def sort(nodes: Sequence[N], before: Mapping[N, Collection[N]], priority: Callable[[N], Any]) -> list[N]:
    """Give the nodes so that each comes after what it needs; of several that could come, the smallest.

    Equal priorities keep the order of `nodes`.
    """
    numbers = {node: number for number, node in enumerate(nodes)}
    sorter = TopologicalSorter({node: before.get(node, ()) for node in nodes})
    sorter.prepare()
    heap: list[tuple[Any, int, N]] = []
    order: list[N] = []
    while sorter.is_active():
        for node in sorter.get_ready():
            heapq.heappush(heap, (priority(node), numbers[node], node))
        _, _, node = heapq.heappop(heap)
        order.append(node)
        sorter.done(node)
    return order


# --- which kinds are written before which others when nothing else says so -----------------------------

# Each rank needs only what stands above it. Bindings come after roles, because the API server looks
# the role up when it checks that nobody grants more than they hold. Webhooks come last: from then on
# the API server refuses what they do not answer for.
RANKS: Mapping[str, str] = {
    "namespaces": "Namespace",
    "definitions": "CustomResourceDefinition.apiextensions.k8s.io",
    "policies": "PriorityClass.scheduling.k8s.io RuntimeClass.node.k8s.io IngressClass.networking.k8s.io"
    " NetworkPolicy.networking.k8s.io ResourceQuota LimitRange",
    "access": "ServiceAccount ClusterRole.rbac.authorization.k8s.io Role.rbac.authorization.k8s.io",
    "bindings": "ClusterRoleBinding.rbac.authorization.k8s.io RoleBinding.rbac.authorization.k8s.io",
    "configuration": "ConfigMap Secret",
    "storage": "StorageClass.storage.k8s.io PersistentVolume PersistentVolumeClaim",
    "services": "Service Endpoints EndpointSlice.discovery.k8s.io PodDisruptionBudget.policy",
    "workloads": "DaemonSet.apps Deployment.apps ReplicaSet.apps StatefulSet.apps ReplicationController Pod"
    " Job.batch CronJob.batch",
    "traffic": "HorizontalPodAutoscaler.autoscaling Ingress.networking.k8s.io"
    " APIService.apiregistration.k8s.io",
    "custom resources": "",
    "webhooks": "MutatingWebhookConfiguration.admissionregistration.k8s.io"
    " ValidatingWebhookConfiguration.admissionregistration.k8s.io"
    " ValidatingAdmissionPolicy.admissionregistration.k8s.io"
    " ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io",
}
"""Kinds as kubectl names them (`Kind.group`) by rank."""

RANK = {
    (name.partition(".")[2], name.partition(".")[0]): rank
    for rank, kinds in enumerate(RANKS.values())
    for name in kinds.split()
}
_WEBHOOKS = len(RANKS) - 1
_OTHERS = list(RANKS).index("custom resources")


def rank(identity: Identity) -> int:
    """Give the number of the rank an object belongs to; kinds nobody lists are custom resources."""
    return RANK.get((identity.group, identity.kind), _OTHERS)


def is_first(identity: Identity) -> bool:
    """Tell whether an object is a namespace or a definition: what everything else may need."""
    return rank(identity) <= list(RANKS).index("definitions")


# --- what a person says about order: the annotation, and `dependsOn` of components ---------------------

DEPENDS_ON = "config.kubernetes.io/depends-on"
"""Annotation of cli-utils: `group/kind/name` or `group/namespaces/NS/kind/name`, separated by commas."""

_FORM = (
    "write `group/namespaces/NAMESPACE/Kind/name` or `group/Kind/name`; the core group is empty: `/Kind/name`"
)


def annotated(manifest: KubeObject, objects: Mapping[Identity, object]) -> tuple[Identity, ...]:
    """Give what the annotation of an object names.

    A name without a namespace means a cluster-scoped object, or else one of the object's own namespace: so
    the same annotation does in every environment.
    """
    text = manifest.annotations.get(DEPENDS_ON)
    if text is None:
        return ()
    where = manifest.source.at(("metadata", "annotations", DEPENDS_ON)) if manifest.source else None
    targets: dict[Identity, None] = {}
    for name in (part.strip() for part in str(text).split(",")):
        parts = name.split("/")
        if len(parts) == 3 and all(parts[1:]):
            target = Identity(parts[0], parts[1], "", parts[2])
        elif len(parts) == 5 and parts[1] == "namespaces" and all(parts[2:]):
            target = Identity(parts[0], parts[3], parts[2], parts[4])
        else:
            message = f"`{manifest.identity}`: annotation `{DEPENDS_ON}` names no object: `{name}`"
            raise ConfigError(message, where=where or manifest.component, hint=_FORM)
        if target == manifest.identity:
            message = f"`{manifest.identity}` says that it depends on itself"
            raise ConfigError(message, where=where or manifest.component)
        here = Identity(target.group, target.kind, manifest.namespace, target.name)
        is_here = not target.namespace and target not in objects and here in objects
        targets[here if is_here else target] = None
    return tuple(targets)


HOOK = "helm.sh/hook"
"""Annotation of Helm: the events, separated by commas, at which an object of a chart is made."""
_HOOK_WEIGHT, HOOK_DELETE_POLICY = f"{HOOK}-weight", f"{HOOK}-delete-policy"


def hook_phase(events: str) -> str:
    """Give when an apply makes an object of these events: `before` all others of its component, or `after`.

    Empty for what is no hook, and for events that an apply does not have: upgrades alone, deletions, tests.
    """
    names = {event.strip() for event in events.split(",")}
    return "before" if names & {"pre-install", "crd-install"} else "after" if "post-install" in names else ""


def is_made_anew_as_hook(manifest: KubeObject, *, failed: bool = False) -> bool:
    """Tell whether helm would delete an object before it makes it again, as it does unless told otherwise."""
    policy = manifest.annotations.get(HOOK_DELETE_POLICY, "")
    is_gone = not policy or "before-hook-creation" in policy or (failed and "hook-failed" in policy)
    return HOOK in manifest.annotations and is_gone


def may_run_again(manifest: KubeObject) -> bool:
    """Tell whether an object is a hook that ends, and is made anew if that was badly."""
    return manifest.kind in ("Job", "Pod") and is_made_anew_as_hook(manifest, failed=True)


def _hook_order(manifest: KubeObject) -> tuple[int, int, str]:
    """Give the place of a hook among those of its phase: weight, kind, name."""
    try:
        weight = int(manifest.annotations.get(_HOOK_WEIGHT, 0))
    except ValueError:
        weight = 0
    return weight, rank(manifest.identity), manifest.name


def outside(objects: Iterable[KubeObject]) -> tuple[tuple[KubeObject, Identity], ...]:
    """Give the objects that depend on something which none of them is, and on what."""
    listed = tuple(objects)
    own = {manifest.identity: manifest for manifest in listed}
    pairs = ((manifest, target) for manifest in listed for target in annotated(manifest, own))
    return tuple((manifest, target) for manifest, target in pairs if target not in own)


def closure(direct: Mapping[str, Sequence[str]], files: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Give all components that each component depends on, through others as well.

    `direct` is what each names itself; `files` are the components' own, for messages.
    """
    circle = find_cycle(sorted(direct), direct)
    if circle:
        way = " → ".join(f"`{name}`" for name in (*circle, circle[0]))
        message = f"components depend on each other in a circle: {way}"
        hint = "take one of them out of `dependsOn`"
        raise ConfigError(message, where=files.get(circle[0]), hint=hint)
    reached: dict[str, set[str]] = {}
    before = {name: set(others) & direct.keys() for name, others in direct.items()}
    for name in sort(sorted(direct), before, lambda _: 0):
        reached[name] = set(direct[name]).union(*(reached.get(other, ()) for other in direct[name]))
    return {name: tuple(sorted(reached[name])) for name in direct if direct[name]}


# --- the graph of a run: the strongest dependencies first, none that closes a circle with stronger ones


class _Builder:
    def __init__(self, objects: Sequence[KubeObject], depends: Depends, *, strict: bool) -> None:
        self._objects = {manifest.identity: manifest for manifest in objects}
        self._depends, self._strict = depends, strict
        self._nodes: list[GraphNode] = list(self._objects)
        self._before: dict[GraphNode, dict[GraphNode, Dependency]] = {node: {} for node in self._nodes}
        self._kinds = Kinds(kind for manifest in objects for kind in kinds_of_crd(manifest.data))
        self._raised: dict[Identity, int] = {}  # what is added to the ranks of objects that follow hooks

    def graph(self) -> Graph:
        """Put everything together."""
        self._add_components()
        self._add_annotations()
        if self._strict:
            self._refuse_circles()
        self._add_references()
        self._add_hooks()
        # Take away what kinds need where people say otherwise.
        while circle := find_cycle(self._nodes, self._before):
            pairs = list(zip(circle, (*circle[1:], circle[0]), strict=True))
            weak = (pair for pair in pairs if self._before[pair[0]][pair[1]] == "needs")
            after, before = next(weak, pairs[0])
            del self._before[after][before]
        # Each node has its rank, raised above everything that it has to come after.
        bases = self._bases()
        levels: dict[GraphNode, int] = {}
        for node in sort(self._nodes, self._before, lambda _: 0):
            usual = self._usual(node, bases) if isinstance(node, Identity) else 0
            levels[node] = max([usual, *(levels[needed] for needed in self._before[node])])
        self._add_waves(levels, bases)
        nodes = sort(self._nodes, self._before, lambda node: levels.get(node, 0))
        return Graph(nodes=tuple(nodes), before=self._before)

    def _add(self, before: GraphNode, after: GraphNode, dependency: Dependency) -> None:
        for node in (before, after):
            if node not in self._before:
                self._before[node] = {}
                self._nodes.append(node)
        if before != after:
            self._before[after].setdefault(before, dependency)

    # --- what people say ---

    def _add_components(self) -> None:
        members: dict[str, list[Identity]] = {}
        for manifest in self._objects.values():
            members.setdefault(manifest.component, []).append(manifest.identity)
        for name in sorted(self._depends):
            for other in sorted(self._depends[name]):
                if name == other or not members.get(name) or not members.get(other):
                    continue
                barrier = Barrier("component", other, members=tuple(members[other]))
                for identity in members[other]:
                    self._add(identity, barrier, "user")
                for identity in members[name]:
                    # A namespace or definition does nothing by itself, and the other component may need it.
                    if not is_first(identity):
                        self._add(barrier, identity, "user")

    def _add_annotations(self) -> None:
        for manifest in self._objects.values():
            try:
                targets = annotated(manifest, self._objects)
            except ConfigError:
                if self._strict:
                    raise
                targets = ()
            for target in targets:
                if target in self._objects:
                    self._add_ready(target, manifest.identity)

    def _add_ready(self, before: Identity, after: Identity) -> None:
        barrier = Barrier("ready", str(before), before, (before,))
        self._add(before, barrier, "user")
        self._add(barrier, after, "user")

    def _refuse_circles(self) -> None:
        cycle = find_cycle(self._nodes, self._before)
        circle = [node for node in cycle if not (isinstance(node, Barrier) and node.kind == "ready")]
        if circle:
            names = [str(node) if isinstance(node, Barrier) else f"`{node}`" for node in (*circle, circle[0])]
            first = next(self._objects[node] for node in circle if isinstance(node, Identity))
            raise ConfigError(
                f"objects depend on each other in a circle: {' → '.join(names)}",
                where=str(first.source) if first.source else None,
                hint=f"take one out of the annotation `{DEPENDS_ON}` or out of `dependsOn`",
            )

    # --- what kinds need ---

    def _add_references(self) -> None:
        definitions = {
            (kind.group, kind.kind): manifest.identity
            for manifest in self._objects.values()
            for kind in kinds_of_crd(manifest.data)
        }
        for manifest in self._objects.values():
            definition = definitions.get((manifest.group, manifest.kind))
            if definition is not None:
                self._add(definition, manifest.identity, "needs")
            for target in references(manifest):
                if target in self._objects:
                    self._add(target, manifest.identity, "needs")
        for webhook in (manifest for name, manifest in self._objects.items() if is_webhook(name)):
            for service in services(webhook):
                workloads = tuple(self._behind(service))
                barrier = Barrier("endpoint", str(service), service, workloads)
                self._add(barrier, webhook.identity, "needs")
                for identity in (service, *workloads):
                    if identity in self._objects:
                        self._add(identity, barrier, "needs")
            for manifest in self._objects.values():
                if intercepts(webhook, manifest, self._kinds):
                    self._add(webhook.identity, manifest.identity, "needs")

    def _add_hooks(self) -> None:
        """Put the hooks of charts one after the other, before or after what else their component brings.

        https://helm.sh/docs/topics/charts_hooks. What a hook needs comes before it, whatever helm would do.
        """
        hooks: dict[tuple[str, str], list[KubeObject]] = {}
        for manifest in self._objects.values():
            if phase := hook_phase(str(manifest.annotations.get(HOOK, ""))):
                hooks.setdefault((manifest.component, phase), []).append(manifest)
        own = {manifest.identity for listed in hooks.values() for manifest in listed}
        for (component, phase), listed in hooks.items():
            chain = [manifest.identity for manifest in sorted(listed, key=_hook_order)]
            for before, after in pairwise(chain):
                if after not in self._needed_by([before]):
                    self._add_ready(before, after)
            others = [m.identity for m in self._objects.values() if m.component == component]
            rest = [name for name in others if name not in own and not is_first(name)]
            if phase == "before":
                needed = self._needed_by(chain)
                for name in (name for name in rest if name not in needed):
                    self._add_ready(chain[-1], name)
                    self._raised[name] = len(RANKS)
            elif rest := [name for name in rest if not self._needed_by([name]) & {*chain}]:
                barrier = Barrier("ready", f"{component} without its hooks", members=tuple(rest))
                for name in rest:
                    self._add(name, barrier, "user")
                self._add(barrier, chain[0], "user")

    def _needed_by(self, nodes: Iterable[GraphNode]) -> set[GraphNode]:
        reached, left = set[GraphNode](), list(nodes)
        while left:
            more = self._before[left.pop()].keys() - reached
            reached |= more
            left += more
        return reached

    def _behind(self, service: Identity) -> Iterator[Identity]:
        manifest = self._objects.get(service)
        selector = (manifest.data.get("spec") or {}).get("selector") if manifest is not None else None
        if not isinstance(selector, Mapping) or not selector:
            return
        for other in self._objects.values():
            if other.namespace == service.namespace and any(
                selector.items() <= labels.items() for labels in pod_labels(other.data)
            ):
                yield other.identity

    # --- what is usual ---

    def _usual(self, identity: Identity, bases: Mapping[str, int]) -> int:
        """Give the level of an object as its kind and its component have it."""
        base = 0 if is_first(identity) else bases.get(self._objects[identity].component, 0)
        return rank(identity) + base + self._raised.get(identity, 0)

    def _bases(self) -> dict[str, int]:
        """Give what is added to a component's ranks, so that it keeps its waves behind those of others."""
        depends = {name: set(others) - {name} for name, others in self._depends.items()}
        names = sorted({*depends, *(name for others in depends.values() for name in others)})
        bases: dict[str, int] = {}
        height = len(RANKS) + max(self._raised.values(), default=0)
        for name in sort(names, depends, lambda _: 0):
            bases[name] = max((bases[other] + height for other in depends.get(name, ())), default=0)
        return bases

    def _add_waves(self, levels: Mapping[GraphNode, int], bases: Mapping[str, int]) -> None:
        """Put lower ranks before higher ones, inside each component and each namespace.

        Nothing comes later only because something of a lower rank waits for what people say: that may take
        long, and the two may need each other. Nor does anything wait for webhooks.
        """
        scopes: dict[str, list[Identity]] = {}
        free: dict[str, set[Identity]] = {}
        for identity, manifest in self._objects.items():
            usual = {f"component {manifest.component}": self._usual(identity, bases)}
            if manifest.namespace:
                usual[f"namespace {manifest.namespace}"] = rank(identity)
            for scope, level in usual.items():
                scopes.setdefault(scope, []).append(identity)
                if levels[identity] == level and not is_webhook(identity):
                    free.setdefault(scope, set()).add(identity)
        for scope, members in scopes.items():
            self._add_waves_of(scope, members, free.get(scope, set()), levels)
        # Webhooks stand in no namespace: they come after the objects of all.
        webhooks = [identity for identity in self._objects if rank(identity) == _WEBHOOKS]
        unbound = set().union(*free.values())
        for level in sorted({levels[identity] for identity in webhooks}):
            barrier = Barrier("wave", f"webhooks, wave {level}")
            for before in (other for other in self._objects if other in unbound and levels[other] < level):
                self._add(before, barrier, "wave")
            for after in (hook for hook in webhooks if levels[hook] == level and barrier in self._before):
                self._add(barrier, after, "wave")

    def _add_waves_of(
        self,
        scope: str,
        members: Sequence[Identity],
        free: Collection[Identity],
        levels: Mapping[GraphNode, int],
    ) -> None:
        last: tuple[GraphNode, ...] = ()
        held: list[GraphNode] = []
        for level in sorted({levels[identity] for identity in members}):
            if held:
                barrier = Barrier("wave", f"{scope}, wave {level}")
                for before in (*held, *last):
                    self._add(before, barrier, "wave")
                last = (barrier,)
            wave = [identity for identity in members if levels[identity] == level]
            for after in wave if last else ():
                self._add(last[0], after, "wave")
            held = [identity for identity in wave if identity in free]


def graph(objects: Sequence[KubeObject], depends: Depends | None = None, *, strict: bool = True) -> Graph:
    """Work out what has to come after what among the objects of a run.

    `depends` has for each component all components it depends on. What people say wrongly is refused if
    `strict`, else left out, as for objects that are deleted.

    Raises:
        ConfigError: an annotation cannot be read, or what people say goes in a circle; names it.
    """
    return _Builder(objects, depends or {}, strict=strict).graph()


# Kinds that others may need although those are of no higher rank.
_SPECIAL = ("StorageClass", "PersistentVolume", "HorizontalPodAutoscaler", "ValidatingAdmissionPolicy")


def ordered(objects: Iterable[KubeObject], depends: Depends | None = None) -> tuple[KubeObject, ...]:
    """Sort objects as they are written; where nothing decides they keep their order."""
    listed = tuple(objects)
    is_special = (
        manifest.kind in _SPECIAL
        or is_webhook(manifest.identity)
        or {DEPENDS_ON, HOOK} & {*manifest.annotations}
        for manifest in listed
    )
    if not depends and not any(is_special):
        return tuple(sorted(listed, key=lambda manifest: rank(manifest.identity)))
    same: dict[Identity, list[KubeObject]] = {}
    for manifest in listed:
        same.setdefault(manifest.identity, []).append(manifest)
    first = [manifests[0] for manifests in same.values()]
    return tuple(manifest for identity in graph(first, depends).objects for manifest in same[identity])


def last_first(objects: Sequence[KubeObject], depends: Depends | None = None) -> tuple[Identity, ...]:
    """Give the order in which objects are deleted: what depends on an object goes before it."""
    return tuple(reversed(graph(objects, depends, strict=False).objects))
