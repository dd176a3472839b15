"""Objects with versions, and events that arrive late and in order."""

from mlstack.kube.client import WatchEvent
from mlstack.simulator.engine import Kernel, SimulatedStore, changed

POD = {"kind": "Pod", "metadata": {"name": "a", "namespace": "x"}, "spec": {}, "status": {}}


def test_each_write_has_a_higher_version_and_keeps_the_uid() -> None:
    store = SimulatedStore(Kernel())
    one = store.write(POD)
    two = store.write(changed(one, spec={"nodeName": "n"}))
    assert int(two["metadata"]["resourceVersion"]) > int(one["metadata"]["resourceVersion"])
    assert two["metadata"]["uid"] == one["metadata"]["uid"]


def test_a_write_changes_no_object_that_somebody_holds() -> None:
    store = SimulatedStore(Kernel())
    held = store.write(POD)
    store.write(changed(held, spec={"nodeName": "n"}))
    assert held["spec"] == {}


def test_the_same_object_again_is_no_news() -> None:
    store, heard = SimulatedStore(Kernel()), []
    one = store.write(POD)
    store.watch(["Pod"], heard.append)
    store.write(changed(one))
    assert [event.type for event in heard] == ["ADDED"]


def test_an_object_of_the_same_name_is_another_one_after_removal() -> None:
    store = SimulatedStore(Kernel())
    one = store.write(POD)
    store.remove(one)
    store.write(POD)
    assert store.current(one) is None


def test_events_arrive_after_a_moment_in_their_order() -> None:
    kernel = Kernel()
    store = SimulatedStore(kernel)
    heard: list[tuple[int, str]] = []

    def hear(event: WatchEvent) -> None:
        heard.append((kernel.elapsed_ms, event.object["metadata"]["name"]))

    store.watch(["Pod"], hear, name="me")
    for index in range(50):
        store.write({**POD, "metadata": {"name": f"p{index:02d}", "namespace": "x"}})
    kernel.run(kernel.now_ms + 1_000)
    assert [name for _, name in heard] == [f"p{index:02d}" for index in range(50)]
    assert 30 <= heard[0][0] <= heard[-1][0] <= 70


def test_a_closed_feed_hears_nothing_that_was_on_its_way() -> None:
    kernel = Kernel()
    store, heard = SimulatedStore(kernel), []
    feed = store.watch(["Pod"], heard.append, name="me")
    store.write(POD)
    feed.close()
    kernel.run(kernel.now_ms + 1_000)
    assert heard == []
