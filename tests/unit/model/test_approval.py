"""What was approved, and what is said of everything that has moved since."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.app.app import ClusterIdentity
from mlstack.deploy import approve
from mlstack.deploy.approve import Approval, PlanDigest
from mlstack.deploy.changes import Change, Changes
from mlstack.objects.kube_object import Identity
from mlstack.objects.managed_fields import FieldChange

SEAL = PlanDigest("0" * 32, costly=False)
WEB = Identity("apps", "Deployment", "ml", "web")


def change(action: Any = "update", *, identity: Identity = WEB, uid: str = "u1", **facts: Any) -> Change:
    fields = (
        (FieldChange(path="spec.replicas", action="changed", old=1, new=2),) if action == "update" else ()
    )
    return Change(
        identity=identity,
        component="web",
        action=action,
        live_uid=uid if action != "create" else "",
        **{"fields": fields, "fingerprint": str(fields), **facts},
    )


def changes(*found: Change) -> Changes:
    return Changes(app="demo", environment="gke", namespace="ml", context="gke", cluster=None, changes=found)


def approval(*found: Change, **facts: Any) -> Approval:
    return Approval(
        **{
            "app": "demo",
            "environment": "gke",
            "context": "gke",
            "namespace": "ml",
            "cluster": ClusterIdentity(uid="c1"),
            "tool": "mlstack/1",
            "created": "2027-01-15T08:00:00Z",
            "salt": SEAL.salt,
            "costly": False,
            "objects": tuple(approve.approved(one, SEAL(one.digest)) for one in found),
            **facts,
        }
    )


def moved(before: Change | None, now: Change) -> tuple[str, ...]:
    held = approval(*([before] if before else []))
    return approve.moved_objects(held, changes(now), {now.identity: SEAL(now.digest)})


@pytest.mark.parametrize("action", ["create", "update", "recreate", "delete", "unchanged", "kept"])
def test_the_same_change_may_be_done(action: Any) -> None:
    assert moved(change(action), change(action)) == ()


@pytest.mark.parametrize("action", ["create", "update", "recreate"])
def test_what_was_done_already_needs_nothing(action: Any) -> None:
    assert moved(change(action), change("unchanged", uid="u1")) == ()


def test_a_deletion_that_nobody_needs_any_more_is_nothing_either() -> None:
    held = approval(change("delete"))
    assert approve.moved_objects(held, changes(), {}) == ()


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, change("create"), "would be created, which the plan does not hold"),
        (None, change("delete"), "would be deleted, which the plan does not hold"),
        (change("unchanged"), change("update"), "would be updated, not left as it is"),
        (change("update"), change("recreate"), "would be made anew, not updated"),
        (change("update"), change("create"), "is gone and would be created, not updated"),
        (change("update"), change("update", uid="u2"), "was deleted and made anew by somebody else"),
        (change("delete"), change("kept"), "would be kept, not deleted"),
        (change("create"), change("missing", uid=""), "would be left missing, not created"),
        (
            change("update"),
            change(fields=(FieldChange(path="spec.paused", action="added", new=True),), fingerprint="x"),
            "differs in another way than when it was approved: `spec.replicas` is as wanted already,"
            " `spec.paused` differs as well",
        ),
        (
            change("create"),
            change("create", fingerprint="other"),
            "differs in another way than when it was approved",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_moved_is_said_object_by_object(before: Change | None, now: Change, said: str) -> None:
    assert moved(before, now) == (f"Deployment ml/web: {said}",)


def test_another_value_of_an_approved_field_is_not_approved() -> None:
    now = change(fields=(FieldChange(path="spec.replicas", action="changed", old=1, new=3),), fingerprint="x")
    assert moved(change(), now) == (
        "Deployment ml/web: differs in another way than when it was approved:"
        " `spec.replicas` has another value",
    )


def test_files_and_packages_that_moved_are_named() -> None:
    held = approval(
        inputs={"app.yaml": "a", "gone.yaml": "b", "same.yaml": "c", "absent.yaml": ""},
        packages={"kubeflow/core@0.1.0": "d"},
    )
    now = {"app.yaml": "A", "same.yaml": "c", "new.yaml": "e", "absent.yaml": ""}
    assert approve.moved_inputs(held, now, {"kubeflow/core@0.1.0": "D"}) == (
        "package `kubeflow/core@0.1.0` has changed",
        "`app.yaml` has changed",
        "`gone.yaml` is not read any more",
        "`new.yaml` is new",
    )


def test_equal_texts_have_equal_seals_under_one_salt_alone() -> None:
    for costly in (False, True):
        one, same, other = (
            PlanDigest("a", costly=costly),
            PlanDigest("a", costly=costly),
            PlanDigest("b", costly=costly),
        )
        assert one("text") == same("text") != other("text")
        assert one("text") != one("texts")
    assert PlanDigest("a", costly=True)("") == ""


def test_a_seal_that_may_hide_a_secret_is_dear_to_guess() -> None:
    assert PlanDigest("a", costly=True)("x").startswith("scrypt:")
    assert PlanDigest("a", costly=False)("x").startswith("sha256:")
