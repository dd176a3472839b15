"""Rows P, A13, C6 and R16: versions, ranges, dependencies, environments and the lock of packages."""

import shutil
from pathlib import Path

import pytest

from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.registries import commit, git, need_git


def release(registry: Path, version: str, *, folder: str = "", old: str = "1.2.0", **changes: str) -> None:
    """Put another version of `tools` into a registry, in a folder of its own where one is named."""
    source = registry / "tools"
    target = registry / (folder or "tools")
    if target != source:
        shutil.copytree(source, target)
    head = target / "package.yaml"
    head.write_text(head.read_text().replace(f"version: {old}", f"version: {version}"))
    for file in (target / "web/prototype.yaml", target / "web/templates/page.yaml.j2"):
        for before, after in changes.items():
            text = file.read_text()
            assert before in text
            file.write_text(text.replace(before, after))


@pytest.fixture
def registry(demo: Path, tmp_path: Path, run: Runner) -> Path:
    """Give the registry's folder, with `tools` in 1.2.0, 1.3.0 and 2.0.0 and an index."""
    folder = tmp_path / "registry"
    release(folder, "1.3.0", folder="tools-1.3")
    release(folder, "2.0.0", folder="tools-2", color="hue")
    run.ok(f"registry index {folder}")
    return folder


def installed(run: Runner) -> list[tuple[str, str, list[str]]]:
    rows = run("pkg list --installed -o json").json["packages"]
    return [(row["package"], row["version"], row["environments"]) for row in rows]


def test_p1_install_brings_the_newest_of_the_registry(registry: Path, run: Runner) -> None:
    run.ok("pkg install ours/tools")
    assert installed(run) == [("ours/base", "1.0.0", []), ("ours/tools", "2.0.0", [])]


def test_an_update_asks_for_no_secret_to_tell_what_renders(registry: Path, run: Runner) -> None:
    run.ok("generate web back --image=a")
    file = Path("components/back.yaml")
    file.write_text(f"{file.read_text()}  token: {{fromEnv: NOT_SET_ANYWHERE}}\n")
    assert run("render gke -c back").code == 3
    update = run("pkg update ours/tools -o json").json
    assert update["packages"] != []
    assert not [note for note in update["notes"] if "NOT_SET_ANYWHERE" in note]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["v1.2.0", "feature/x/y", "COMMIT", "1.3.0", "^1.2", "~1.3"])
def test_p2_tag_branch_commit_version_or_range(demo: Path, tmp_path: Path, run: Runner, version: str) -> None:
    need_git()
    folder = tmp_path / "registry"
    git(folder, "init", "--quiet")
    first = commit(folder)
    git(folder, "tag", "v1.2.0")
    git(folder, "branch", "feature/x/y")
    release(folder, "1.3.0")
    commit(folder)
    run.ok(f"registry add g1 file://{folder}")
    run.ok(f"pkg install g1/tools@{version.replace('COMMIT', first)}")
    expected = "1.3.0" if version in ("1.3.0", "^1.2", "~1.3") else "1.2.0"
    assert ("g1/tools", expected, []) in installed(run)


def test_p3_what_is_installed_is_locked_and_comes_again_byte_for_byte(registry: Path, run: Runner) -> None:
    run.ok("pkg install ours/tools@^1.2")
    root = Path.cwd()
    assert '- name: ours/tools\n  version: "^1.2"\n' in (root / "app.yaml").read_text()
    before = read_tree(root)
    shutil.rmtree(root / "vendor")
    run.ok("pkg install")
    assert read_tree(root) == before
    shutil.copytree("vendor/ours/base@1.0.0", "vendor/ours/base@2.0.0")  # as a killed install leaves it
    assert (run("pkg verify").code, "ours/base@2.0.0: is in vendor/" in run("pkg verify").out) == (1, True)
    run.ok("pkg install")
    assert read_tree(root) == before


