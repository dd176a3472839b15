"""The history of an environment: its sets, the Secrets that hold them, and their life in a cluster."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from mlstack.app.environment import Environment
from mlstack.clock import timestamp
from mlstack.deploy import history
from mlstack.deploy.history import History, Revision
from mlstack.errors import ClusterError, NotFoundError, TransientError
from mlstack.kube.client import Applied
from mlstack.objects.kube_object import DesiredState
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock
from tests.support.revisions import revision, state

NAME = "mlstack-demo.gke"


# --- sets ---


def test_an_applied_component_forgets_its_timeout_and_dependencies_of_before() -> None:
    before = replace(state(a="x", b="y"), timeouts={"a": 60.0, "b": 90.0}, depends={"a": ("b",), "b": ("c",)})
    whole = history.merged(before, state(a="x"))
    assert whole.timeouts == {"b": 90.0}
    assert whole.depends == {"b": ("c",)}


def test_for_some_components_the_others_need_not_have_worked() -> None:
    revisions = [revision(1), revision(2, result="failed", unsettled=("a",)), revision(3, unsettled=("…",))]
    of_a, of_b = history.last_good_revision(revisions, ["a"]), history.last_good_revision(revisions, ["b"])
    assert of_a is not None
    assert of_b is not None
    assert (of_a.number, of_b.number) == (1, 2)


def test_times_are_written_in_utc() -> None:
    assert timestamp(1_800_000_000.9) == "2027-01-15T08:00:00Z"


# --- codec ---


def secrets_of(revision: Revision) -> list[dict[str, Any]]:
    parts = (b"x",) * revision.parts
    return list(history.secrets_of(revision, parts, namespace="ml", app="demo", environment="gke"))


def metadata(items: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    return [{"metadata": item["metadata"]} for item in items]


def test_what_a_run_needs_to_know_of_components_comes_back_from_the_same_bytes() -> None:
    whole = replace(state(a="x", b="y"), timeouts={"a": 90.0}, depends={"a": ("b",)})
    encoded = history.encode(revision(1), whole)
    back = history.decode(*encoded)
    assert (back.app, back.environment, back.namespace, back.components) == ("demo", "gke", "ml", ("a", "b"))
    assert (back.timeouts, back.depends) == (whole.timeouts, whole.depends)
    assert str(back.objects[0].source) == "revision 1"
    turned = tuple(obj.with_data(dict(reversed(obj.data.items()))) for obj in whole.objects)
    assert history.encode(revision(1), replace(whole, objects=turned)) == encoded


def test_the_secrets_carry_the_marks_of_the_environment_and_no_other_kind_of_secret() -> None:
    secret = secrets_of(revision(1))[0]
    assert secret["type"] == "mlstack.dev/history"
    assert secret["immutable"] is True
    assert secret["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "mlstack",
        "app.kubernetes.io/part-of": "demo",
        "mlstack.dev/app": "demo",
        "mlstack.dev/environment": "gke",
        "mlstack.dev/revision": "1",
    }


def test_facts_come_back_from_the_metadata_alone() -> None:
    recorded = replace(
        revision(3, unsettled=("b",)),
        result="failed",
        components=("a", "b"),
        counts={"created": 2, "failed": 1},
        objects=3,
        version="0.1.0",
        digest="sha256:0",
        size_bytes=9,
    )
    assert history.revisions(metadata(secrets_of(recorded))) == (recorded,)


def test_facts_of_very_many_components_still_fit_into_an_annotation() -> None:
    names = tuple(f"component-{number:06}" for number in range(20_000))
    recorded = replace(revision(1), components=names, unsettled=names, what=f"apply -c {','.join(names)}")
    secrets = secrets_of(recorded)
    assert len(secrets[0]["metadata"]["annotations"][history.FACTS]) < 1000
    loaded = history.revisions(metadata(secrets))[0]
    assert (loaded.components, loaded.unsettled, loaded.is_good) == ((), ("…",), False)


def test_a_revision_that_lost_a_part_is_not_offered_and_goes() -> None:
    items = metadata(secrets_of(revision(2, parts=3))[1:])
    assert history.revisions(items) == ()
    assert history.outdated(items) == (f"{NAME}.r2", f"{NAME}.r2.3")


def test_ten_revisions_stay_with_all_their_parts() -> None:
    items = metadata([item for number in range(3, 15) for item in secrets_of(revision(number, parts=2))])
    assert history.outdated(items) == (f"{NAME}.r3", f"{NAME}.r3.2", f"{NAME}.r4", f"{NAME}.r4.2")


def test_the_last_one_that_worked_outlives_ten_that_failed() -> None:
    failed = [revision(number, result="failed", unsettled=("a",)) for number in range(2, 13)]
    items = metadata([item for written in (revision(1), *failed) for item in secrets_of(written)])
    assert history.outdated(items) == (f"{NAME}.r2", f"{NAME}.r3")


def test_what_a_later_version_wrote_is_not_offered_and_stays() -> None:
    strange = secrets_of(revision(1))
    strange[0]["metadata"]["annotations"][history.FACTS] = '{"form": 2}'
    items = metadata([*strange, *secrets_of(revision(2))])
    assert [revision.number for revision in history.revisions(items)] == [2]
    assert history.outdated(items) == ()


def test_the_first_number_is_one_and_marks_without_a_number_count_for_nothing() -> None:
    assert history.next_number([]) == 1
    assert history.next_number([{"metadata": {"name": "x", "labels": {"mlstack.dev/revision": "x"}}}]) == 1


@pytest.mark.parametrize(
    "parts",
    [(b"no gzip",), (), (history.encode(revision(1), state(a="other"))[1][0],)],
    ids=["noise", "none", "another"],
)
def test_a_damaged_revision_is_refused(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(ClusterError, match="revision 1 is damaged"):
        history.decode(history.encode(revision(1), state(a="x"))[0], parts)


@pytest.mark.parametrize("secret", [{}, {"data": None}, {"data": {history.CONTENT: "§"}}])
def test_a_secret_that_holds_none_of_ours_is_refused(secret: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="revision 4 is damaged"):
        history.content_of(secret, 4)


# --- store ---


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
    cluster = Flaky(load_schemas("1.36"), clock=VirtualClock())
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    return cluster


@pytest.fixture
def store(cluster: Flaky) -> History:
    """The history of environment `gke` of app `demo`."""
    return History(cluster=cluster, app="demo", environment="gke", namespace="ml")


def write(store: History, applied: DesiredState, *components: str) -> Revision:
    """Write a revision that is news."""
    written = store.record(draft(*components), applied)
    assert written is not None
    return written


def draft(*components: str) -> Revision:
    return replace(revision(0), components=components, version="0.1.0")


def secrets(cluster: MemoryCluster) -> list[str]:
    return sorted(item["metadata"]["name"] for item in cluster.list("v1", "Secret", namespace="ml").items)


def incompressible(size: int) -> DesiredState:
    whole = state(a="x")
    text = random.Random(1).randbytes(size).hex()
    objects = tuple(obj.with_data({**obj.data, "data": text}) for obj in whole.objects)
    return replace(whole, objects=objects)


def test_a_set_of_any_size_is_kept(store: History, cluster: Flaky) -> None:
    big = incompressible(2_000_000)
    written = write(store, big, "a")
    assert secrets(cluster) == [f"{NAME}.r1{part}" for part in ("", ".2", ".3")]
    assert store.load(written).objects[0].data == big.objects[0].data


def test_the_last_ten_stay_and_numbers_go_on(store: History, cluster: Flaky) -> None:
    for _ in range(13):
        store.record(draft("a"), state(a="x"))
    assert [revision.number for revision in store.revisions()] == list(range(4, 14))
    assert len(secrets(cluster)) == 10


def test_a_broken_revision_is_not_offered_and_cleaned_up(store: History, cluster: Flaky) -> None:
    store.record(draft("a"), state(a="x"))
    cluster.errors = []
    original, cluster.create = cluster.create, _dying(cluster, after=1)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        store.record(draft("a"), incompressible(1_000_000))
    cluster.create = original  # type: ignore[method-assign]
    assert secrets(cluster) == ["mlstack-demo.gke.r1", "mlstack-demo.gke.r2.2"]
    assert [revision.number for revision in store.revisions()] == [1]
    store.record(draft("a"), state(a="y"))
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


def test_a_number_that_is_taken_meanwhile_is_passed_over(store: History, cluster: Flaky) -> None:
    metadata = {"name": "mlstack-demo.gke.r1", "namespace": "ml"}
    cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    assert write(store, state(a="x"), "a").number == 2


def test_what_somebody_wrote_after_it_was_read_ahead_is_passed_over(store: History, cluster: Flaky) -> None:
    early = store.read_ahead()
    assert early.revisions() == ()
    write(store, state(a="x"), "a")
    assert write(early, state(a="y"), "a").number == 2
    assert secrets(cluster) == ["mlstack-demo.gke.r1", "mlstack-demo.gke.r2"]


def test_a_history_that_could_not_be_read_ahead_is_read_when_it_is_needed(store: History) -> None:
    def unreadable() -> NoReturn:
        raise TransientError("too many requests")

    write(store, state(a="x"), "a")
    assert write(replace(store, ahead=unreadable), state(a="y"), "a").number == 2


def test_a_number_nobody_has_is_not_found(store: History) -> None:
    with pytest.raises(NotFoundError, match="has no revision 1; no history is kept"):
        store.find(1)
    store.record(draft("a"), state(a="x"))
    assert store.find(1).number == 1
    with pytest.raises(NotFoundError, match="has no revision 7; there are 1 to 1"):
        store.find(7)


def test_histories_of_two_environments_are_apart(store: History, cluster: Flaky) -> None:
    other = replace(store, environment="minikube")
    store.record(draft("a"), state(a="x"))
    other.record(draft("a"), replace(state(a="y"), environment="minikube"))
    store.forget()
    assert store.revisions() == ()
    assert [revision.number for revision in other.revisions()] == [1]


def test_names_that_labels_cannot_tell_apart_have_histories_apart(store: History) -> None:
    nested, dotted = replace(store, environment="us/gke"), replace(store, environment="us.gke")
    nested.record(draft("a"), state(a="x"))
    assert dotted.revisions() == ()
    dotted.record(draft("a"), state(a="x"))
    assert [revision.number for revision in nested.revisions()] == [1]


def test_a_set_that_is_known_already_is_no_news(store: History) -> None:
    store.record(draft("a", "b"), state(a="x", b="y"))
    assert store.record(draft("a", "b"), state(b="y", a="x"), if_news=True) is None
    assert store.record(draft("b"), state(b="y"), selective=True, if_news=True) is None
    assert store.record(draft("b"), state(b="z"), selective=True, if_news=True) is not None


def test_that_a_set_works_by_now_is_news(store: History) -> None:
    store.record(replace(draft("a"), result="not ready"), state(a="x"))
    settled = store.record(draft("a"), state(a="x"), if_news=True)
    assert settled is not None
    assert settled.is_good


def test_an_environment_has_a_past_once_a_revision_was_written(store: History, cluster: Flaky) -> None:
    place = Environment(name="gke", namespace="ml")
    assert not History.of("demo", place, cluster).exists()
    store.record(draft("a"), state(a="x"))
    assert History.of("demo", place, cluster).exists()
