"""Collect what binds the objects of a run, the strongest bonds first, into a graph without circles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from mlstack.errors import ConfigError
from mlstack.model import admission, dag, dependencies, ranks
from mlstack.model.graph import Bond, Depends, Gate, Graph, Node
from mlstack.model.kinds import Kinds, kinds_of_crd
from mlstack.model.objects import Identity, KubeObject
from mlstack.model.references import pod_labels, references


class Builder:
    """Collects bonds, the strongest first; none is added that would close a circle with stronger ones."""

    def __init__(self, objects: Sequence[KubeObject], depends: Depends, *, strict: bool) -> None:
        """Take the objects; `strict` refuses what people say wrongly."""
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
        nodes = dag.sort(self._nodes, self._before, lambda node: levels.get(node, 0))
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
        gate = Gate("component", other, members=tuple(theirs))
        for one in theirs:
            self._bind(one, gate, "user")
        for one in mine:
            # A namespace or definition does nothing by itself, and the other component may need it.
            if not ranks.is_first(one):
                self._bind(gate, one, "user")

    def _annotation_bonds(self) -> None:
        for found in self._objects.values():
            for named in self._wanted(found):
                target = dependencies.resolved(named, found, self._objects)
                if target in self._objects:
                    gate = Gate("ready", str(target), target, (target,))
                    self._bind(target, gate, "user")
                    self._bind(gate, found.identity, "user")

    def _wanted(self, found: KubeObject) -> tuple[Identity, ...]:
        try:
            return dependencies.wanted(found)
        except ConfigError:
            if self._strict:
                raise
            return ()

    def _refuse_circles(self) -> None:
        circle = [
            node
            for node in dag.find_cycle(self._nodes, self._before)
            if not (isinstance(node, Gate) and node.kind == "ready")
        ]
        if circle:
            names = [str(one) if isinstance(one, Gate) else f"`{one}`" for one in (*circle, circle[0])]
            first = next(self._objects[one] for one in circle if isinstance(one, Identity))
            raise ConfigError(
                f"objects depend on each other in a circle: {' → '.join(names)}",
                where=str(first.source) if first.source else None,
                hint=f"take one out of the annotation `{dependencies.DEPENDS_ON}` or out of `dependsOn`",
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
            if ranks.is_webhook(found.identity):
                self._webhook_bonds(found)

    def _webhook_bonds(self, found: KubeObject) -> None:
        for service in admission.services(found):
            behind = tuple(self._behind(service))
            gate = Gate("endpoint", str(service), service, behind)
            self._bind(gate, found.identity, "needs")
            for one in (service, *behind):
                if one in self._objects:
                    self._bind(one, gate, "needs")
        for other in self._objects.values():
            if admission.intercepts(found, other, self._kinds):
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
        while circle := dag.find_cycle(self._nodes, self._before):
            pairs = list(zip(circle, (*circle[1:], circle[0]), strict=True))
            weak = (pair for pair in pairs if self._before[pair[0]][pair[1]] == "needs")
            after, before = next(weak, pairs[0])
            del self._before[after][before]

    # --- what is usual -------------------------------------------------------------------------------

    def _levels(self) -> dict[Node, int]:
        """Give each node its rank, raised above everything that it has to come after."""
        bases = self._bases()
        levels: dict[Node, int] = {}
        for node in dag.sort(self._nodes, self._before, lambda node: 0):
            own = self._usual(node, bases) if isinstance(node, Identity) else 0
            levels[node] = max([own, *(levels[one] for one in self._before[node])])
        return levels

    def _usual(self, one: Identity, bases: Mapping[str, int]) -> int:
        """Give the level of an object as its kind and its component have it."""
        base = 0 if ranks.is_first(one) else bases.get(self._objects[one].component, 0)
        return ranks.rank(one) + base

    def _bases(self) -> dict[str, int]:
        """Give what is added to a component's ranks, so that it keeps its waves behind those of others."""
        known = {name: set(others) - {name} for name, others in self._depends.items()}
        names = sorted({*known, *(one for others in known.values() for one in others)})
        bases: dict[str, int] = {}
        for name in dag.sort(names, known, lambda _: 0):
            bases[name] = max((bases[one] + ranks.COUNT for one in known.get(name, ())), default=0)
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
            places += [(f"namespace {found.namespace}", ranks.rank(one))] if found.namespace else []
            for scope, usual in places:
                scopes.setdefault(scope, []).append(one)
                if level == usual and not ranks.is_webhook(one):
                    free.setdefault(scope, set()).add(one)
        for scope, members in scopes.items():
            self._waves_of(scope, members, free.get(scope, set()), levels)
        self._webhooks_last(set().union(*free.values()), levels)

    def _webhooks_last(self, free: Collection[Identity], levels: Mapping[Node, int]) -> None:
        """Bind the objects of every component and namespace before webhooks: they stand in no namespace."""
        webhooks = [one for one in self._objects if ranks.rank(one) == ranks.WEBHOOKS]
        for level in sorted({levels[one] for one in webhooks}):
            gate = Gate("wave", f"webhooks, wave {level}")
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
                gate = Gate("wave", f"{scope}, wave {level}")
                for before in (*held, *last):
                    self._bind(before, gate, "wave")
                last = (gate,)
            those = [one for one in members if levels[one] == level]
            for after in those if last else ():
                self._bind(last[0], after, "wave")
            held = [one for one in those if one in free]
