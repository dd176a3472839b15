"""Folders that come with mlstack, and files of values, locks and rules are read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.app import document as documents
from mlstack.app import files
from mlstack.app.app import ConditionSign, FieldSign, ReadyRule, Retired
from mlstack.app.app_dir import AppDir, write_lock
from mlstack.app.components import read_values
from mlstack.app.document import fields_of
from mlstack.app.schema import check_file
from mlstack.app.versions import Lock, LockedPackage, LockedRegistry
from mlstack.errors import ConfigError, MlstackError, SchemaError, YamlError
from mlstack.objects import managed_fields
from tests.support.builders import Tree, write_tree


def test_a_bundled_folder_is_found_in_the_package_first_and_the_checkout_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "__file__", str(tmp_path / "mlstack/app/files.py"))
    with pytest.raises(MlstackError, match="the folder `registry` that comes with mlstack is missing"):
        files.folder("registry")
    for place in ("registry", "mlstack/_bundled/registry"):
        write_tree(tmp_path, {f"{place}/registry.yaml": "x"})
        assert files.folder("registry") == tmp_path / place


def test_every_preset_fits_its_schema() -> None:
    for name in files.presets():
        folder = files.preset(name)
        assert folder is not None
        for file, kind in (("environment.yaml", "Environment"), ("params.yaml", "EnvironmentParams")):
            if (folder / file).is_file():
                document = documents.read((folder / file).read_bytes(), file=file)
                check_file(kind, document.value, source=f"{name}/{file}", document=document)


def test_sections_speak_to_all_and_to_one(tmp_path: Path) -> None:
    write_tree(tmp_path, {"v.yaml": "globals:\n  a: 1\ncomponents:\n  cnn:\n    b: 2\n  web:\n"})
    file = read_values(tmp_path / "v.yaml")
    assert file.globals.values == {"a": 1}
    assert file.globals.skips_undeclared
    assert file.components["cnn"].values == {"b": 2}
    assert not file.components["cnn"].skips_undeclared
    assert file.components["web"].values == {}
    assert str(file.components["cnn"].origins[("b",)]) == f"{tmp_path}/v.yaml:5"


def test_a_flat_map_speaks_to_all_and_an_empty_file_says_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path, {"v.yaml": "a: 1\nlabels: {b: c}\n", "empty.yaml": "# nothing\n"})
    file = read_values(tmp_path / "v.yaml")
    assert file.globals.values == {"a": 1, "labels": {"b": "c"}}
    assert str(file.globals.origins[("a",)]) == f"{tmp_path}/v.yaml:1"
    assert read_values(tmp_path / "empty.yaml").globals.values == {}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("a: [", YamlError),
        ("a: 1\n---\nb: 1\n", ConfigError),
        ("globals: 5\n", ConfigError),
        ("components: {cnn: 5}\n", ConfigError),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, kind: type[ConfigError]) -> None:
    write_tree(tmp_path, {"v.yaml": content})
    with pytest.raises(kind):
        read_values(tmp_path / "v.yaml")


def locked(name: str, version: str) -> LockedPackage:
    return LockedPackage(
        full_name=f"k/{name}", version=version, digest="sha256:" + "a" * 64, source="bundled"
    )


RETIRED = (
    Retired(names=("old", "older"), reason="it is done"),
    Retired(names=("x",), reason="r", instead="do y"),
)
LOCK = Lock(
    registries=(
        LockedRegistry(name="k", address="bundled"),
        LockedRegistry(name="z", address="u", retired=RETIRED),
    ),
    packages=(locked("a", "0.9.0"), locked("a", "0.10.0"), locked("b", "1.0")),
)


def test_a_lock_reads_back_fits_its_schema_and_is_written_in_one_order() -> None:
    document = documents.read(write_lock(LOCK), file="mlstack.lock")
    check_file("Lock", document.value, source="mlstack.lock")
    assert fields_of(document, "Lock").record(Lock) == LOCK
    other = Lock(registries=LOCK.registries[::-1], packages=LOCK.packages[::-1])
    assert write_lock(other) == write_lock(LOCK)


@pytest.mark.parametrize(
    "entry",
    [
        "{locked: core, version: '1', digest: x}",
        "{locked: k/a, digest: x}",
        "{locked: k/a, version: 1}",
        "[]",
    ],
)
def test_a_wrong_entry_is_told_with_its_line(entry: str) -> None:
    text = f"apiVersion: mlstack.dev/v1\nkind: Lock\npackages:\n- {entry}\n"
    with pytest.raises(SchemaError) as caught:
        fields_of(documents.read(text.encode(), file="mlstack.lock"), "Lock").record(Lock)
    assert caught.value.where == "mlstack.lock:4"


Build = Callable[[Tree], Path]
HEAD = "apiVersion: mlstack.dev/v1\nkind: App\nname: x\nreadiness:\n"


def rules(app: Build, text: str) -> tuple[ReadyRule, ...]:
    return AppDir(app({"app.yaml": HEAD + text})).app.readiness


def test_conditions_and_fields(app: Build) -> None:
    text = """\