@pytest.mark.parametrize("first", ["ours/tools", "ours/tools@2.0.0"])
def test_p5_what_is_installed_beside_moves_no_component(registry: Path, run: Runner, first: str) -> None:
    Path("app.yaml").write_text(Path("app.yaml").read_text().replace("ours/tools", first))
    run.ok("pkg update")
    run.ok("pkg install ours/tools@1.2.0")
    assert [row[1] for row in installed(run) if row[0] == "ours/tools"] == ["1.2.0", "2.0.0"]
    run.ok("generate ours/tools@1.2.0/web old --image nginx")
    run.ok("generate tools@1.2.0/web short --image nginx")
    for name in ("old", "short"):
        assert "prototype: ours/tools@1.2.0/web\n" in Path(f"components/{name}.yaml").read_text()
    assert {row["name"]: row["package"] for row in run("component list -o json").json["components"]} == {
        "front": "ours/tools@2.0.0",
        "old": "ours/tools@1.2.0",
        "short": "ours/tools@1.2.0",
    }


def test_p6_an_environment_has_a_version_of_its_own(registry: Path, run: Runner) -> None:
    run.ok("pkg install ours/tools")
    run.ok("pkg install --env gke ours/tools@1.2.0")
    assert installed(run)[1:] == [("ours/tools", "1.2.0", ["gke"]), ("ours/tools", "2.0.0", [])]
    Path("components/front.yaml").write_text(
        Path("components/front.yaml").read_text() + "  hue: red\n"  # which 2.0.0 calls so
    )
    assert "hue: red" in run.ok("render minikube")
    assert "has no parameter `hue`" in run("render gke").err
    run.ok("pkg rm --env gke ours/tools")
    assert "hue: red" in run.ok("render gke")
    assert "packages" not in Path("environments/gke/environment.yaml").read_text()


def test_p6_parameters_are_those_of_the_version_that_the_environment_has(registry: Path, run: Runner) -> None:
    release(registry, "2.1.0", folder="tools-2.1", token="apiToken")
    run.ok(f"registry index {registry}")
    run.ok("pkg install ours/tools")
    run.ok("pkg install --env gke ours/tools@1.2.0")
    assert "has no parameter `apiToken`" in run("param set front apiToken x --env gke").err
    run.ok("param set front token sesame-123 --env gke")
    for line in ("render gke --set token=x", "param diff gke minikube", "env describe gke"):
        assert "sesame-123" not in run.ok(line)
    run.ok("param unset front token --env gke")


def test_p6_env_set_moves_one_environment_and_takes_it_back(registry: Path, run: Runner) -> None:
    run.ok("pkg install ours/tools")
    environment = Path("environments/gke/environment.yaml")
    before = environment.read_bytes()
    ran = run.ok("env set gke --package tools@1.2.0 --namespace ml")
    assert 'packages = ["ours/tools@1.2.0"]' in ran
    assert installed(run)[1:] == [("ours/tools", "1.2.0", ["gke"]), ("ours/tools", "2.0.0", [])]
    run.ok("env set gke --package ours/tools@1.3.0")
    assert "ours/tools@1.2.0" not in environment.read_text()
    for line, code in {
        "--package ours/tools@9 --namespace other": 4,
        "--package ours/tools@1.2.0 --namespace O_O": 2,
        "--no-package ours/base": 4,
        "--override --package ours/tools@1.2.0": 2,
    }.items():
        files = read_tree(Path())
        assert run(f"env set gke {line}").code == code
        assert read_tree(Path()) == files
    run.ok("env set gke --no-package ours/tools --namespace default")
    assert environment.read_bytes() == before + b"namespace: default\n"
    assert installed(run)[1:] == [("ours/tools", "2.0.0", [])]


def test_p9_lists_show_versions_and_environments_once(registry: Path, run: Runner) -> None:
    run.ok("pkg install --env gke ours/tools@1.3.0")
    names = run.ok("pkg list --installed -o name").split()
    assert names == ["ours/base", "ours/tools", "ours/tools"]
    rows = run("pkg list -o json").json["packages"]
    tools = next(row for row in rows if row["package"] == "ours/tools")
    assert (tools["version"], tools["installed"]) == ("2.0.0", ["1.2.0", "1.3.0"])


