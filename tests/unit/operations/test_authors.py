"""Packages of one's own: what a lint finds in their files."""

from pathlib import Path

import pytest

from mlstack.errors import RegistryError
from mlstack.operations import authors, registries
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.registry import REGISTRY, edited
from tests.support.registry import WEB_TEMPLATE as TEMPLATE


def lint(folder: str = ".") -> list[tuple[str | None, str]]:
    return [(fault.where, fault.message) for fault in authors.lint_registry(Path(folder)).faults]


def test_r17_a_sound_registry_has_no_fault(registry: Path) -> None:
    result = authors.lint_registry(Path())
    assert (result.ok, result.packages, result.prototypes, result.faults) == (True, 2, 1, ())


PROTOTYPE = "tools/web/prototype.yaml"


@pytest.mark.parametrize(
    ("file", "old", "new", "where", "message"),
    [
        (PROTOTYPE, "type: integer", "type: integr", f"{PROTOTYPE}:14", 'type` cannot be "integr"'),
        (
            PROTOTYPE,
            "default: 1",
            "default: 12",
            PROTOTYPE,
            "the default of `replicas` must be 0 to 9 pods, got 12",
        ),
        (
            PROTOTYPE,
            "default: 1",
            "defualt: 1",
            PROTOTYPE,
            "no keyword of JSON Schema: did you mean `default`",
        ),
        (PROTOTYPE, "  properties:", "  colour: {}\n  properties:", PROTOTYPE, "stand under `properties`"),
        (PROTOTYPE, "summary: A", "sumary: A", f"{PROTOTYPE}:4", "did you mean `summary`"),
        (TEMPLATE, "{% if params.token %}", "{% if %}", f"{TEMPLATE}:10", "does not parse"),
        (TEMPLATE, "params.color", "params.colour", f"{TEMPLATE}:7", "did you mean `params.color`"),
        (TEMPLATE, "{{ name }}", "{{ nam }}", f"{TEMPLATE}:4", "`nam` is not declared, did you mean `name`"),
        (TEMPLATE, "| string", "| strng", f"{TEMPLATE}:8", "no filter `strng`"),
        ("tools/web/examples/plain.yaml", "image:", "imgae:", "tools/web/examples/plain.yaml", "imgae"),
        ("tools/package.yaml", "[base]", "[bass]", "tools/package.yaml", "requires `bass`"),
        ("tools/package.yaml", "license: Apache-2.0\n", "", "tools/package.yaml", "no `license`"),
    ],
    ids=lambda value: None if "/" in value else value[:24],
)
def test_r17_a_lint_names_file_and_line(
    registry: Path, file: str, old: str, new: str, where: str, message: str
) -> None:
    edited(registry / file, old, new)
    faults = [(place or "", text) for place, text in lint()]
    assert any(place.startswith(where) or text.startswith(where) for place, text in faults)
    assert any(message in text for _, text in faults)
    assert any("not what the packages say" in text or message in text for _, text in faults)


def test_r17_a_lint_tells_every_fault_at_once(registry: Path, run: Runner) -> None:
    edited(registry / PROTOTYPE, "type: integer", "type: integr")
    edited(registry / TEMPLATE, "{% if params.token %}", "{% if %}")
    ran = run("registry lint registry")
    assert ran.code == 1
    assert f"{PROTOTYPE}:14" in ran.out and f"{TEMPLATE}:10" in ran.out and "registry.yaml" in ran.out
    places = [f"registry/{PROTOTYPE}:14", f"registry/{TEMPLATE}:10"]
    assert run("registry lint registry/tools -o name").out.split() == places


def test_r17_an_index_that_lies_is_found(registry: Path) -> None:
    (registry / "tools/web/files").mkdir()
    (registry / "tools/web/files/new.txt").write_text("new")
    assert [where for where, text in lint() if "digests included" in text] == ["registry.yaml"]
    registries.index_registry(registry)
    assert lint() == []


def test_r17_one_package_twice_is_found(registry: Path) -> None:
    write_tree(registry, {"again/package.yaml": (registry / "base/package.yaml").read_text()})
    assert ("base/package.yaml", "`again` is `base@1.0.0` as well") in lint()


def test_an_index_needs_a_name_that_a_registry_can_have(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "my shelf", {"base/package.yaml": REGISTRY["registry/base/package.yaml"]})
    with pytest.raises(RegistryError, match="my shelf"):
        registries.index_registry(folder)
    assert not (folder / "registry.yaml").exists()
    registries.index_registry(folder, name="shelf")
    assert "\nname: shelf\n" in (folder / "registry.yaml").read_text()
    assert not registries.index_registry(folder).stale


@pytest.mark.parametrize(("line", "code"), [("registry lint nowhere", 4), ("registry lint empty", 5)])
def test_a_lint_of_nothing_is_refused(registry: Path, run: Runner, line: str, code: int) -> None:
    (registry.parent / "empty").mkdir()
    ran = run(line)
    assert (ran.code, line.split()[-1] in ran.err) == (code, True)


def test_r17_a_package_that_cannot_be_read_is_a_fault_beside_the_others(registry: Path) -> None:
    (registry / "base/link").symlink_to("/etc/passwd")
    edited(registry / TEMPLATE, "{% if params.token %}", "{% if %}")
    text = " ".join(message for _, message in lint())
    assert "`link` is a link" in text
    assert "does not parse" in text
