"""The plan file: complete, private, and one clear message for whatever is no plan of ours."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.app import ClusterIdentity
from mlstack.deploy import approve
from mlstack.deploy.approve import Approval, ApprovedObject
from mlstack.errors import ConfigError, NotFoundError
from mlstack.objects.kube_object import Identity
from mlstack.objects.managed_fields import FieldChange

APPROVAL = Approval(
    app="demo",
    environment="us/gke",
    context="gke",
    namespace="ml",
    cluster=ClusterIdentity(uid="c1", ca="sha256:" + "a" * 64),
    selection=("web",),
    components=("web",),
    options={"allow_large_prune": True, "create": False},
    inputs={"app.yaml": "sha256:" + "b" * 64, "components/params.yaml": ""},
    packages={"kubeflow/core@0.1.0": "sha256:" + "c" * 64},
    overrides={"sets": [{"path": ["web", "n"], "text": "2", "asString": False}]},
    overrides_digest="sha256:" + "d" * 64,
    tool="mlstack/0.1.0",
    created="2027-01-15T08:00:00Z",
    salt="0" * 32,
    costly=True,
    objects=(
        ApprovedObject(
            identity=Identity("apps", "Deployment", "ml", "wéb"),
            api_version="apps/v1",
            component="web",
            action="update",
            uid="u1",
            digest="scrypt:" + "e" * 64,
            reason="",
            fields=(FieldChange(path="spec.replicas", action="changed", old=1, new={"a": [1.5, None]}),),
            notes=("takes it",),
        ),
    ),
    counts={"update": 1},
    notes=("a note",),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


def test_what_is_read_is_what_was_written(file: Path) -> None:
    approve.write(file, APPROVAL)
    assert approve.read(file) == APPROVAL


def test_its_owner_alone_may_read_it(file: Path) -> None:
    file.write_text("old")
    file.chmod(0o644)
    approve.write(file, APPROVAL)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_salts_differ() -> None:
    assert approve.new_salt() != approve.new_salt()


def changed(file: Path, **facts: Any) -> str:
    approve.write(file, APPROVAL)
    value = json.loads(file.read_text())
    file.write_text(json.dumps({**value, **facts}))
    return refused(file)


def refused(file: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        approve.read(file)
    assert caught.value.where == str(file)
    assert "mlstack plan ENV --out FILE" in (caught.value.hint or "")
    return caught.value.message


def test_a_newer_one_names_the_tool_that_made_it(file: Path) -> None:
    said = changed(file, apiVersion="mlstack.dev/v2")
    assert said == "the plan file has version `mlstack.dev/v2`, this mlstack reads `mlstack.dev/v1`"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the plan file is damaged: it is no JSON"),
        ('{"apiVersion": "mlst', "the plan file is damaged: it is no JSON"),
        ("\xff\xfe", "the plan file is damaged: it is no JSON"),
        ("[]", "this is no plan file, but something else"),
        ('{"kind": "List", "apiVersion": "v1"}', "this is no plan file, but a `List` of `v1`"),
    ],
    ids=["empty", "cut", "binary", "list", "foreign"],
)
def test_what_is_no_plan_file_is_told_in_one_line(file: Path, text: str, said: str) -> None:
    file.write_text(text, encoding="latin-1")
    assert refused(file) == said


def test_a_damaged_one_says_where(file: Path) -> None:
    assert "`objects` is required" in changed_without(file, "objects")
    assert "`costly`" in changed(file, costly="perhaps")


def changed_without(file: Path, name: str) -> str:
    approve.write(file, APPROVAL)
    value = json.loads(file.read_text())
    del value[name]
    file.write_text(json.dumps(value))
    return refused(file)


def test_one_that_is_not_there_is_not_found(file: Path) -> None:
    with pytest.raises(NotFoundError):
        approve.read(file)