- kind: example.com/Widget
  ready: {condition: Ready}
  failed: {condition: Ready, status: False, reason: Broken}
  done: {field: status.phase, values: [Sold, 1, true]}
  observedGeneration: true
- kind: Pod
  ready: {field: 'status.parts[*].state', value: ok}
"""
    assert rules(app, text) == (
        ReadyRule(
            kind="example.com/Widget",
            ready=ConditionSign(condition="Ready"),
            failed=ConditionSign(condition="Ready", status="False", reason="Broken"),
            done=FieldSign(path=managed_fields.read("status.phase"), values=("Sold", 1, True)),
            observed_generation=True,
        ),
        ReadyRule(
            kind="Pod", ready=FieldSign(path=managed_fields.read("status.parts[*].state"), values=("ok",))
        ),
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("{kind: a.com/W, ready: {condition: R}, faild: {condition: F}}", "did you mean `failed`?"),
        ("{kind: a.com/W, ready: {conditon: R}}", "did you mean `condition`?"),
        ("{kind: a.com/W, failed: {condition: F}}", "`readiness[0].ready` is required"),
        ("{ready: {condition: R}}", "`readiness[0].kind` is required"),
        ("{kind: a.com/v1/W, ready: {condition: R}}", "`readiness[0].kind` is no kind: `a.com/v1/W`"),
        ("{kind: W.a.com, ready: {condition: R}}", "is no kind: `W.a.com`"),
        ("{kind: a.com/W, ready: {}}", "`readiness[0].ready` needs `condition` or `field`"),
        ("{kind: a.com/W, ready: {condition: R, field: a.b, value: c}}", "has both `condition` and `field`"),
        ("{kind: a.com/W, ready: {condition: R, value: c}}", "`readiness[0].ready.value` does not go with"),
        ("{kind: a.com/W, ready: {field: a.b, status: 'True', value: c}}", "does not go with `field`"),
        ("{kind: a.com/W, ready: {condition: R, status: Yes!}}", "must be one of `True`, `False`, `Unknown`"),
        ("{kind: a.com/W, ready: {field: a.b}}", "needs `value` or `values`"),
        ("{kind: a.com/W, ready: {field: a.b, value: c, values: [d]}}", "has both `value` and `values`"),
        ("{kind: a.com/W, ready: {field: 'a[', value: c}}", "`readiness[0].ready.field` is no path"),
        ("{kind: a.com/W, ready: {field: a.b, values: []}}", "must"),
        ("{kind: a.com/W, ready: {field: a.b, value: {c: d}}}", "must be"),
        ("{kind: a.com/W, ready: R}", "must be a map"),
        ("{kind: a.com/W, ready: {condition: R}, observedGeneration: often}", "must be true or false"),
    ],
)
def test_a_wrong_rule_is_told_with_its_line(app: Build, rule: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(app, f"- {rule}\n")
    assert caught.value.exit_code == 3
    assert message in caught.value.describe()
    assert "app.yaml:5" in caught.value.describe()


def test_two_rules_for_one_kind_are_refused(app: Build) -> None:
    rule = "- kind: a.com/W\n  ready: {condition: R}\n"
    with pytest.raises(ConfigError, match=r"has a rule already: `a\.com/W`") as caught:
        rules(app, rule + rule)
    assert "(app.yaml:7)" in caught.value.describe()


@pytest.mark.parametrize(
    ("policy", "is_whole"),
    [
        ("key: awskms:///alias/ml", True),
        ("identity: ada@example.com, issuer: 'https://idp.example.com', trustedRoot: root.json", True),
        ("identity: ada@example.com", False),
        ("issuer: 'https://idp.example.com'", False),
        ("key: a.pub, identity: ada@example.com, issuer: 'https://idp.example.com'", False),
        ("key: a.pub, trustedRoot: root.json", False),
    ],
)
def test_a_policy_names_a_key_or_a_person_with_a_provider(app: Build, policy: str, is_whole: bool) -> None:
    root = app({"app.yaml": HEAD.removesuffix("readiness:\n") + f"verify:\n- {{registry: own, {policy}}}\n"})
    if is_whole:
        assert AppDir(root).app.verify[0].registry == "own"
        return
    with pytest.raises(ConfigError, match=r"`verify\[0\]` needs either `key`, or `identity`") as caught:
        _ = AppDir(root).app
    assert "app.yaml:5" in caught.value.describe()
