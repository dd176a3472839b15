"""Laws of histories: what is kept comes back, whatever is broken off is never offered."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mlstack.deploy import history
from mlstack.deploy.history import Revision
from mlstack.objects.kube_object import DesiredState, Identity, KubeObject
from tests.support.revisions import revision

TEXT = st.text(max_size=8)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
COMPONENTS = st.sampled_from(["a", "b", "c"])


@st.composite
def sets(draw: st.DrawFn) -> DesiredState:
    names = draw(st.lists(st.text("xyz", min_size=1, max_size=2), unique=True, max_size=5))
    objects = tuple(
        KubeObject(
            data={"kind": "X", "apiVersion": "v1", "metadata": {"name": name}, "spec": draw(PLAIN)},
            component=draw(COMPONENTS),
        )
        for name in names
    )
    components = tuple(sorted({obj.component for obj in objects}))
    return DesiredState(app="demo", environment="gke", namespace="ml", objects=objects, components=components)


def identity(obj: KubeObject) -> Identity:
    return obj.identity


def content(state: DesiredState) -> list[object]:
    return [(obj.component, obj.data) for obj in state.objects]


@given(sets(), st.integers(1, 60))
def test_unpack_undoes_pack_however_it_is_split(state: DesiredState, part_bytes: int) -> None:
    facts, parts = history.encode(revision(1), state, part_bytes=part_bytes)
    assert all(0 < len(part) <= part_bytes for part in parts)
    back = history.decode(facts, parts)
    assert content(back) == content(replace(state, objects=tuple(sorted(state.objects, key=identity))))


@given(sets(), st.lists(COMPONENTS))
def test_applying_what_is_known_anew_gives_an_equal_set(state: DesiredState, components: list[str]) -> None:
    there = [name for name in components if name in state.components]
    again = history.merged(state, history.only(state, there))
    assert history.encode(revision(1), again) == history.encode(revision(1), state)


@given(sets(), sets())
def test_a_merged_set_has_the_applied_components_as_applied_and_the_others_as_known(
    before: DesiredState, applied: DesiredState
) -> None:
    whole = history.merged(before, applied)
    assert content(history.only(whole, applied.components)) == content(applied)
    fresh = {obj.identity for obj in applied.objects}
    others = [obj for obj in history.without(before, applied.components).objects if obj.identity not in fresh]
    assert content(history.without(whole, applied.components)) == content(
        replace(before, objects=tuple(others))
    )
    assert len({obj.identity for obj in whole.objects}) == len(whole.objects)


@st.composite
def histories(draw: st.DrawFn) -> list[Revision]:
    numbers = draw(st.lists(st.integers(1, 99), unique=True, max_size=15))
    return [
        replace(
            revision(number, parts=draw(st.integers(1, 3))), result=draw(st.sampled_from(["done", "failed"]))
        )
        for number in sorted(numbers)
    ]


def written(revision: Revision) -> list[dict[str, object]]:
    secrets = history.secrets_of(
        revision, (b"x",) * revision.parts, namespace="ml", app="demo", environment="gke"
    )
    return list(secrets)


@given(histories(), st.data())
def test_wherever_writing_or_deleting_ends_only_whole_revisions_are_offered(
    revisions: list[Revision], data: st.DataObject
) -> None:
    items = [item for revision in revisions for item in written(revision)]
    there = data.draw(st.lists(st.sampled_from(items), unique_by=id)) if items else []
    offered = history.revisions(there)
    for offer in offered:
        assert all(item in there for item in written(offer))
    going = history.outdated(there)
    left = [item for item in there if item["metadata"]["name"] not in going]  # type: ignore[index]
    assert all(revision in offered for revision in history.revisions(left))
    assert len(history.revisions(left)) == min(len(offered), history.KEPT)
    assert history.outdated(left) == ()
    assert history.next_number(there) > max((revision.number for revision in offered), default=0)


@given(histories())
def test_the_newest_that_worked_is_never_let_go(revisions: list[Revision]) -> None:
    items = [item for revision in revisions for item in written(revision)]
    going = history.outdated(items)
    left = history.revisions([item for item in items if item["metadata"]["name"] not in going])  # type: ignore[index]
    assert history.last_good_revision(left) == history.last_good_revision(revisions)
