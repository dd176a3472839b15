"""Newer versions of packages: what they would change, what is said against them, whether they are signed."""

import shutil
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.errors import ConfigError, NotFoundError, RegistryError, SchemaError
from mlstack.operations import app, package_changes, packages, registries
from mlstack.render import render
from tests.support.builders import read_tree, write_tree
from tests.support.registry import REGISTRY, generate, small_app
from tests.support.tools import tool


def release(folder: Path, version: str, **changes: str) -> None:
    """Put a version of `tools` into a registry, with words of its prototype and template replaced."""
    tree = {
        path.replace("registry/tools", f"registry/tools-{version}"): str(text).replace("1.2.0", version)
        for path, text in REGISTRY.items()
        if path.startswith("registry/tools/")
    }
    for path, text in tree.items():
        if path.endswith((".yaml.j2", "prototype.yaml")):
            for before, after in changes.items():
                text = text.replace(before, after)
        tree[path] = text
    write_tree(folder, tree)
    registries.index_registry(folder / "registry")


def edit_index(folder: Path, version: str, line: str) -> None:
    """Write something by hand beside a version of `tools` in the index."""
    index = folder / "registry/registry.yaml"
    text, mark = index.read_text(), f'  - version: "{version}"\n'
    place = text.index(mark, text.index("name: tools")) + len(mark)
    index.write_text(f"{text[:place]}    {line}\n{text[place:]}")


def app_with(folder: Path) -> AppDir:
    """Make an app with `tools` 1.2.0 and a component of it, for one environment."""
    app_dir = small_app(folder)
    environment = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: gke\nnamespace: ml\n"
    write_tree(app_dir.root, {"environments/gke/environment.yaml": environment})
    generate(app_dir, "front", replicas="3")
    return AppDir(app_dir.root)


def test_another_version_of_what_packages_share_comes_with_an_update_alone(tmp_path: Path) -> None:
    template, look = "registry/tools/web/templates/page.yaml.j2", '{% set shade = "dark" %}\n'
    uses = '        {% import "base/_look.j2" as look %}\n' + str(REGISTRY[template])
    shared = {
        template: uses.replace("{{ params.color }}", "{{ look.shade }}"),
        "registry/base/templates/_look.j2": look,
    }
    write_tree(tmp_path, REGISTRY | shared)
    app.init(tmp_path / "demo", "demo", default_registry=False)
    app_dir = AppDir(tmp_path / "demo")
    registries.add_registry(app_dir, "ours", "../registry")
    packages.install_packages(AppDir(app_dir.root), ["ours/tools"])
    generate(AppDir(app_dir.root), "front")
    environment = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: gke\nnamespace: ml\n"
    write_tree(app_dir.root, {"environments/gke/environment.yaml": environment})

    newer = tmp_path / "registry/base-1.1"
    shutil.copytree(tmp_path / "registry/base", newer)
    (newer / "package.yaml").write_text((newer / "package.yaml").read_text().replace("1.0.0", "1.1.0"))
    (newer / "templates/_look.j2").write_text(look.replace("dark", "bright"))
    registries.index_registry(tmp_path / "registry")

    assert shade(app_dir) == "dark"
    shutil.rmtree(app_dir.root / "vendor")
    packages.install_packages(AppDir(app_dir.root))  # as a clone of the app does
    assert shade(app_dir) == "dark"
    preview = package_changes.update_packages(AppDir(app_dir.root), preview=True)
    assert [(row.package, row.after) for row in preview.packages] == [("ours/base", "1.1.0")]
    package_changes.update_packages(AppDir(app_dir.root))
    assert shade(app_dir) == "bright"


def shade(app_dir: AppDir) -> str:
    (page,) = render.load(AppDir(app_dir.root), "gke").objects
    return str(page.data["data"]["color"])


def test_two_versions_are_compared(tmp_path: Path) -> None:
    app_dir = app_with(tmp_path)
    release(tmp_path, "2.0.0", color="hue")
    diff = package_changes.diff_packages(AppDir(app_dir.root), "tools", "1.2.0", "2.0.0")
    assert {(row.parameter, row.change) for row in diff.changes if row.kind == "parameter"} == {
        ("color", "gone"),
        ("hue", "new"),
    }
    assert "`web/prototype.yaml` was changed" in diff.files


