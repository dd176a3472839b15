"""Sets of a history: merged, cut down, and with claims as they are."""

from dataclasses import replace

import pytest

from mlstack.deploy import history, rollback
from mlstack.deploy.history import Result
from mlstack.objects.kube_object import DesiredState, KubeObject
from tests.support.deploying import crd
from tests.support.revisions import one, revision, state


def names(found: DesiredState) -> list[str]:
    return [each.name for each in found.objects]


def test_an_applied_component_takes_the_place_of_what_it_was() -> None:
    whole = history.merged(state(a="x y", b="z"), state(a="y new"))
    assert names(whole) == ["z", "y", "new"]
    assert whole.components == ("a", "b")


def test_an_object_that_moved_to_the_applied_component_is_there_once() -> None:
    whole = history.merged(state(a="x", b="y"), state(a="x y"))
    assert [(each.name, each.component) for each in whole.objects] == [("x", "a"), ("y", "a")]


def test_an_applied_component_forgets_its_timeout_and_dependencies_of_before() -> None:
    known = replace(state(a="x", b="y"), timeouts={"a": 60.0, "b": 90.0}, depends={"a": ("b",), "b": ("c",)})
    whole = history.merged(known, state(a="x"))
    assert whole.timeouts == {"b": 90.0}
    assert whole.depends == {"b": ("c",)}


def test_a_set_without_a_component_and_one_of_it_alone() -> None:
    whole = state(a="x", b="y")
    assert (names(history.without(whole, ["a"])), history.without(whole, ["a"]).components) == (["y"], ("b",))
    assert (names(history.only(whole, ["a"])), history.only(whole, ["a"]).components) == (["x"], ("a",))


def test_a_component_that_a_set_lacks_is_still_asked_about() -> None:
    assert history.only(state(a="x"), ["new"]).components == ("new",)


@pytest.mark.parametrize(
    ("result", "applied", "left"),
    [
        ("done", ["b"], ()),
        ("done", ["a"], ("b",)),
        ("failed", ["a"], ("a", "b")),
        ("not ready", ["b"], ("b",)),
    ],
)
def test_a_component_is_unsettled_until_it_was_applied_well(
    result: Result, applied: list[str], left: tuple[str, ...]
) -> None:
    before = revision(1, result="failed", unsettled=("b",))
    assert history.unsettled(before, applied, result) == left


def test_the_last_good_revision_is_one_of_which_everything_worked() -> None:
    known = [revision(1), revision(2, unsettled=("a",)), revision(3, result="not ready", unsettled=("a",))]
    found = history.last_good(known)
    assert found is not None
    assert found.number == 1
    assert history.last_good(known[1:]) is None


def test_for_some_components_the_others_need_not_have_worked() -> None:
    known = [revision(1), revision(2, result="failed", unsettled=("a",)), revision(3, unsettled=("…",))]
    of_a, of_b = history.last_good(known, ["a"]), history.last_good(known, ["b"])
    assert of_a is not None
    assert of_b is not None
    assert (of_a.number, of_b.number) == (1, 2)


def test_a_claim_stays_as_it_is_now_and_is_told() -> None:
    def claims(**size: str) -> DesiredState:
        made = tuple(one(name, kind="PersistentVolumeClaim", storage=value) for name, value in size.items())
        return DesiredState(app="demo", environment="gke", namespace="ml", objects=made)

    mixed, told = rollback.earlier_state(claims(data="1Gi", old="1Gi"), claims(data="5Gi", later="1Gi"))
    assert [each.data["spec"]["storage"] for each in mixed.objects] == ["5Gi", "1Gi"]
    assert told == ("PersistentVolumeClaim ml/data stays as it is: a claim is not rolled back",)


def versions(*names: str, **fields: str) -> DesiredState:
    """Build a set of one definition."""
    made = crd(group="x.org")
    version = made["spec"]["versions"][0]
    made["spec"]["versions"] = [{**version, "name": name, "storage": name == names[0]} for name in names]
    found = KubeObject(data={**made, "metadata": {**made["metadata"], **fields}}, component="a")
    return DesiredState(app="demo", environment="gke", namespace="ml", objects=(found,))


def test_a_definition_that_would_lose_a_version_stays_as_it_is() -> None:
    today = versions("v1", "v2")
    mixed, told = rollback.earlier_state(versions("v1"), today)
    assert mixed.objects == today.objects
    assert told[0].startswith("CustomResourceDefinition widgets.x.org stays as it is: going back would lose")


def test_a_definition_that_loses_nothing_goes_back() -> None:
    earlier = versions("v1", "v2")
    mixed, told = rollback.earlier_state(earlier, versions("v1"))
    assert mixed.objects == earlier.objects
    assert told == ()


def test_times_are_written_in_utc() -> None:
    assert history.timestamp(1_800_000_000.9) == "2027-01-15T08:00:00Z"
