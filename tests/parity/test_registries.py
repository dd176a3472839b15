"""Registries: rows R1 to R18 of the parity list, from the command line."""

import re
import time
from pathlib import Path

import pytest

from mlstack.app import layout
from mlstack.registries.registry import is_bundled, protocol_of
from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.oci import FakeRegistry
from tests.support.registries import repository
from tests.support.registry import REGISTRY, generate, small_app

KSONNET = """\
apiVersion: 0.1
kind: ksonnet.io/registry
libraries:
  core: {path: core, version: master}
  argo: {path: argo, version: master}
  ours: {path: ours, version: master}
"""


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Runner:
    """An app `demo` with the registry `ours` in the folder beside it, and `ours/tools` installed."""
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    return run


@pytest.mark.parametrize(
    ("address", "protocol"),
    [
        ("oci://registry.example.org/ml/packages", "oci"),
        ("git@example.org:ml/registry.git", "git"),
        ("github.com/google/other", "git"),
        ("github.com/google/other/tree/master/x", "git"),
        ("ssh://git@example.org/ml/registry", "git"),
        ("https://example.org/ml/registry.git", "git"),
        ("https://git.example.org/ml/registry/tree/main/packages", "git"),
        ("git.example.org/ml/registry/blob/main/packages/registry.yaml", "git"),
        ("https://gitlab.example.org/a/b/c/-/tree/main/packages", "git"),
        ("../registry", "directory"),
        ("~/packages", "directory"),
        ("packages/own", "directory"),
        ("file:///srv/packages", "directory"),
        ("file:///srv/packages.git", "git"),
        ("file:///srv/packages#main:sub", "git"),
    ],
)
def test_r1_the_address_decides_the_protocol(address: str, protocol: str) -> None:
    assert protocol_of(address) == protocol


def test_r1_a_file_address_of_a_folder_is_a_folder(demo: Runner, tmp_path: Path) -> None:
    demo.ok(f"registry add near file://{tmp_path}/registry")
    assert [row["name"] for row in demo("registry describe near -o json").json["packages"]] == [
        "base",
        "tools",
    ]


def test_r1_the_type_overrules_the_address(demo: Runner) -> None:
    assert demo("registry add near ../registry --type git").code == 5
    ran = demo("registry add near ../registry --type directry")
    assert ran.code == 2
    assert "did you mean `directory`?" in ran.err