def test_p13_outdated_packages_are_listed_and_updated(registry: Path, run: Runner) -> None:
    run.ok("pkg install ours/tools@1.2.0")
    text = Path("app.yaml").read_text().replace("- ours/tools@1.2.0\n", "").replace("- ours/tools\n", "")
    Path("app.yaml").write_text(f"{text}- {{name: ours/tools, version: ^1.2}}\n")
    run.ok("pkg install")
    row = run("pkg outdated -o json").json["packages"][0]
    assert (row["installed"], row["wanted"], row["newest"]) == ("1.2.0", "1.3.0", "2.0.0")
    assert run("pkg outdated --exit-code").code == 1
    before = read_tree(Path.cwd())
    preview = run("pkg update --preview -o json").json
    assert read_tree(Path.cwd()) == before
    assert [(row["before"], row["after"]) for row in preview["packages"]] == [("1.2.0", "1.3.0")]
    run.ok("pkg update ours/tools")
    assert ("ours/tools", "1.3.0", []) in installed(run)


def test_p13_what_is_not_offered_any_more_is_kept(registry: Path, run: Runner) -> None:
    text = Path("app.yaml").read_text().replace("- ours/tools\n", "")
    Path("app.yaml").write_text(f"{text}- {{name: ours/tools, version: ^1.2}}\n")
    run.ok("pkg install")
    before = installed(run)
    for version in ("tools", "tools-1.3"):
        shutil.rmtree(registry / version)
    run.ok(f"registry index {registry}")
    ran = run("pkg update")
    assert "`ours/tools` ^1.2 is not offered any more, and what is locked is kept" in ran.err
    assert (ran.code, installed(run)) == (0, before)


def test_p13_an_index_names_versions_whose_content_changed(registry: Path, run: Runner) -> None:
    (registry / "tools" / "README.md").write_text("other\n")
    checked = run(f"registry index {registry} --check")
    assert checked.code == 1
    assert "tools@1.2.0 has other content than before" in " ".join(checked.err.split())
    assert "other content" in run(f"registry index {registry}").err
    assert "other content" not in run(f"registry index {registry}").err


def test_p14_requirements_are_resolved_across_registries_and_locked(
    demo: Path, tmp_path: Path, run: Runner
) -> None:
    other = write_tree(tmp_path / "other", {"top/package.yaml": package("top", "{name: lib, version: ^1}")})
    for version in ("1.0.0", "1.1.0", "2.0.0"):
        write_tree(other, {f"lib-{version}/package.yaml": package("lib", version=version)})
    away = "{name: theirs/top, registry: ../other}"
    write_tree(tmp_path / "registry", {"user/package.yaml": package("user", away)})
    run.ok(f"registry index {other}")
    missing = run("pkg install ours/user")
    assert (missing.code, "mlstack registry add theirs ../other" in missing.err) == (4, True)
    run.ok("registry add others ../other")
    run.ok("pkg install ours/user")
    assert ("others/lib", "1.1.0", []) in installed(run)
    assert "others/lib: ^1" in Path("mlstack.lock").read_text().replace('"', "")
    run.ok("pkg install others/lib@^1")
    run.ok("pkg install others/lib@2.0.0")
    refused = run("pkg rm others/lib@1.1.0")  # 2.0.0, which stays, is not what `top` requires
    assert (refused.code, "is required by `others/top`" in refused.err) == (2, True)


def test_packages_that_require_each_other_go_together(demo: Path, tmp_path: Path, run: Runner) -> None:
    for name, required in ("ab", "ba"):
        write_tree(tmp_path / "registry", {f"{name}/package.yaml": package(name, required)})
    run.ok("pkg install ours/a")
    run.play(
        "pkg rm ours/a | 2 | is required by `ours/b`\npkg rm ours/b ours/a | 0 | ours/a@1.0.0 | ours/b@1.0.0"
    )


def package(name: str, *requires: str, version: str = "1.0.0") -> str:
    needs = f"requires: [{', '.join(requires)}]\n" if requires else ""
    head = f"apiVersion: mlstack.dev/v1\nkind: Package\nname: {name}\nversion: {version}\n"
    return f"{head}summary: About {name}\n{needs}"


