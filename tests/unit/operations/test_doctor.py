"""What `doctor` looks at, and the next step of each finding."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack import programs
from mlstack.kube.kubeconfig import Context, Entry, Kubeconfig
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app


@pytest.fixture
def app(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    app_dir = small_app(tmp_path)
    monkeypatch.chdir(app_dir.root)
    run.ok("generate web front --image nginx")
    run.ok("env add dev --no-preset")
    return app_dir.root


def checks(run: Runner, words: str = "") -> tuple[int, Mapping[str, Any]]:
    ran = run(f"doctor {words} -o json")
    return ran.code, {check["name"]: check for check in ran.json["checks"]}


def test_a_sound_app_has_no_fault(run: Runner, app: Path) -> None:
    code, rows = checks(run)
    assert code == 0
    assert {"app", "components", "lock", "environments", "cache", "git", "kubeconfig"} < rows.keys()
    code, rows = checks(run, "dev")
    assert (code, rows["server version"]["state"], rows["rights"]["state"]) == (0, "ok", "ok")
    assert rows["snapshot"]["hint"] == "mlstack env snapshot dev"
    assert "nothing is wrong" in run("doctor dev").out


def test_outside_an_app_it_says_how_to_make_one(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, rows = checks(run)
    assert (code, "mlstack init NAME" in rows["app"]["hint"]) == (1, True)


@pytest.mark.parametrize(
    ("files", "name", "text"),
    [
        ({"app.yaml": "kind: App\n"}, "app", "apiVersion"),
        ({"components/x.yaml": "apiVersion: mlstack.dev/v1\nkind: Component\n"}, "components", "prototype"),
        ({"vendor/ours/tools@1.2.0/package.yaml": "name: x\n"}, "lock", "was changed"),
        (
            {"environments/bad/environment.yaml": "apiVersion: mlstack.dev/v1\nkind: Environment\nx: 1\n"},
            "environment bad",
            "x",
        ),
    ],
    ids=["app", "component", "vendor", "environment"],
)
def test_each_file_that_is_wrong_is_named(
    run: Runner, app: Path, files: dict[str, str], name: str, text: str
) -> None:
    write_tree(app, files)
    code, rows = checks(run)
    assert (code, rows[name]["state"]) == (1, "failed")
    assert text in rows[name]["message"]


def test_a_folder_that_may_not_be_read_is_one_fault_of_several(
    run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def denied(path: Any) -> Any:
        if Path(path).name == "environments":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", denied)
        code, rows = checks(run)
    assert (code, rows["environments"]["state"], rows["environments"]["hint"]) == (
        1,
        "failed",
        "check its rights",
    )
    assert "permission denied" in rows["environments"]["message"]
    assert (rows["components"]["state"], rows["kubeconfig"]["state"]) == ("ok", "ok")


def test_a_fault_of_several_lines_keeps_them(run: Runner, app: Path) -> None:
    write_tree(app, {"mlstack.lock": "apiVersion: mlstack.dev/v1\nkind: Lock\npackages: [{package: a}]\n"})
    lines = run("doctor").out.splitlines()
    start = lines.index("FAIL lock: mlstack.lock is not a valid Lock")
    assert lines[start + 1].startswith("       `packages[0].")


def test_a_context_that_this_machine_does_not_know_fails_for_its_environment_alone(
    run: Runner, app: Path
) -> None:
    run.ok("env add prod --no-preset --context elsewhere --offline")
    code, rows = checks(run)
    assert (code, rows["context elsewhere"]["state"]) == (0, "warning")
    code, rows = checks(run, "prod")
    assert (code, rows["context elsewhere"]["state"]) == (1, "failed")
    assert "mlstack env set prod --override --context" in rows["context elsewhere"]["hint"]
    run.ok("env add bare --no-preset --offline")
    assert "mlstack env set bare --context" in checks(run)[1]["context -"]["hint"]


def test_a_program_that_the_app_needs_is_a_fault_when_it_is_missing(
    run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> Path:
        raise programs.ProgramError(f"no {name}", hint=f"install {name}")

    monkeypatch.setattr(programs, "find", find)
    code, rows = checks(run)
    assert (code, rows["git"]["state"], rows["git"]["hint"]) == (0, "warning", "")
    write_tree(app, {"environments/dev/params.sops.yaml": ""})
    code, rows = checks(run)
    assert (code, rows["sops"]["state"], rows["sops"]["hint"]) == (1, "failed", "install sops")


def test_a_helm_that_is_too_old_for_the_charts_of_an_app_is_a_fault(
    run: Runner, app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"charts/web/Chart.yaml": "{apiVersion: v2, name: web, version: 0.1.0}\n"})
    write_tree(tmp_path, {"bin/helm": "#!/bin/sh\necho v3.19.0\n"})
    (tmp_path / "bin/helm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    code, rows = checks(run)
    assert (code, rows["helm"]["state"]) == (0, "ok")
    run.ok(f"registry add charts {tmp_path / 'charts'}")
    run.ok("pkg install charts/web")
    code, rows = checks(run)
    assert (code, rows["helm"]["state"]) == (1, "failed")
    assert "v3.19.0, and charts need helm 4" in rows["helm"]["message"]
    assert rows["helm"]["hint"].startswith("get helm 4 from https://helm.sh/")


def test_a_credential_plug_in_that_is_missing_is_named(
    run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = {"exec": {"command": "no-such-login", "installHint": "fetch it from the shelf"}}
    entries = {
        "contexts": {"minikube": Entry({"cluster": "c", "user": "u"})},
        "clusters": {"c": Entry({"server": "https://c.invalid"})},
        "users": {"u": Entry(plugin)},
    }
    context = Context(name="minikube", cluster="c", server="https://c.invalid", namespace="default")
    config = Kubeconfig(current_context="minikube", contexts={"minikube": context}, entries=entries)
    monkeypatch.setattr(run, "_kubeconfig", lambda: config)
    code, rows = checks(run)
    assert (code, rows["context minikube"]["hint"]) == (1, "fetch it from the shelf")


def test_another_cluster_behind_the_context_is_told(run: Runner, app: Path) -> None:
    run.ok("apply dev")
    run.clusters["minikube"] = run.new_cluster("another")
    code, rows = checks(run, "dev")
    assert (code, "leads to another cluster" in rows["cluster"]["message"]) == (1, True)
    assert "rights" not in rows
