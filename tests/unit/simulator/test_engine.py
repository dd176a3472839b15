"""Virtual time, chance from one seed, objects with versions, and events that arrive late and in order."""

from mlstack.kube.client import WatchEvent
from mlstack.simulator.engine import START_MS, Kernel, SimulatedStore

POD = {"kind": "Pod", "metadata": {"name": "a", "namespace": "x"}, "spec": {}, "status": {}}


def test_generators_of_one_name_and_seed_draw_alike_and_others_do_not() -> None:
    draws = [Kernel(seed).generator(name).random() for seed, name in ((1, "a"), (1, "a"), (1, "b"), (2, "a"))]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


def test_a_write_has_a_higher_version_keeps_the_uid_and_changes_no_object_that_somebody_holds() -> None:
    store = SimulatedStore(Kernel())
    held = store.write(POD)
    bound = store.update(held, spec={"nodeName": "n"})
    assert int(bound["metadata"]["resourceVersion"]) > int(held["metadata"]["resourceVersion"])
    assert bound["metadata"]["uid"] == held["metadata"]["uid"]
    assert held["spec"] == {}


def test_events_arrive_after_a_moment_in_their_order() -> None:
    kernel = Kernel()
    store = SimulatedStore(kernel)
    arrivals: list[tuple[int, str]] = []

    def hear(event: WatchEvent) -> None:
        arrivals.append((kernel.now_ms - START_MS, event.object["metadata"]["name"]))

    store.watch(["Pod"], hear, name="me")
    names = [f"p{index:02d}" for index in range(50)]
    for name in names:
        store.write({**POD, "metadata": {"name": name, "namespace": "x"}})
    kernel.run(kernel.now_ms + 1_000)
    assert [name for _, name in arrivals] == names
    assert 30 <= arrivals[0][0] <= arrivals[-1][0] <= 70


def test_a_closed_watch_hears_nothing_that_was_on_its_way() -> None:
    kernel = Kernel()
    store, events = SimulatedStore(kernel), []
    watch = store.watch(["Pod"], events.append, name="me")
    store.write(POD)
    watch.is_open = False
    kernel.run(kernel.now_ms + 1_000)
    assert events == []


def test_the_same_object_again_is_no_news() -> None:
    store, events = SimulatedStore(Kernel()), []
    pod = store.write(POD)
    store.watch(["Pod"], events.append)
    store.update(pod)
    assert [event.type for event in events] == ["ADDED"]


def test_an_object_of_the_same_name_is_another_one_after_removal() -> None:
    store = SimulatedStore(Kernel())
    pod = store.write(POD)
    store.remove(pod)
    store.write(POD)
    assert store.current(pod) is None


def test_time_stands_where_the_run_ends_and_what_was_due_before_happens_at_once() -> None:
    kernel, times = Kernel(), []
    kernel.after(100, lambda: kernel.at(START_MS, lambda: times.append(kernel.now_ms)))
    kernel.after(1_000, lambda: times.append(kernel.now_ms))
    kernel.run(START_MS + 400)
    assert (times, kernel.now_ms) == ([START_MS + 100], START_MS + 400)
