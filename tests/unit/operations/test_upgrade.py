"""Files of older formats: brought up to date with their comments, tried with a format that never was."""

from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import SchemaError
from mlstack.operations.doctor import Migration, upgrade

APP = """\
# the app of the team
apiVersion: mlstack.dev/v0
kind: App
title: demo  # shown nowhere
params:
  a: "1"   # quoted
"""


def renamed(document: Any) -> None:
    document.insert(2, "name", document.pop("title"), comment="once `title`")


MIGRATIONS = (
    Migration(before="mlstack.dev/v0", after="mlstack.dev/v0b", changes={"App": renamed}),
    Migration(before="mlstack.dev/v0b", after="mlstack.dev/v1", changes={}),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "app.yaml").write_text(APP)
    folder = tmp_path / "components"
    folder.mkdir()
    (folder / "web.yaml").write_text("apiVersion: mlstack.dev/v0b\nkind: Component\nprototype: web  # ours\n")
    (folder / "plain.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")
    return tmp_path


def test_a11_an_older_format_is_brought_up_to_date_with_its_comments(root: Path) -> None:
    before = (root / "components/plain.yaml").read_bytes()
    result = upgrade(root, migrations=MIGRATIONS)
    assert [(row.file, row.before, row.after) for row in result.files] == [
        ("app.yaml", "mlstack.dev/v0", "mlstack.dev/v1"),
        ("components/web.yaml", "mlstack.dev/v0b", "mlstack.dev/v1"),
    ]
    text = (root / "app.yaml").read_text()
    assert text.startswith("# the app of the team\napiVersion: mlstack.dev/v1\nkind: App\nname: demo")
    assert '  a: "1"   # quoted\n' in text
    assert (root / "components/web.yaml").read_text().endswith("prototype: web  # ours\n")
    assert (root / "components/plain.yaml").read_bytes() == before
    assert upgrade(root, migrations=MIGRATIONS).files == ()


def test_a11_a_dry_run_writes_nothing(root: Path) -> None:
    assert len(upgrade(root, migrations=MIGRATIONS, dry_run=True).files) == 2
    assert (root / "app.yaml").read_text() == APP


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: mlstack.dev/v2\nkind: App\n", "a newer mlstack wrote"),
        ("apiVersion: mlstack.dev/v1alpha1\nkind: App\n", "no release of mlstack wrote"),
        ("apiVersion: 0.3.0\nkind: ksonnet.io/app\n", "an app of ksonnet"),
    ],
)
def test_a11_what_cannot_be_brought_up_to_date_is_refused(root: Path, text: str, message: str) -> None:
    (root / "app.yaml").write_text(text)
    with pytest.raises(SchemaError, match=message):
        upgrade(root, migrations=MIGRATIONS)
    assert (root / "app.yaml").read_text() == text
