"""Which gates of a graph a run waits at, and what for."""

from collections.abc import Mapping

from mlstack.engine.gates import Gates
from mlstack.model.diff import Change
from mlstack.model.objects import Identity
from mlstack.model.order import Gate, Graph, Node


class Crossing:
    """Knows for one run which gates are waited at, and waits there."""

    def __init__(self, graph: Graph, changes: Mapping[Identity, Change], gates: Gates) -> None:
        self._changes, self._gates = changes, gates
        self._behind: dict[Node, list[Identity]] = {}
        for node in graph.objects:
            for one in graph.before[node]:
                self._behind.setdefault(one, []).append(node)

    def waits(self, gate: Gate) -> bool:
        """Tell whether anything behind a gate is written for which it matters."""
        behind = [self._changes[one] for one in self._behind.get(gate, ())]
        if gate.kind == "endpoint":
            # A webhook that is there already is asked now, whether its Service answers or not.
            return any(change.writes and change.action in ("create", "recreate") for change in behind)
        return gate.kind != "wave" and any(change.writes for change in behind)

    def wait(self, gate: Gate) -> None:
        """Return when the gate may be passed."""
        if not self.waits(gate):
            return
        if gate.kind == "endpoint" and gate.about is not None:
            self._gates.endpoint(gate.about)
            return
        wanted = [self._changes[one] for one in gate.members if self._changes[one].action != "missing"]
        self._gates.ready(str(gate), [change.desired for change in wanted if change.desired is not None])