def test_r2_a_relative_address_is_read_from_where_one_stands(
    demo: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "demo" / "components" / "deep"
    deep.mkdir(parents=True)
    write_tree(tmp_path / "demo" / "own.packages", {path[9:]: text for path, text in REGISTRY.items()})
    monkeypatch.chdir(deep)
    demo.ok("registry add near ../../../registry")
    demo.ok("registry add inside ../../own.packages")
    demo.ok("registry describe inside")
    rows = {row["name"]: row["address"] for row in demo("registry list -o json").json["registries"]}
    assert (rows["near"], rows["inside"]) == ("../registry", "./own.packages")


def test_r8_no_password_gets_into_app_yaml(demo: Runner) -> None:
    address = "https://ada:not-a-secret@127.0.0.1:1/a.git"
    for line in ("add mine", "set ours --uri"):
        ran = demo(f"registry {line} {address}")
        assert (ran.code, "would show to everybody" in ran.err, "not-a-" in ran.err) == (5, True, False)
    assert "cannot fetch" in demo(f"registry set ours --override --uri {address}").err


def test_r12_registry_set_leads_to_another_address(demo: Runner, tmp_path: Path) -> None:
    (tmp_path / "registry").rename(tmp_path / "moved")
    before = (tmp_path / "demo/app.yaml").read_text()
    demo.ok("registry set ours --uri ../moved")
    assert (tmp_path / "demo/app.yaml").read_text() == before.replace("../registry", "../moved")
    assert "already" in demo.ok("registry set ours --uri ../moved")


def test_r12_what_is_installed_and_not_offered_there_is_said(demo: Runner, tmp_path: Path) -> None:
    other = {path: text for path, text in REGISTRY.items() if "base" in path}
    write_tree(tmp_path / "other", {path[9:]: text for path, text in other.items()})
    assert "does not offer ours/tools@1.2.0" in demo.ok("registry set ours --uri ../other")
    assert demo("registry set other --uri ../other").code == 4
    assert demo("registry set ours").code == 2


def test_r13_registry_update_reports_what_changed(demo: Runner, tmp_path: Path) -> None:
    assert "asked for the first time: 2 packages" in demo.ok("registry update")
    assert "nothing changed" in demo.ok("registry update ours")
    tools = tmp_path / "registry/tools/package.yaml"
    tools.write_text(tools.read_text().replace("1.2.0", "1.3.0"))
    base = tmp_path / "registry/base/package.yaml"
    base.write_text(base.read_text() + "keywords: [x]\n")
    (update,) = demo("registry update -o json").json["registries"]
    assert [
        (row["package"], row["change"], row["version"], row["installed"]) for row in update["changes"]
    ] == [
        ("ours/base", "changed", "1.0.0", "1.0.0"),
        ("ours/tools", "removed", "1.2.0", "1.2.0"),
        ("ours/tools", "added", "1.3.0", "1.2.0"),
    ]


def test_r13_a_registry_that_does_not_answer_is_left_out_and_said(demo: Runner, tmp_path: Path) -> None:
    demo.ok("registry add near ../registry")
    demo.ok("registry update")
    (tmp_path / "copy").mkdir()
    (tmp_path / "registry").rename(tmp_path / "gone")
    assert demo("registry update ours").code == 5
    write_tree(tmp_path / "demo", {"near.txt": "x"})
    ran = demo("registry update")
    assert (ran.code, ran.err.count("was left out")) == (1, 2)
    assert demo("registry update nobody").code == 4


def test_r14_registry_rm_refuses_while_packages_depend_on_it(demo: Runner, tmp_path: Path) -> None:
    before = read_tree(tmp_path / "demo")
    ran = demo("registry rm ours")
    assert ran.code == 2
    assert "is needed by `ours/tools`" in ran.err
    assert "hint: mlstack pkg rm ours/tools" in ran.err
    assert read_tree(tmp_path / "demo") == before
    demo.ok("pkg rm ours/tools")
    demo.ok("registry rm ours")
    assert demo("registry list -o json").json["registries"] == []
    assert "ours" not in (tmp_path / "demo/mlstack.lock").read_text()
    assert demo("registry rm ours").code == 4


def test_r14_a_component_keeps_its_registry(demo: Runner, tmp_path: Path) -> None:
    from mlstack.app.app_dir import AppDir

    generate(AppDir(tmp_path / "demo"))
    app_file = tmp_path / "demo/app.yaml"
    app_file.write_text(app_file.read_text().partition("packages:")[0])
    (tmp_path / "demo/mlstack.lock").unlink()
    ran = demo("registry rm ours")
    assert (ran.code, "is needed by `front`" in ran.err) == (2, True)


@pytest.mark.parametrize(
    "files", [{"registry.yaml": KSONNET}, {"core/parts.yaml": "x", "argo/parts.yaml": "x"}]
)
def test_a_registry_of_ksonnet_is_refused_with_what_serves_its_packages(
    demo: Runner, tmp_path: Path, files: dict[str, str]
) -> None:
    write_tree(tmp_path / "ks", files)
    before = read_tree(tmp_path / "demo")
    ran = demo("registry add ks ../ks")
    assert ran.code == 5
    assert "core: mlstack pkg install kubeflow/core" in ran.err
    assert "argo: retired: Argo Workflows comes with manifests of its own" in ran.err
    assert ("ours: nothing of mlstack's" in ran.err) == ("registry.yaml" in files)
    assert "hint: mlstack import ksonnet-app DIR" in ran.err
    assert read_tree(tmp_path / "demo") == before


@pytest.mark.parametrize(
    "address",
    [
        "github.com/google/kubeflow/tree/master/kubeflow",
        "github.com/kubeflow/kubeflow/tree/v0.1-branch/kubeflow",
        "https://github.com/kubeflow/kubeflow/tree/v0.2.7/kubeflow/",
        "github.com/kubeflow/kubeflow/tree/v0.3.5/kubeflow",
        "github.com/kubeflow/kubeflow/tree/v0.4.0-rc.2/kubeflow",
        "github.com/kubeflow/kubeflow/tree/v0.5-branch/kubeflow",
        "https://github.com/kubeflow/kubeflow/blob/v0.5.1/kubeflow/registry.yaml",
        "git@github.com:kubeflow/kubeflow.git#v0.3-branch:kubeflow",
        "https://www.github.com/kubeflow/kubeflow.git#v0.4-branch:kubeflow",
    ],
)
def test_addresses_of_every_release_of_kubeflow_lead_to_the_shipped_registry(address: str) -> None:
    assert is_bundled(address)


@pytest.mark.parametrize(
    "address",
    [
        "github.com/kubeflow/kubeflow/tree/v0.6-branch/kubeflow",
        "github.com/kubeflow/kubeflow/tree/v0.5-branch/other",
        "github.com/kubeflow/examples/tree/v0.5-branch/kubeflow",
        "example.org/kubeflow/kubeflow/tree/v0.5-branch/kubeflow",
    ],
)
def test_other_addresses_do_not(address: str) -> None:
    assert not is_bundled(address)


def test_messages_call_a_registry_by_the_name_the_app_has_for_it(demo: Runner) -> None:
    assert "registry `ours` has no package `nothing`" in demo("pkg install ours/nothing").err


def test_an_app_without_registries_is_told_to_add_one(tmp_path: Path, run: Runner) -> None:
    ran = run("init bare --skip-default-registries")
    assert "registry add NAME ADDRESS" in ran.err
    assert "kubeflow" not in ran.err


@pytest.mark.parametrize("name", ["a/", "a//b", "/a"])
def test_e3_an_empty_part_of_an_environments_name_is_told(demo: Runner, name: str) -> None:
    ran = demo(f"env add {name} --context minikube")
    assert ran.code == 2
    assert f"`{name}` cannot be an environment name: a part of it is empty" in ran.err


@pytest.mark.slow
def test_r7_a_registry_that_is_away_answers_from_the_cache_with_a_warning(
    demo: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository(tmp_path / "repo", {path[9:]: text for path, text in REGISTRY.items()})
    demo.ok(f"registry add far file://{tmp_path}/repo#main")
    (tmp_path / "repo").rename(tmp_path / "gone")
    assert demo("registry describe far").err == ""
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 601)
    ran = demo("registry describe far")
    assert (ran.code, "tools" in ran.out) == (0, True)
    (line,) = ran.err.splitlines()
    assert "cannot fetch" in line
    assert "what it said on" in line
    ran = demo("pkg install far/tools")
    assert ran.code == 0
    assert [line for line in ran.err.splitlines() if "what it said on" in line] == ran.err.splitlines()[:1]
    assert "make sure you have" not in ran.err
    assert re.search(r'revision: "?[0-9a-f]{40}\b', (tmp_path / "demo/mlstack.lock").read_text())
    assert demo("registry update far").code == 5
    assert demo("pkg list").err.count("registry `far`: ") == 1


# --- OCI registries ---


@pytest.mark.slow
def test_a_package_is_published_added_and_installed(demo: Runner, tmp_path: Path) -> None:
    with FakeRegistry().running() as server:
        address = f"oci://{server.host}/ml"
        assert "lists neither packages nor repositories" in demo(f"registry add far {address}").err
        for name in ("base", "tools"):
            assert f"published {server.host}/ml/{name}:" in demo.ok(
                f"pkg publish ../registry/{name} {address}"
            )
        assert "is there already" in demo.ok(f"pkg publish ../registry/tools {address}")
        demo.ok(f"registry add far {address}")
        assert "nothing changed" in demo.ok("registry update far")
        demo.ok("pkg install far/tools")
        (row,) = [row for row in demo("pkg list -o json").json["packages"] if row["package"] == "far/tools"]
        assert row["installed"] == ["1.2.0"]
        digest = demo.ok("pkg publish ../registry/tools far -o name").strip().partition("@")[2]
        demo.ok(f"pkg install far/tools@{digest} --force")
        assert digest in (tmp_path / "demo/mlstack.lock").read_text()


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("pkg publish ../nowhere oci://127.0.0.1:1/ml", 4, "no package in `../nowhere`"),
        ("pkg publish ../registry/base oci://127.0.0.1:1/ml", 5, "connection refused"),
        ("pkg publish ../registry/base oci://127.0.0.1:1/ML", 5, "cannot be the name of a repository"),
        ("pkg publish ../registry/base away", 5, "is neither an OCI registry nor a folder"),
        ("pkg publish ../registry/base outs", 4, "did you mean `ours`?"),
    ],
)
def test_what_cannot_be_published_is_told(
    demo: Runner, tmp_path: Path, line: str, code: int, message: str
) -> None:
    file = tmp_path / "demo/app.yaml"
    registries = "registries:\n- {name: away, address: https://git.example.org/ml/x.git}\n"
    file.write_text(file.read_text().replace("registries:\n", registries))
    ran = demo(line)
    assert (ran.code, message in ran.err) == (code, True), ran.err


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("web/prototype.yaml", "kind: Prototype\n", "../registry/tools/web/prototype.yaml"),
        ("web/templates/page.yaml.j2", "a: 1\nb: {{ x\n", "templates/page.yaml.j2:2)"),
    ],
)
def test_a_broken_package_of_ones_own_is_not_published(
    demo: Runner, tmp_path: Path, file: str, text: str, message: str
) -> None:
    (tmp_path / "registry/tools" / file).write_text(text)
    (tmp_path / "out").mkdir()
    ran = demo("pkg publish ../registry/tools ../out")
    assert (ran.code, message in ran.err, read_tree(tmp_path / "out")) == (3, True, {}), ran.err