def test_a_withdrawn_version_is_not_chosen_and_whoever_has_it_is_told(tmp_path: Path) -> None:
    app_dir = app_with(tmp_path)
    release(tmp_path, "2.0.0")
    edit_index(tmp_path, "2.0.0", "yanked: it loses data")
    result = package_changes.update_packages(AppDir(app_dir.root), ["ours/tools"])
    assert result.packages == ()
    installed = packages.install_packages(AppDir(app_dir.root), ["ours/tools@2.0.0"])
    assert installed.notes == ("`ours/tools@2.0.0` was withdrawn: it loses data",)
    row = package_changes.list_outdated(AppDir(app_dir.root)).packages[0]
    assert (row.installed, row.note) == ("2.0.0", "was withdrawn: it loses data")
    registries.index_registry(tmp_path / "registry")  # what was written by hand stays
    assert "yanked: it loses data" in (tmp_path / "registry/registry.yaml").read_text()


def test_a_deprecated_version_is_installed_with_a_word(tmp_path: Path) -> None:
    app_dir = small_app(tmp_path, installed=False)
    registries.index_registry(tmp_path / "registry")
    edit_index(tmp_path, "1.2.0", "deprecated: use pages")
    installed = packages.install_packages(app_dir, ["ours/tools"])
    assert installed.notes == ("`ours/tools@1.2.0` is deprecated: use pages",)


def test_a_package_for_another_mlstack_is_passed_over_or_refused(tmp_path: Path) -> None:
    app_dir = small_app(tmp_path, installed=False)
    release(tmp_path, "2.0.0")
    head = tmp_path / "registry/tools-2.0.0/package.yaml"
    head.write_text(head.read_text() + 'requiresMlstack: ">=99"\n')
    registries.index_registry(tmp_path / "registry")
    assert packages.install_packages(app_dir, ["ours/tools"]).packages[-1].version == "1.2.0"
    with pytest.raises(SchemaError, match=r"package `ours/tools@2.0.0` needs mlstack >=99"):
        packages.install_packages(AppDir(app_dir.root), ["ours/tools@2.0.0"])


def test_an_app_for_another_mlstack_is_refused_before_anything_else(tmp_path: Path) -> None:
    app_dir = small_app(tmp_path)
    file = app_dir.root / "app.yaml"
    file.write_text(file.read_text() + 'requiresMlstack: ">=0.3,<0.4"\n')
    before = read_tree(app_dir.root)
    with pytest.raises(SchemaError, match=r"this app needs mlstack >=0\.3,<0\.4, this is"):
        packages.install_packages(AppDir(app_dir.root))
    assert read_tree(app_dir.root) == before


def test_a_contradiction_changes_nothing(tmp_path: Path) -> None:
    app_dir = small_app(tmp_path)
    head = tmp_path / "registry/tools/package.yaml"
    text = head.read_text().replace("1.2.0", "1.3.0")
    head.write_text(text.replace("requires: [base]", 'requires: [{name: base, version: ">=2"}]'))
    registries.index_registry(tmp_path / "registry")
    file = app_dir.root / "app.yaml"
    file.write_text(file.read_text() + "- ours/base@^1\n")
    before = read_tree(app_dir.root)
    with pytest.raises((ConfigError, NotFoundError)):
        packages.install_packages(AppDir(app_dir.root), ["ours/tools@1.3.0"])
    assert read_tree(app_dir.root) == before


def test_a_frozen_install_refuses_a_lock_that_does_not_fit(tmp_path: Path) -> None:
    app_dir = small_app(tmp_path)
    file = app_dir.root / "app.yaml"
    file.write_text(file.read_text().replace("- ours/tools\n", "- {name: ours/tools, version: ^2}\n"))
    before = read_tree(app_dir.root)
    with pytest.raises(ConfigError, match=r"mlstack\.lock is not up to date"):
        packages.restore_packages(AppDir(app_dir.root))
    assert read_tree(app_dir.root) == before


