"""Laws of order: what comes after what, forwards and backwards, and how a run goes through it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread

from hypothesis import given
from hypothesis import strategies as st

from mlstack.deploy.run import Schedule
from mlstack.deploy.write import Gone, Steps
from mlstack.errors import ConfigError, MlstackError
from mlstack.kube.client import ObjectRef
from mlstack.objects import order
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.order import DEPENDS_ON, Barrier, Graph, GraphNode

KINDS = [*order.RANK, ("kubeflow.org", "TFJob"), ("x.org", "Y")]
PLACES = ("", "a", "b")
NAMES = ("x", "y", "a")


@st.composite
def objects(draw: st.DrawFn, *, after: bool = False) -> list[KubeObject]:
    """Draw different objects in a few namespaces and components, some after others where asked."""
    keys = st.tuples(st.sampled_from(KINDS), st.sampled_from(PLACES), st.sampled_from(NAMES))
    chosen = draw(st.lists(keys, unique=True, max_size=12))
    found: list[KubeObject] = []
    for (group, kind), namespace, name in chosen:
        metadata: dict[str, object] = {"name": name, "namespace": namespace}
        if after and found and draw(st.booleans()):
            named = draw(st.lists(st.sampled_from(found), max_size=3, unique_by=lambda one: one.identity))
            if named:
                metadata["annotations"] = {DEPENDS_ON: ",".join(_address(one) for one in named)}
        data = {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata}
        found.append(KubeObject(data=data, component=draw(st.sampled_from(["core", "jobs", "more"]))))
    return draw(st.permutations(found))


def _address(found: KubeObject) -> str:
    place = f"namespaces/{found.namespace}/" if found.namespace else ""
    return f"{found.group}/{place}{found.kind}/{found.name}"


DEPENDS = st.sampled_from([{}, {"jobs": ("core",)}, {"jobs": ("core", "more"), "more": ("core",)}])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw the graph of objects and what people say of them, in so far as it is no circle."""
    found, depends = draw(objects(after=True)), draw(DEPENDS)
    try:
        return order.graph(found, depends)
    except ConfigError:
        return order.graph(found)


@given(objects())
def test_order_is_a_stable_permutation_by_rank(found: list[KubeObject]) -> None:
    ordered = order.ordered(found)
    assert sorted(map(id, ordered)) == sorted(map(id, found))
    numbers = [order.rank(one.identity) for one in ordered]
    assert numbers == sorted(numbers)
    for number in set(numbers):
        same = [id(one) for one in found if order.rank(one.identity) == number]
        assert [id(one) for one in ordered if order.rank(one.identity) == number] == same


@given(objects(after=True))
def test_the_order_is_that_of_the_graph(found: list[KubeObject]) -> None:
    assert tuple(one.identity for one in order.ordered(found)) == order.graph(found).objects


@given(objects(), DEPENDS)
def test_namespaces_and_definitions_come_first(
    found: list[KubeObject], depends: dict[str, tuple[str, ...]]
) -> None:
    first = [order.is_first(one.identity) for one in order.ordered(found, depends)]
    assert first == sorted(first, reverse=True)


@given(graphs())
def test_everything_comes_after_what_it_depends_on(graph: Graph) -> None:
    place = {node: number for number, node in enumerate(graph.nodes)}
    assert all(place[before] < place[node] for node in graph.nodes for before in graph.before[node])


@given(objects(after=True))
def test_what_people_say_is_heeded(found: list[KubeObject]) -> None:
    place = {one.identity: number for number, one in enumerate(order.ordered(found))}
    for one in found:
        for target in order.annotated(one, place):
            assert place[target] < place[one.identity]


@given(graphs())
def test_reversed_twice_is_the_same_and_once_turns_every_bond(graph: Graph) -> None:
    back = graph.reversed()
    assert back.nodes == tuple(reversed(graph.nodes))
    assert back.reversed() == graph
    forward = {(node, one, bond) for node in graph.nodes for one, bond in graph.before[node].items()}
    assert {(one, node, bond) for node in back.nodes for one, bond in back.before[node].items()} == forward


@given(objects(after=True), st.randoms(use_true_random=False))
def test_the_bonds_do_not_depend_on_the_order_of_the_files(found: list[KubeObject], random: object) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = order.graph(found), order.graph(shuffled)
    assert set(one.nodes) == set(other.nodes)
    assert {node: dict(one.before[node]) for node in one.nodes} == {
        node: dict(other.before[node]) for node in other.nodes
    }


@given(st.dictionaries(st.integers(0, 6), st.sets(st.integers(0, 6), max_size=3)))
def test_a_circle_is_found_or_there_is_an_order(before: dict[int, set[int]]) -> None:
    nodes = sorted({*before, *(one for needed in before.values() for one in needed)})
    circle = order.find_cycle(nodes, before)
    if circle:
        steps = zip(circle, (*circle[1:], circle[0]), strict=True)
        assert all(needed in before[node] for node, needed in steps)
    else:
        found = order.sort(nodes, before, lambda node: 0)
        assert sorted(found) == nodes
        assert all(found.index(one) < found.index(node) for node in before for one in before[node])


# --- a run ----------------------------------------------------------------------------------------


class AlreadyGone:
    """A watcher to whom every object is gone a moment later."""

    def wait(self, gone: Gone, then: Callable[[None], None]) -> None:
        Thread(target=then, args=(None,)).start()


def run(
    graph: Graph, work: Callable[[GraphNode], None]
) -> tuple[list[GraphNode], dict[GraphNode, str], Schedule]:
    """Go through a graph; gives what was done, and what was skipped and why."""
    done: list[GraphNode] = []
    skipped: dict[GraphNode, str] = {}
    mutex = Lock()

    def do(node: GraphNode) -> Steps:
        work(node)
        if isinstance(node, KubeObject) and node.data["metadata"]["name"] == "x":
            yield Gone(ObjectRef.of(node.data), "uid")
        with mutex:
            done.append(node)

    class Doing:
        binding = frozenset({"user", "needs"})
        steps = staticmethod(do)
        skip = staticmethod(skipped.__setitem__)

        def is_idle(self, node: GraphNode) -> bool:
            return isinstance(node, Barrier)

        def because(self, node: GraphNode, end: str, after: GraphNode) -> str:
            return f"{node} {end}"

    schedule = Schedule(graph, Doing(), AlreadyGone(), Event())  # type: ignore[arg-type]
    schedule.run()
    return done, skipped, schedule


@given(graphs())
def test_a_run_does_everything_once_and_in_order(graph: Graph) -> None:
    done, skipped, _ = run(graph, lambda node: None)
    place = {node: number for number, node in enumerate(done)}
    assert len(done) == len(graph.nodes) == len(place)
    assert not skipped
    assert all(place[before] < place[node] for node in graph.nodes for before in graph.before[node])


@given(graphs(), st.sets(st.integers(0, 11), max_size=3))
def test_a_failure_takes_along_exactly_what_depends_on_it(graph: Graph, numbers: set[int]) -> None:
    bad = {node for number, node in enumerate(graph.objects) if number in numbers}

    def work(node: GraphNode) -> None:
        if node in bad:
            raise MlstackError(str(node))

    done, skipped, schedule = run(graph, work)
    lost: set[GraphNode] = set()
    for node in graph.nodes:
        bonds = {one: bond for one, bond in graph.before[node].items() if bond != "wave"}
        if any(one in lost for one in bonds):
            lost.add(node)
            assert node in skipped
        elif node in bad:
            lost.add(node)
            assert node not in skipped
    assert set(done) == set(graph.nodes) - lost
    assert len(schedule.failures) == len(bad - skipped.keys())
