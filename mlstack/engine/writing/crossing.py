"""Which gates of a graph a run waits at, and what for."""

from collections.abc import Iterable, Mapping

from mlstack.engine.waiting.gates import Gates
from mlstack.model.diff import Change
from mlstack.model.graph import Gate, Graph, Node
from mlstack.model.objects import Identity, KubeObject


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
        return gate.kind != "wave" and bool(self._concerned(gate))

    def wait(self, gate: Gate) -> None:
        """Return when the gate may be passed.

        Raises:
            NotReadyError: it may not in time, or never.
        """
        members = _wanted(self._changes[one] for one in gate.members if one in self._changes)
        if members:
            self._gates.ready(str(gate), members)
        if gate.kind == "endpoint" and gate.about is not None:
            self._gates.endpoint(gate.about, _wanted(self._concerned(gate)))

    def _concerned(self, gate: Gate) -> list[Change]:
        behind = [self._changes[one] for one in self._behind.get(gate, ())]
        # A webhook that is there already is asked now, whether its Service answers or not.
        new = ("create", "recreate")
        return [one for one in behind if one.writes and (gate.kind != "endpoint" or one.action in new)]


def _wanted(changes: Iterable[Change]) -> list[KubeObject]:
    return [one.desired for one in changes if one.desired is not None and one.action != "missing"]