def test_p16_what_a_package_says_of_itself_is_shown(demo: Path, tmp_path: Path, run: Runner) -> None:
    about = "authors: [Ann]\nkeywords: [web]\nlicense: MIT\nrepository: https://example.org/x\n"
    text = package("told") + about + "bugs: https://example.org/bugs\nquickStart: mlstack generate x\n"
    write_tree(tmp_path / "registry", {"told/package.yaml": text})
    out = run.ok("pkg describe told")
    for fact in ("Ann", "web", "MIT", "https://example.org/x", "example.org/bugs", "mlstack generate x"):
        assert fact in out


@pytest.mark.slow
def test_a13_one_command_restores_everything_though_the_branch_has_moved(
    demo: Path, tmp_path: Path, run: Runner
) -> None:
    need_git()
    folder = tmp_path / "repo"
    shutil.copytree(tmp_path / "registry", folder)
    git(folder, "init", "--quiet", "--initial-branch=feature/x")
    commit(folder)
    run.ok(f"registry add g1 file://{folder}#feature/x")
    run.ok("pkg install g1/tools")
    before = read_tree(Path.cwd())
    release(folder, "1.3.0")
    shutil.rmtree(folder / "base")
    write_tree(folder, {"base/package.yaml": package("base", version="3.0.0")})
    commit(folder)
    shutil.rmtree("vendor")
    run.ok("pkg install --frozen")
    assert read_tree(Path.cwd()) == before


def test_c6_a_name_with_package_and_version_is_exact(registry: Path, run: Runner) -> None:
    run.ok("pkg install ours/tools@1.3.0")
    assert run("prototype describe ours/tools@1.3.0/web -o json").json["package"] == "ours/tools@1.3.0"
    assert run("prototype describe ours/tools/web -o json").json["package"] == "ours/tools@1.2.0"
    assert run("prototype describe ours/tools@1.2.0/web -o json").json["package"] == "ours/tools@1.2.0"
    assert run("prototype describe ours/tools@1.4.0/web").code == 4
    assert run("prototype describe others/tools@1.3.0/web").code == 4


@pytest.mark.slow
def test_r16_commit_and_digest_are_locked_for_each_package(demo: Path, tmp_path: Path, run: Runner) -> None:
    need_git()
    folder = tmp_path / "registry"
    git(folder, "init", "--quiet")
    first = commit(folder)
    git(folder, "tag", "v1")
    release(folder, "1.3.0")
    second = commit(folder)
    run.ok(f"registry add g1 file://{folder}")
    run.ok("pkg install g1/tools")
    run.ok("pkg install g1/tools@v1")
    described = {
        version: run(f"pkg describe g1/tools@{version} -o json").json["revision"]
        for version in ("1.2.0", "1.3.0")
    }
    assert described == {"1.2.0": first, "1.3.0": second}
    file = Path("vendor/g1/tools@1.3.0/web/prototype.yaml")
    file.write_bytes(file.read_bytes() + b"\n")
    verified = run("pkg verify")
    assert verified.code == 1
    assert "g1/tools@1.3.0: `web/prototype.yaml` was changed" in verified.out


# --- what an update would change ---

_JOB = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: {{ name }}}
spec:
  serviceName: SERVICE
  replicas: {{ params.replicas }}
  selector: {matchLabels: {app: {{ name }}}}
  template:
    metadata: {labels: {app: {{ name }}}}
    spec: {containers: [{name: main, image: {{ params.image }}}]}
