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
    components = tuple(sorted({one.component for one in objects}))
    return DesiredState(app="demo", environment="gke", namespace="ml", objects=objects, components=components)


def identity(found: KubeObject) -> Identity:
    return found.identity


def content(found: DesiredState) -> list[object]:
    return [(one.component, one.data) for one in found.objects]


@given(sets(), st.integers(1, 60))
def test_unpack_undoes_pack_however_it_is_split(kept: DesiredState, part_bytes: int) -> None:
    facts, parts = history.encode(revision(1), kept, part_bytes=part_bytes)
    assert all(0 < len(part) <= part_bytes for part in parts)
    back = history.decode(facts, parts)
    assert content(back) == content(replace(kept, objects=tuple(sorted(kept.objects, key=identity))))


@given(sets(), st.lists(COMPONENTS))
def test_applying_what_is_known_anew_gives_an_equal_set(kept: DesiredState, components: list[str]) -> None:
    there = [name for name in components if name in kept.components]
    again = history.merged(kept, history.only(kept, there))
    assert history.encode(revision(1), again) == history.encode(revision(1), kept)


@given(sets(), sets())
def test_a_merged_set_has_the_applied_components_as_applied_and_the_others_as_known(
    known: DesiredState, applied: DesiredState
) -> None:
    whole = history.merged(known, applied)
    assert content(history.only(whole, applied.components)) == content(applied)
    fresh = {one.identity for one in applied.objects}
    others = [one for one in history.without(known, applied.components).objects if one.identity not in fresh]
    assert content(history.without(whole, applied.components)) == content(
        replace(known, objects=tuple(others))
    )
    assert len({one.identity for one in whole.objects}) == len(whole.objects)


@st.composite
def histories(draw: st.DrawFn) -> list[Revision]:
    numbers = draw(st.lists(st.integers(1, 99), unique=True, max_size=15))
    return [
        replace(
            revision(number, parts=draw(st.integers(1, 3))), result=draw(st.sampled_from(["done", "failed"]))
        )
        for number in sorted(numbers)
    ]


def written(found: Revision) -> list[dict[str, object]]:
    made = history.secrets_of(
        found,
        (b"x",) * found.parts,
        namespace="ml",
        app="demo",
        environment="gke",
    )
    return list(made)


@given(histories(), st.data())
def test_wherever_writing_or_deleting_ends_only_whole_revisions_are_offered(
    known: list[Revision], data: st.DataObject
) -> None:
    items = [item for one in known for item in written(one)]
    there = data.draw(st.lists(st.sampled_from(items), unique_by=id)) if items else []
    offered = history.revisions(there)
    for one in offered:
        assert all(item in there for item in written(one))
    going = history.outdated(there)
    left = [item for item in there if item["metadata"]["name"] not in going]  # type: ignore[index]
    assert all(one in offered for one in history.revisions(left))
    assert len(history.revisions(left)) == min(len(offered), history.KEPT)
    assert history.outdated(left) == ()
    assert history.next_number(there) > max((one.number for one in offered), default=0)


@given(histories())
def test_the_newest_that_worked_is_never_let_go(known: list[Revision]) -> None:
    items = [item for one in known for item in written(one)]
    going = history.outdated(items)
    left = history.revisions([item for item in items if item["metadata"]["name"] not in going])  # type: ignore[index]
    assert history.last_good_revision(left) == history.last_good_revision(known)
