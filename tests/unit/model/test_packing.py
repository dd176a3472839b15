"""How revisions lie in Secrets: split, joined, found, and dropped when they are old or broken."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from mlstack.deploy import history
from mlstack.deploy.history import PART_BYTES, EncodedRevision, Revision
from mlstack.errors import ClusterError
from mlstack.objects.kube_object import DesiredState
from tests.support.revisions import revision, state

NAME = "mlstack-demo.gke"


def noise(size: int) -> DesiredState:
    """Build a set that no compression makes smaller."""
    found = state(a="x")
    text = random.Random(0).randbytes(size).hex()
    return replace(
        found, objects=tuple(each.with_data({**each.data, "data": text}) for each in found.objects)
    )


def packed_revision(number: int, packed: EncodedRevision) -> Revision:
    return replace(
        revision(number), digest=packed.digest, size_bytes=packed.size_bytes, parts=len(packed.parts)
    )


def secrets(found: Revision, packed: EncodedRevision | None = None) -> list[dict[str, Any]]:
    made = history.secrets(
        found,
        packed or EncodedRevision(parts=(b"x",) * found.parts, digest="", size_bytes=0),
        namespace="ml",
        app="demo",
        environment="gke",
    )
    return list(made)


def named(items: list[dict[str, Any]]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


def metadata(items: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    return [{"metadata": item["metadata"]} for item in items]


def test_a_set_comes_back_as_it_was() -> None:
    kept = state(a="x y", b="z")
    packed = history.encode(kept)
    back = history.decode(packed_revision(1, packed), packed.parts)
    assert [(each.component, each.data) for each in back.objects] == [
        (each.component, each.data) for each in kept.objects
    ]
    assert (back.app, back.environment, back.namespace) == ("demo", "gke", "ml")
    assert back.components == ("a", "b")
    assert str(back.objects[0].source) == "revision 1"


def test_what_a_run_needs_to_know_of_components_comes_back() -> None:
    whole = replace(state(a="x", b="y"), timeouts={"a": 90.0}, depends={"a": ("b",)})
    packed = history.encode(whole)
    back = history.decode(packed_revision(1, packed), packed.parts)
    assert (back.timeouts, back.depends) == (whole.timeouts, whole.depends)


def test_the_same_set_gives_the_same_bytes_whatever_the_order_of_its_keys() -> None:
    kept = state(a="x")
    turned = replace(
        kept, objects=tuple(each.with_data(dict(reversed(each.data.items()))) for each in kept.objects)
    )
    assert history.encode(kept) == history.encode(turned)


def test_a_set_too_large_for_one_secret_is_split_and_joined() -> None:
    kept = noise(1_500_000)
    packed = history.encode(kept)
    assert len(packed.parts) == 2
    assert max(map(len, packed.parts)) == PART_BYTES
    made = secrets(packed_revision(7, packed), packed)
    assert named(made) == [f"{NAME}.r7.2", f"{NAME}.r7"], "what makes it a revision comes last"
    parts = {item["metadata"]["name"]: history.content_of(item, 7) for item in made}
    found = history.revisions(metadata(made))[0]
    back = history.decode(found, [parts[name] for name in history.part_names(NAME, 7, found.parts)])
    assert back.objects[0].data == kept.objects[0].data


def test_the_secrets_carry_the_marks_of_the_environment_and_no_other_kind_of_secret() -> None:
    made = secrets(revision(1))[0]
    assert made["type"] == "mlstack.dev/history"
    assert made["immutable"] is True
    assert made["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "mlstack",
        "app.kubernetes.io/part-of": "demo",
        "mlstack.dev/app": "demo",
        "mlstack.dev/environment": "gke",
        "mlstack.dev/revision": "1",
    }


def test_facts_come_back_from_the_metadata_alone() -> None:
    known = replace(
        revision(3, unsettled=("b",)),
        result="failed",
        components=("a", "b"),
        counts={"created": 2, "failed": 1},
        objects=3,
        version="0.1.0",
        digest="sha256:0",
        size_bytes=9,
    )
    assert history.revisions(metadata(secrets(known))) == (known,)


def test_facts_of_very_many_components_still_fit_into_an_annotation() -> None:
    names = tuple(f"component-{number:06}" for number in range(20_000))
    known = replace(revision(1), components=names, unsettled=names, what=f"apply -c {','.join(names)}")
    made = secrets(known)
    assert len(made[0]["metadata"]["annotations"][history.FACTS]) < 1000
    found = history.revisions(metadata(made))[0]
    assert (found.components, found.unsettled, found.is_good) == ((), ("…",), False)


def test_a_revision_without_its_last_secret_is_not_offered_and_goes() -> None:
    whole, broken = secrets(revision(1)), secrets(revision(2, parts=3))[:-1]
    items = metadata([*broken, *whole])
    assert [each.number for each in history.revisions(items)] == [1]
    assert history.outdated(items) == (f"{NAME}.r2.2", f"{NAME}.r2.3")
    assert history.next_number(items) == 3


def test_a_revision_that_lost_a_part_is_not_offered_and_goes() -> None:
    items = metadata(secrets(revision(2, parts=3))[1:])
    assert history.revisions(items) == ()
    assert history.outdated(items) == (f"{NAME}.r2", f"{NAME}.r2.3")


def test_ten_revisions_stay_with_all_their_parts() -> None:
    items = metadata([item for number in range(3, 15) for item in secrets(revision(number, parts=2))])
    assert history.outdated(items) == (f"{NAME}.r3", f"{NAME}.r3.2", f"{NAME}.r4", f"{NAME}.r4.2")


def test_the_last_one_that_worked_outlives_ten_that_failed() -> None:
    failed = [revision(number, result="failed", unsettled=("a",)) for number in range(2, 13)]
    items = metadata([item for each in (revision(1), *failed) for item in secrets(each)])
    assert history.outdated(items) == (f"{NAME}.r2", f"{NAME}.r3")


def test_what_a_later_version_wrote_is_not_offered_and_stays() -> None:
    strange = secrets(revision(1))
    strange[0]["metadata"]["annotations"][history.FACTS] = '{"form": 2}'
    items = metadata([*strange, *secrets(revision(2))])
    assert [each.number for each in history.revisions(items)] == [2]
    assert history.outdated(items) == ()


def test_the_first_number_is_one_and_marks_without_a_number_count_for_nothing() -> None:
    assert history.next_number([]) == 1
    assert history.next_number([{"metadata": {"name": "x", "labels": {"mlstack.dev/revision": "x"}}}]) == 1


@pytest.mark.parametrize(
    "parts",
    [(b"no gzip",), (), (history.encode(state(a="other")).parts[0],)],
    ids=["noise", "none", "another"],
)
def test_a_damaged_revision_is_refused(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(ClusterError, match="revision 1 is damaged"):
        history.decode(packed_revision(1, history.encode(state(a="x"))), parts)


@pytest.mark.parametrize("secret", [{}, {"data": None}, {"data": {history.CONTENT: "§"}}])
def test_a_secret_that_holds_none_of_ours_is_refused(secret: dict[str, Any]) -> None:
    with pytest.raises(ClusterError, match="revision 4 is damaged"):
        history.content_of(secret, 4)