@pytest.mark.slow
def test_only_signed_packages_of_a_registry_come_in_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlstack import programs

    cosign = tool("cosign")
    monkeypatch.setenv("PATH", f"{cosign.parent}:/usr/bin:/bin")
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        programs.run([str(cosign), "generate-key-pair"], cwd=tmp_path / name)
    app_dir = small_app(tmp_path, installed=False)
    registries.index_registry(tmp_path / "registry")
    shutil.copy(tmp_path / "ours/cosign.pub", app_dir.root / "ours.pub")
    file = app_dir.root / "app.yaml"
    file.write_text(file.read_text() + "verify:\n- {registry: ours, key: ours.pub}\n")
    app_dir, before = AppDir(app_dir.root), read_tree(app_dir.root)
    with pytest.raises(RegistryError, match="is not signed, and app"):
        packages.install_packages(app_dir, ["ours/tools"])
    index, unsigned = tmp_path / "registry/registry.yaml", (tmp_path / "registry/registry.yaml").read_bytes()
    registries.index_registry(tmp_path / "registry", key=tmp_path / "theirs/cosign.key")
    with pytest.raises(RegistryError, match=r"is not by the key `ours\.pub`"):
        packages.install_packages(app_dir, ["ours/tools"])
    assert read_tree(app_dir.root) == before
    index.write_bytes(unsigned)
    registries.index_registry(tmp_path / "registry", key=tmp_path / "ours/cosign.key")
    packages.install_packages(app_dir, ["ours/tools"])
    verified = package_changes.verify_packages(AppDir(app_dir.root))
    assert (verified.ok, verified.packages, verified.signed) == (True, 2, 2)
    lock = app_dir.root / "mlstack.lock"
    shutil.copy(tmp_path / "theirs/cosign.pub", app_dir.root / "ours.pub")
    faults = package_changes.verify_packages(AppDir(app_dir.root)).faults
    assert [fault.package for fault in faults] == ["ours/base@1.0.0", "ours/tools@1.2.0"]
    assert "signature: " in lock.read_text()


@pytest.mark.parametrize("where", ["index", "lock", "package"])
def test_a_range_that_cannot_be_read_is_told_with_its_place(tmp_path: Path, where: str) -> None:
    app_dir = small_app(tmp_path, installed=where == "lock")
    registries.index_registry(tmp_path / "registry")
    file, old, new = {
        "index": (tmp_path / "registry/registry.yaml", "base: {}", 'base: {version: "^^"}'),
        "lock": (app_dir.root / "mlstack.lock", 'ours/base: ""', 'ours/base: "^^"'),
        "package": (tmp_path / "registry/tools/package.yaml", "[base]", '["base@^^"]'),
    }[where]
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    if where == "package":
        (tmp_path / "registry/registry.yaml").unlink()
    with pytest.raises((SchemaError, RegistryError), match=r"`\^\^` is no range of versions"):
        packages.install_packages(AppDir(app_dir.root), ["ours/tools"])


def test_what_is_locked_is_kept_while_its_registry_is_away(tmp_path: Path) -> None:
    app_dir = small_app(tmp_path)
    (tmp_path / "registry").rename(tmp_path / "away")
    before = read_tree(app_dir.root)
    assert {row.state for row in packages.install_packages(app_dir).packages} == {"kept"}
    result = packages.install_packages(AppDir(app_dir.root), ["ours/tools"])
    assert {row.state for row in result.packages} == {"kept"}
    assert "registry `ours` cannot be read" in result.notes[0]
    assert read_tree(app_dir.root) == before


def test_content_that_changed_under_the_same_version_is_told_and_let_in_by_name(tmp_path: Path) -> None:
    app_dir = app_with(tmp_path)
    file = tmp_path / "registry/tools/web/prototype.yaml"
    file.write_text(f"{file.read_text()}# changed\n")
    registries.index_registry(tmp_path / "registry")
    before = read_tree(app_dir.root)
    (row,) = package_changes.list_outdated(app_dir).packages
    assert (row.package, row.note) == ("ours/tools", "has other content under the same version")
    for refused in (
        lambda: package_changes.update_packages(app_dir),
        lambda: packages.install_packages(app_dir, force=True),
    ):
        with pytest.raises(RegistryError, match=r"is not the one that mlstack\.lock holds") as caught:
            refused()
        assert "mlstack pkg install --force ours/tools@1.2.0 lets this one in" in str(caught.value.hint)
    assert read_tree(app_dir.root) == before
    packages.install_packages(AppDir(app_dir.root), ["ours/tools"], force=True)
    assert "# changed" in (app_dir.root / "vendor/ours/tools@1.2.0/web/prototype.yaml").read_text()
    after = AppDir(app_dir.root)
    assert (package_changes.verify_packages(after).ok, package_changes.list_outdated(after).packages) == (
        True,
        (),
    )
