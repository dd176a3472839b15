"""What was approved, what is said of everything that has moved since, and the plan file that holds it."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy import reapply
from mlstack.deploy.changes import Change, Changes
from mlstack.errors import ConfigError, NotFoundError
from mlstack.objects.kube_object import Identity
from mlstack.objects.managed_fields import FieldChange

SALT = "0" * 32
WEB = Identity("apps", "Deployment", "ml", "web")


def change(action: Any = "update", *, identity: Identity = WEB, uid: str = "u1", **facts: Any) -> Change:
    fields = (
        (FieldChange(path="spec.replicas", action="changed", old=1, new=2),) if action == "update" else ()
    )
    return Change(
        identity=identity,
        component="web",
        action=action,
        api_version="apps/v1",
        live_uid=uid if action != "create" else "",
        **{"fields": fields, "fingerprint": str(fields), **facts},
    )


def rows(*changes: Change) -> list[dict[str, Any]]:
    plan = Changes(
        app="demo", environment="gke", namespace="ml", context="gke", cluster=None, changes=changes
    )
    return reapply.rows(plan, SALT, costly=False)


def moved(before: Change | None, now: Change) -> list[str]:
    return reapply.moved_objects(rows(*([before] if before else [])), rows(now))


@pytest.mark.parametrize(
    ("before", "now", "text"),
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
def test_what_moved_is_said_object_by_object(before: Change | None, now: Change, text: str) -> None:
    assert moved(before, now) == [f"Deployment ml/web: {text}"]


@pytest.mark.parametrize("costly", [False, True])
def test_equal_texts_have_equal_digests_under_one_salt_alone(costly: bool) -> None:
    digests = [reapply.digest(text, salt, costly=costly) for text in ("text", "texts") for salt in "ab"]
    assert digests[0] == reapply.digest("text", "a", costly=costly)
    assert len(set(digests)) == 4
    assert reapply.digest("", "a", costly=costly) == ""


def test_a_digest_that_may_hide_a_secret_is_dear_to_guess() -> None:
    assert reapply.digest("x", "a", costly=True).startswith("scrypt:")
    assert reapply.digest("x", "a", costly=False).startswith("sha256:")


# --- plan file ---

APPROVAL = {
    "apiVersion": "mlstack.dev/v1",
    "kind": "Plan",
    "tool": "mlstack/0.1.0",
    "created": "2027-01-15T08:00:00Z",
    "app": "demo",
    "environment": "us/gke",
    "context": "gke",
    "namespace": "ml",
    "cluster": {"uid": "c1", "ca": "sha256:" + "a" * 64},
    "selection": ["web"],
    "components": ["web"],
    "options": {"allowLargePrune": True, "create": False},
    "overrides": {"sets": [{"path": ["web", "n"], "text": "2", "asString": False}]},
    "overridesDigest": "sha256:" + "d" * 64,
    "packages": {"kubeflow/core@0.1.0": "sha256:" + "c" * 64},
    "inputs": {"app.yaml": "sha256:" + "b" * 64, "components/params.yaml": ""},
    "salt": SALT,
    "costly": True,
    "counts": {"update": 1},
    "notes": ["a note"],
    "objects": rows(change(notes=("takes it",)), change("create", identity=replace(WEB, name="wéb"))),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def test_what_is_read_is_what_was_written(file: Path) -> None:
    reapply.write(file, APPROVAL)
    assert reapply.read(file) == APPROVAL


def test_its_owner_alone_may_read_it(file: Path) -> None:
    file.write_text("old")
    file.chmod(0o644)
    reapply.write(file, APPROVAL)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def changed(file: Path, **facts: Any) -> str:
    """Say what is wrong with a file in which facts were changed, or left out by None."""
    reapply.write(file, APPROVAL)
    document = {**json.loads(file.read_text()), **facts}
    file.write_text(json.dumps({name: fact for name, fact in document.items() if fact is not None}))
    return refused(file)


def refused(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        reapply.read(file)
    assert caught.value.where == str(file)
    assert "mlstack plan ENV --out FILE" in (caught.value.hint or "")
    return caught.value.message


def test_a_newer_one_names_the_tool_that_made_it(file: Path) -> None:
    message = changed(file, apiVersion="mlstack.dev/v2")
    assert message == "the plan file has version `mlstack.dev/v2`, this mlstack reads `mlstack.dev/v1`"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the plan file is damaged: it is no JSON"),
        ('{"apiVersion": "mlst', "the plan file is damaged: it is no JSON"),
        ("\xff\xfe", "the plan file is damaged: it is no JSON"),
        ("[]", "this is no plan file, but something else"),
        ('{"kind": "List", "apiVersion": "v1"}', "this is no plan file, but a `List` of `v1`"),
    ],
    ids=["empty", "cut", "binary", "list", "foreign"],
)
def test_what_is_no_plan_file_is_told_in_one_line(file: Path, text: str, message: str) -> None:
    file.write_text(text, encoding="latin-1")
    assert refused(file) == message


def test_a_damaged_one_says_where(file: Path) -> None:
    assert "`objects` is required" in changed(file, objects=None)
    assert "`costly`" in changed(file, costly="perhaps")


def test_one_that_is_not_there_is_not_found(file: Path) -> None:
    with pytest.raises(NotFoundError):
        reapply.read(file)


def test_a_deletion_that_nobody_needs_any_more_is_nothing_either() -> None:
    assert reapply.moved_objects(rows(change("delete")), []) == []