def test_a_package_is_published_into_the_folder_of_a_registry(demo: Runner, tmp_path: Path) -> None:
    assert demo("pkg publish ../registry/base ours -o json").json["isNew"]  # the index was not there yet
    write_tree(tmp_path, {f"work/{path[9:]}": text for path, text in REGISTRY.items()})
    head = tmp_path / "work/tools/package.yaml"
    head.write_text(head.read_text().replace("1.2.0", "1.3.0"))
    assert "published ../registry/tools@1.3.0 (sha256:" in demo.ok("pkg publish ../work/tools ../registry")
    assert "is there already" in demo.ok("pkg publish ../work/tools ../registry")
    demo.ok("pkg install ours/tools@1.3.0")
    assert {"1.2.0", "1.3.0"} == set(demo("registry describe ours -o json").json["packages"][1]["versions"])
    before = read_tree(tmp_path / "registry")
    head.write_text(head.read_text() + "description: changed\n")
    assert "is there with other content" in demo("pkg publish ../work/tools ../registry").err
    head.write_text(head.read_text() + "nothing: known\n")
    assert demo("pkg publish ../work/tools ../registry").code == 3
    assert read_tree(tmp_path / "registry") == before


def test_r12_a_new_address_is_asked_even_where_another_is_ones_own(demo: Runner, tmp_path: Path) -> None:
    write_tree(tmp_path / "demo", {"registries.txt": "x"})
    (tmp_path / "registry").rename(tmp_path / "mine")
    overrides = "registries:\n- {name: ours, address: ../mine}\n"
    kind = "apiVersion: mlstack.dev/v1\nkind: PersonalOverrides\n"
    write_tree(tmp_path / "demo", {layout.OVERRIDES: kind + overrides})
    demo.ok("registry update ours")
    assert demo("registry set ours --uri ../nowhere").code == 5
