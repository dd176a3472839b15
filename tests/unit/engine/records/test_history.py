"""A history in a cluster in memory: it goes on, is read, survives broken writes, and never fails a run."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from mlstack.app.app import Environment
from mlstack.deploy.history import History, Revision, exists
from mlstack.errors import ClusterError, NotFoundError, TransientError
from mlstack.kube.client import Applied, ObjectRef
from mlstack.objects.kube_object import DesiredState
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock
from tests.support.revisions import revision, state


class Flaky(MemoryCluster):
    """A cluster that answers creations with the errors it is given, one after the other."""

    errors: list[ClusterError]

    def create(self, obj: Mapping[str, Any], **options: Any) -> Applied:
        """Create an object, unless an error is next."""
        if getattr(self, "errors", None) and obj["kind"] == "Secret":
            raise self.errors.pop(0)
        return super().create(obj, **options)


@pytest.fixture
def cluster() -> Flaky:
    """An empty cluster with namespace `ml`."""
    made = Flaky(load_schemas("1.36"), clock=VirtualClock())
    made.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    return made


@pytest.fixture
def kept(cluster: Flaky) -> History:
    """The history of environment `gke` of app `demo`."""
    return History(cluster=cluster, app="demo", environment="gke", namespace="ml", clock=VirtualClock())


def write(kept: History, found: DesiredState, *components: str) -> Revision:
    """Write a revision that is news."""
    written = kept.record(draft(*components), found)
    assert written is not None
    return written


def draft(*components: str) -> Revision:
    return replace(revision(0), components=components, version="0.1.0")


def secrets(cluster: MemoryCluster) -> list[str]:
    return sorted(item["metadata"]["name"] for item in cluster.list("v1", "Secret", namespace="ml").items)


def incompressible(size: int) -> DesiredState:
    found = state(a="x")
    text = random.Random(1).randbytes(size).hex()
    return replace(
        found, objects=tuple(each.with_data({**each.data, "data": text}) for each in found.objects)
    )


def test_a_revision_is_written_and_read(kept: History, cluster: Flaky) -> None:
    written = write(kept, state(a="x y"), "a")
    assert kept.revisions() == (written,)
    assert (written.number, written.objects, written.parts) == (1, 2, 1)
    assert [each.name for each in kept.load(written).objects] == ["x", "y"]
    assert secrets(cluster) == ["mlstack-demo.gke.r1"]


def test_a_set_of_any_size_is_kept(kept: History, cluster: Flaky) -> None:
    big = incompressible(2_000_000)
    written = write(kept, big, "a")
    assert secrets(cluster) == [f"mlstack-demo.gke.r1{part}" for part in ("", ".2", ".3")]
    assert kept.load(written).objects[0].data == big.objects[0].data


def test_the_last_ten_stay_and_numbers_go_on(kept: History, cluster: Flaky) -> None:
    for _ in range(13):
        kept.record(draft("a"), state(a="x"))
    assert [each.number for each in kept.revisions()] == list(range(4, 14))
    assert len(secrets(cluster)) == 10


def test_a_part_of_the_components_makes_a_whole_set(kept: History) -> None:
    kept.record(draft("a", "b"), state(a="x", b="y"))
    second = kept.record(draft("b"), state(b="z"), selective=True)
    assert second is not None
    assert [each.name for each in kept.load(second).objects] == ["x", "z"]
    assert second.components == ("b",)


def test_what_failed_before_stays_known_until_it_is_applied_well(kept: History) -> None:
    kept.record(replace(draft("a", "b"), result="failed"), state(a="x", b="y"))
    kept.record(draft("b"), state(b="y"), selective=True)
    assert not kept.revisions()[-1].is_good
    kept.record(draft("a"), state(a="x"), selective=True)
    assert kept.revisions()[-1].is_good


def test_a_broken_revision_is_not_offered_and_cleaned_up(kept: History, cluster: Flaky) -> None:
    kept.record(draft("a"), state(a="x"))
    cluster.errors = []
    original, cluster.create = cluster.create, _dying(cluster, after=1)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        kept.record(draft("a"), incompressible(1_000_000))
    cluster.create = original  # type: ignore[method-assign]
    assert secrets(cluster) == ["mlstack-demo.gke.r1", "mlstack-demo.gke.r2.2"]
    assert [each.number for each in kept.revisions()] == [1]
    kept.record(draft("a"), state(a="y"))
    assert secrets(cluster) == ["mlstack-demo.gke.r1", "mlstack-demo.gke.r3"]


def _dying(cluster: MemoryCluster, *, after: int) -> Any:
    """Create so many objects, then end as a killed process does."""
    created: list[Mapping[str, Any]] = []

    def create(obj: Mapping[str, Any], **options: Any) -> Applied:
        if len(created) == after:
            raise KeyboardInterrupt
        created.append(obj)
        return MemoryCluster.create(cluster, obj, **options)

    return create


def test_a_number_that_is_taken_meanwhile_is_passed_over(kept: History, cluster: Flaky) -> None:
    metadata = {"name": "mlstack-demo.gke.r1", "namespace": "ml"}
    cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    assert write(kept, state(a="x"), "a").number == 2


def test_what_somebody_wrote_after_it_was_read_ahead_is_passed_over(kept: History, cluster: Flaky) -> None:
    early = kept.read_ahead()
    assert early.revisions() == ()
    write(kept, state(a="x"), "a")
    assert write(early, state(a="y"), "a").number == 2
    assert secrets(cluster) == ["mlstack-demo.gke.r1", "mlstack-demo.gke.r2"]


def test_a_history_that_could_not_be_read_ahead_is_read_when_it_is_needed(kept: History) -> None:
    def unreadable() -> NoReturn:
        raise TransientError("too many requests")

    write(kept, state(a="x"), "a")
    assert write(replace(kept, ahead=unreadable), state(a="y"), "a").number == 2


def test_a_busy_server_is_asked_again(kept: History, cluster: Flaky) -> None:
    cluster.errors = [TransientError("too many requests")] * 3
    assert write(kept, state(a="x"), "a").number == 1


def test_a_number_nobody_has_is_not_found(kept: History) -> None:
    with pytest.raises(NotFoundError, match="has no revision 1; no history is kept"):
        kept.find(1)
    kept.record(draft("a"), state(a="x"))
    assert kept.find(1).number == 1
    with pytest.raises(NotFoundError, match="has no revision 7; there are 1 to 1"):
        kept.find(7)


def test_a_secret_that_was_emptied_is_damage(kept: History, cluster: Flaky) -> None:
    written = write(kept, state(a="x"), "a")
    ref = ObjectRef("v1", "Secret", "ml", "mlstack-demo.gke.r1")
    live = cluster.get(ref)
    assert live is not None
    cluster.delete(ref)
    cluster.create({**live, "data": {}, "metadata": {"name": ref.name, "namespace": "ml"}})
    with pytest.raises(ClusterError, match="revision 1 is damaged"):
        kept.load(written)


def test_histories_of_two_environments_are_apart(kept: History, cluster: Flaky) -> None:
    other = replace(kept, environment="minikube")
    kept.record(draft("a"), state(a="x"))
    other.record(draft("a"), replace(state(a="y"), environment="minikube"))
    kept.forget()
    assert kept.revisions() == ()
    assert [each.number for each in other.revisions()] == [1]


def test_names_that_labels_cannot_tell_apart_have_histories_apart(kept: History) -> None:
    nested, dotted = replace(kept, environment="us/gke"), replace(kept, environment="us.gke")
    nested.record(draft("a"), state(a="x"))
    assert dotted.revisions() == ()
    dotted.record(draft("a"), state(a="x"))
    assert [each.number for each in nested.revisions()] == [1]


def test_a_set_that_is_known_already_is_no_news(kept: History) -> None:
    kept.record(draft("a", "b"), state(a="x", b="y"))
    assert kept.record(draft("a", "b"), state(b="y", a="x"), if_news=True) is None
    assert kept.record(draft("b"), state(b="y"), selective=True, if_news=True) is None
    assert kept.record(draft("b"), state(b="z"), selective=True, if_news=True) is not None


def test_that_a_set_works_by_now_is_news(kept: History) -> None:
    kept.record(replace(draft("a"), result="not ready"), state(a="x"))
    settled = kept.record(draft("a"), state(a="x"), if_news=True)
    assert settled is not None
    assert settled.is_good


def test_a_deleted_component_is_no_part_of_the_next_set(kept: History) -> None:
    assert kept.record_removal(draft("b")) is None
    kept.record(replace(draft("a", "b"), result="failed"), state(a="x", b="y"))
    after = kept.record_removal(draft("b"))
    assert after is not None
    assert [each.name for each in kept.load(after).objects] == ["x"]
    assert after.unsettled == ("a",)


def test_an_environment_has_a_past_once_a_revision_was_written(kept: History, cluster: Flaky) -> None:
    place = Environment(name="gke", namespace="ml")
    assert not exists("demo", place, cluster)
    kept.record(draft("a"), state(a="x"))
    assert exists("demo", place, cluster)