"""


def _workers(version: str, service: str, parameters: str) -> dict[str, bytes]:
    head = (
        f"apiVersion: mlstack.dev/v1\nkind: Prototype\nname: work\nsummary: Works\nparameters:\n{parameters}"
    )
    folder = f"workers-{version}"
    return {
        f"{folder}/package.yaml": package("workers", version=version).encode(),
        f"{folder}/work/prototype.yaml": head.encode(),
        f"{folder}/work/templates/work.yaml.j2": _JOB.replace("SERVICE", service).encode(),
    }


@pytest.fixture
def workers(demo: Path, tmp_path: Path, run: Runner) -> None:
    """Offer workers in 1.0.0 and 1.1.0, and give components of the first one with values of their own."""
    old = """\
  properties:
    image: {type: string, default: one}
    replicas: {type: integer, default: 1}
    size: {type: string, default: s}
    extra: {type: string, default: x}
    left: {type: string, default: x}
"""
    new = """\
  required: [zone]
  properties:
    image: {type: string, default: two}
    replicas: {type: integer, default: 2}
    scale: {type: string, default: m, aliases: [size]}
    zone: {type: string}
"""
    registry = tmp_path / "registry"
    for version, service, parameters in (("1.0.0", "a", old), ("1.1.0", "b", new)):
        write_tree(registry, _workers(version, service, parameters))
    run.ok(f"registry index {registry}")
    run.ok("pkg install ours/workers@1.0.0")
    text = Path("app.yaml").read_text().replace("- ours/workers@1.0.0\n", "")
    Path("app.yaml").write_text(f"{text}- {{name: ours/workers, version: ^1}}\n")
    for line in (
        "generate work plain",
        "generate work tuned --image mine --extra y",
        "param set plain replicas 5 --env gke",
        "param set tuned size l --env gke",
    ):
        run.ok(line)


def test_p12_a_preview_says_what_an_update_does_to_each_component(workers: None, run: Runner) -> None:
    before = read_tree(Path.cwd())
    preview = run("pkg update ours/workers --preview -o json").json
    assert read_tree(Path.cwd()) == before
    names = ("component", "environment", "parameter", "kind")
    effects = {
        tuple(row[name] for name in names): (row.get("before"), row.get("after"), row.get("origin", ""))
        for row in preview["parameters"]
    }
    tuned, gke = "components/tuned.yaml", "environments/gke/params.yaml"
    for environment in ("minikube", "gke"):
        assert effects["plain", environment, "image", "default"] == ("one", "two", "")
        default, _, origin = effects["tuned", environment, "image", "hidden"]
        assert (default, origin.partition(":")[0]) == ("one", tuned)
        assert effects["tuned", environment, "extra", "gone"][2].startswith(f"{tuned}:")
        assert ("plain", environment, "zone", "required") in effects
        assert ("plain", environment, "extra", "gone") not in effects
        assert ("plain", environment, "left", "gone") not in effects
    assert any("`plain` would not render for `gke`" in note for note in preview["notes"])
    notes = run("pkg update ours/workers -o json").json["notes"]
    assert "`gke` does not render now: `zone` is required by `plain` and not set" in notes
    assert effects["plain", "minikube", "replicas", "default"] == (1, 2, "")
    assert effects["plain", "gke", "replicas", "hidden"][2].startswith(f"{gke}:")
    assert effects["tuned", "gke", "size", "renamed"][:2] == ("size", "scale")
    assert effects["tuned", "gke", "scale", "hidden"][2].startswith(f"{gke}:")
    assert effects["tuned", "minikube", "scale", "default"] == ("s", "m", "")


def test_p12_a_preview_names_objects_that_would_be_made_anew(workers: None, run: Runner) -> None:
    file = Path("../registry/workers-1.1.0/work/prototype.yaml")
    file.write_text(file.read_text().replace("  required: [zone]\n", ""))
    run.ok("registry index ../registry")
    preview = run("pkg update --preview -o json").json
    objects = {(row["environment"], row["object"]): row for row in preview["objects"]}
    for environment in ("minikube", "gke"):
        row = objects[environment, "StatefulSet default/plain"]
        assert (row["component"], row["action"]) == ("plain", "recreate")
        assert "serviceName" in row["reason"]
    out = run.ok("pkg update --preview")
    for words in ("plain", "tuned", "recreate", "serviceName", "hidden", "scale"):
        assert words in out
    run.ok("pkg update")
    assert "image: two" in run.ok("render minikube -c plain")
