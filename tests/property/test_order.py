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
    drawn: list[KubeObject] = []
    for (group, kind), namespace, name in chosen:
        metadata: dict[str, object] = {"name": name, "namespace": namespace}
        if after and drawn and draw(st.booleans()):
            named = draw(st.lists(st.sampled_from(drawn), max_size=3, unique_by=lambda obj: obj.identity))
            if named:
                metadata["annotations"] = {DEPENDS_ON: ",".join(_address(obj) for obj in named)}
        data = {"apiVersion": f"{group}/v1" if group else "v1", "kind": kind, "metadata": metadata}
        drawn.append(KubeObject(data=data, component=draw(st.sampled_from(["core", "jobs", "more"]))))
    return draw(st.permutations(drawn))


def _address(obj: KubeObject) -> str:
    place = f"namespaces/{obj.namespace}/" if obj.namespace else ""
    return f"{obj.group}/{place}{obj.kind}/{obj.name}"


DEPENDS = st.sampled_from([{}, {"jobs": ("core",)}, {"jobs": ("core", "more"), "more": ("core",)}])


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw the graph of objects and what people say of them, in so far as it is no circle."""
    drawn, depends = draw(objects(after=True)), draw(DEPENDS)
    try:
        return order.graph(drawn, depends)
    except ConfigError:
        return order.graph(drawn)


@given(objects())
def test_order_is_a_stable_permutation_by_rank(objects: list[KubeObject]) -> None:
    ordered = order.ordered(objects)
    assert sorted(map(id, ordered)) == sorted(map(id, objects))
    numbers = [order.rank(obj.identity) for obj in ordered]
    assert numbers == sorted(numbers)
    for number in set(numbers):
        same = [id(obj) for obj in objects if order.rank(obj.identity) == number]
        assert [id(obj) for obj in ordered if order.rank(obj.identity) == number] == same


@given(objects(after=True))
def test_the_order_is_that_of_the_graph(objects: list[KubeObject]) -> None:
    assert tuple(obj.identity for obj in order.ordered(objects)) == order.graph(objects).objects


@given(objects(), DEPENDS)
def test_namespaces_and_definitions_come_first(
    objects: list[KubeObject], depends: dict[str, tuple[str, ...]]
) -> None:
    first = [order.is_first(obj.identity) for obj in order.ordered(objects, depends)]
    assert first == sorted(first, reverse=True)


@given(graphs())
def test_everything_comes_after_what_it_depends_on(graph: Graph) -> None:
    place = {node: number for number, node in enumerate(graph.nodes)}
    assert all(place[before] < place[node] for node in graph.nodes for before in graph.before[node])


@given(objects(after=True))
def test_what_people_say_is_heeded(objects: list[KubeObject]) -> None:
    place = {obj.identity: number for number, obj in enumerate(order.ordered(objects))}
    for obj in objects:
        for target in order.annotated(obj, place):
            assert place[target] < place[obj.identity]


@given(graphs())
def test_reversed_twice_is_the_same_and_once_turns_every_bond(graph: Graph) -> None:
    back = graph.reversed()
    assert back.nodes == tuple(reversed(graph.nodes))
    assert back.reversed() == graph
    forward = {(node, dep, bond) for node in graph.nodes for dep, bond in graph.before[node].items()}
    assert {(dep, node, bond) for node in back.nodes for dep, bond in back.before[node].items()} == forward


@given(objects(after=True), st.randoms(use_true_random=False))
def test_the_bonds_do_not_depend_on_the_order_of_the_files(objects: list[KubeObject], random: object) -> None:
    shuffled = list(objects)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = order.graph(objects), order.graph(shuffled)
    assert set(first.nodes) == set(second.nodes)
    assert {node: dict(first.before[node]) for node in first.nodes} == {
        node: dict(second.before[node]) for node in second.nodes
    }


@given(st.dictionaries(st.integers(0, 6), st.sets(st.integers(0, 6), max_size=3)))
def test_a_circle_is_found_or_there_is_an_order(before: dict[int, set[int]]) -> None:
    nodes = sorted({*before, *(name for needed in before.values() for name in needed)})
    circle = order.find_cycle(nodes, before)
    if circle:
        steps = zip(circle, (*circle[1:], circle[0]), strict=True)
        assert all(needed in before[node] for node, needed in steps)
    else:
        ordered = order.sort(nodes, before, lambda node: 0)
        assert sorted(ordered) == nodes
        assert all(ordered.index(needed) < ordered.index(node) for node in before for needed in before[node])


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
        bonds = {needed: bond for needed, bond in graph.before[node].items() if bond != "wave"}
        if any(needed in lost for needed in bonds):
            lost.add(node)
            assert node in skipped
        elif node in bad:
            lost.add(node)
            assert node not in skipped
    assert set(done) == set(graph.nodes) - lost
    assert len(schedule.failures) == len(bad - skipped.keys())
