"""Rows R: registries that are folders; those in git repositories are in `test_git_registries.py`."""

from pathlib import Path

import pytest

from mlstack.app.package import digest
from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.packages import as_files
from tests.support.registry import REGISTRY

FAILING = (
    "../nothing",
    "ftp://example.org/x",
    "../registry/tools/web/prototype.yaml",
    "file:///nowhere.git",
    "x.y/z",
    "demo",
    "http://127.0.0.1:1/x.git",
)


@pytest.mark.parametrize("address", FAILING)
def test_r8_r12_an_address_without_answer_changes_nothing(demo: Path, run: Runner, address: str) -> None:
    before = read_tree(demo)
    assert run("registry", "add", "bad", address).code == 5
    assert run("registry", "set", "ours", "--uri", address).code == 5
    assert read_tree(demo) == before


def test_r9_a_name_is_taken_once(demo: Path, run: Runner) -> None:
    before = (demo / "app.yaml").read_bytes()
    refused = run("registry add ours ../elsewhere")
    assert (refused.code, "`ours` is the registry ../registry already" in refused.err) == (2, True)
    assert "mlstack registry set ours --uri" in refused.err
    run.ok("registry add ours ../registry")
    assert (demo / "app.yaml").read_bytes() == before


def test_r11_describe_lists_packages_with_version_and_summary(demo: Path, run: Runner) -> None:
    table = run.ok("registry describe ours")
    assert ["tools", "1.2.0", "1.2.0", "Small", "things", "for", "tests"] in [
        line.split() for line in table.splitlines()
    ]
    packages = run("registry describe ours -o json").json["packages"]
    assert [package["name"] for package in packages] == ["base", "tools"]


INDEX = """\
apiVersion: mlstack.dev/v1
kind: Registry
name: far
packages:
- name: base
  summary: What the others share
  versions:
  - {{version: 1.0.0, path: {place}, digest: "{digest}"}}
"""


def test_r18_the_place_that_the_index_names_counts(demo: Path, tmp_path: Path, run: Runner) -> None:
    package = {"package.yaml": REGISTRY["registry/base/package.yaml"]}
    write_tree(tmp_path / "far/pk/odd-dir", package)
    index, content = tmp_path / "far/registry.yaml", digest(as_files(package))
    index.write_text(INDEX.format(place="pk/odd-dir", digest=content))
    run.ok("registry add far ../far")
    assert "installed far/base@1.0.0" in run.ok("pkg install far/base")
    index.write_text(INDEX.format(place="../../../etc", digest=content))
    refused = run("pkg install far/base --force")
    assert (refused.code, "leads out of the" in refused.err) == (5, True)


def test_r10_registries_are_listed_with_what_is_overridden(demo: Path, tmp_path: Path, run: Runner) -> None:
    (tmp_path / "registry").rename(tmp_path / "elsewhere")
    write_tree(
        demo,
        {
            ".mlstack/overrides.yaml": "apiVersion: mlstack.dev/v1\nkind: PersonalOverrides\n"
            "registries: [{name: ours, address: ../elsewhere}]\n"
        },
    )
    (row,) = run("registry list -o json").json["registries"]
    cells = [row[name] for name in ("name", "protocol", "overridden", "bundled")]
    assert cells == ["ours", "directory", True, False]
    assert "../elsewhere" in run.ok("registry list")
    assert run.ok("registry list -o name") == "ours\n"
