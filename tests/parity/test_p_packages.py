"""Rows P: packages of a registry that is a folder."""

import shutil
from pathlib import Path

from tests.support.builders import read_tree
from tests.support.cli import Runner


def test_p4_a_version_of_a_folder_is_honoured_or_refused(demo: Path, run: Runner) -> None:
    for version in ("9.9.9", "main"):
        refused = run(f"pkg install ours/tools@{version}")
        assert (refused.code, f"has no version `{version}`" in refused.err) == (4, True)
        assert "known versions: 1.2.0" in refused.err


def test_p7_nothing_is_written_if_the_registry_is_away(demo: Path, tmp_path: Path, run: Runner) -> None:
    run.ok("component rm front")
    run.ok("pkg rm ours/tools")
    before = read_tree(demo)
    shutil.move(tmp_path / "registry", tmp_path / "away")
    assert run("pkg install ours/tools").code == 5
    assert read_tree(demo) == before


def test_p8_force_fetches_again(demo: Path, run: Runner) -> None:
    template = demo / "vendor/ours/tools@1.2.0/web/templates/page.yaml.j2"
    right = template.read_bytes()
    template.write_bytes(right + b"\n")
    assert run("render minikube").code == 5
    run.ok("pkg install --force ours/tools")
    assert template.read_bytes() == right


def test_p10_installed_packages_are_listed_without_their_registry(
    demo: Path, tmp_path: Path, run: Runner
) -> None:
    shutil.rmtree(tmp_path / "registry")
    assert run.ok("pkg list --installed -o name").split() == ["ours/base", "ours/tools"]
    listed = run("pkg list -o json").json
    assert [row["installed"] for row in listed["packages"]] == [["1.0.0"], ["1.2.0"]]
    assert "ours" in listed["notes"][0]


def test_p11_a_package_is_described_before_and_after_it_is_installed(demo: Path, run: Runner) -> None:
    installed = run("pkg describe ours/tools -o json").json
    run.ok("component rm front")
    run.ok("pkg rm ours/tools")
    offered = run("pkg describe ours/tools -o json").json
    for described in (installed, offered):
        assert [prototype["name"] for prototype in described["prototypes"]] == ["web"]
        assert (described["license"], described["requires"]) == ("Apache-2.0", ["base"])
    assert (installed["installed"], offered["installed"]) == (["1.2.0"], [])


def test_p12_a_package_in_use_stays_and_an_unused_one_goes_whole(demo: Path, run: Runner) -> None:
    run.play("""
        generate web back --image=nginx
        pkg rm ours/tools | 2 | is used by `back`, `front` | component rm back | component rm front
        component rm front
        component rm back
        pkg rm ours/tools
    """)
    assert not list((demo / "vendor").rglob("*.yaml"))
    assert "ours/" not in (demo / "mlstack.lock").read_text()


def test_p15_a_package_works_under_any_name_of_its_registry(demo: Path, run: Runner) -> None:
    run.ok("registry add my_reg.x ../registry")
    run.ok("pkg install my_reg.x/tools")
    run.ok("generate my_reg.x/tools/web back --image nginx")
    assert "name: back" in run.ok("render minikube -c back")


def test_p17_names_hold_underscores_and_dots(demo: Path, tmp_path: Path, run: Runner) -> None:
    folder = tmp_path / "registry/my_pkg.x"
    shutil.copytree(tmp_path / "registry/base", folder)
    metadata = folder / "package.yaml"
    metadata.write_text(metadata.read_text().replace("name: base", "name: my_pkg.x"))
    assert "installed ours/my_pkg.x@1.0.0" in run.ok("pkg install ours/my_pkg.x")
