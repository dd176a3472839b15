"""What Helm and kustomize have made becomes components, with the proof that nothing changes."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import Tree, read_tree, write_tree
from tests.support.charts import PLATFORM, RANDOM, comparable, helm_objects
from tests.support.cli import Runner
from tests.support.tools import tool

KUSTOMIZATION: Tree = {
    "base/kustomization.yaml": "resources: [web.yaml]\nlabels: [{pairs: {team: ml}}]\n",
    "base/web.yaml": """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        spec:
          replicas: 1
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec: {containers: [{name: web, image: nginx:1}]}
        """,
    "overlays/dev/kustomization.yaml": "resources: [../../base]\nnamespace: shop-dev\n",
    "overlays/prod/kustomization.yaml": """\
        resources: [../../base, extra.yaml]
        namespace: shop
        images: [{name: nginx, newTag: "2"}]
        replicas: [{name: web, count: 3}]
        """,
    "overlays/prod/extra.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra}\ndata: {a: b}\n",
}

MIGRATE = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "migrate", "annotations": {"helm.sh/hook": "pre-install"}},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "m", "image": "m"}]}}},
}


@pytest.fixture
def app(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    run.ok("init shop --skip-default-registries")
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real helm and kustomize on the PATH."""
    places = [str(tool(name).parent) for name in ("helm", "kustomize")]
    monkeypatch.setenv("PATH", os.pathsep.join([*places, os.environ["PATH"]]))


def rendered(run: Runner, environment: str, *options: str) -> dict[str, Any]:
    ran = run("render", environment, "-o", "json", *options)
    assert ran.code == 0, ran.err
    return comparable(ran.json["items"])


def built(folder: Path) -> dict[str, Any]:
    from mlstack.yaml.read import read_documents

    done = subprocess.run([tool("kustomize"), "build", folder], capture_output=True, check=True)
    return comparable([read.value for read in read_documents(done.stdout.decode(), source="kustomize")])


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_c25_charts_become_manifests_with_patches_and_proof(run: Runner, app: Path, tmp_path: Path) -> None:
    chart = write_tree(tmp_path / "chart", PLATFORM)
    run.ok("env add dev --offline -n ml")
    run.ok("env add prod --offline -n ml")
    prod = {"replicas": 4, "hosts": ["c.example"], "global": {"zone": "eu"}}
    (tmp_path / "prod.yaml").write_text(json.dumps(prod))
    ran = run("import helm ../chart --name web --set global.zone=eu --values prod=../prod.yaml -o json")
    assert ran.code == 0, ran.err
    assert ran.json["summary"] == "13 of 13 objects equal"
    assert "Job web-migrate" in str(ran.json["notes"])
    for environment, values in (("prod", prod), ("dev", {"global": {"zone": "eu"}})):
        objects = comparable(helm_objects(chart, "web", values=values))
        assert rendered(run, environment) == objects


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_c25_a_chart_of_chance_changes_nothing(run: Runner, app: Path, tmp_path: Path) -> None:
    write_tree(tmp_path / "chart", RANDOM)
    before = read_tree(app)
    ran = run("import helm ../chart")
    assert ran.code == 3
    assert "Secret random: stringData.password" in ran.err
    assert read_tree(app) == before


def test_c25_a_chart_is_imported_by_helm_4_alone(
    run: Runner, app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"chart/Chart.yaml": "{apiVersion: v2, name: web, version: 0.1.0}\n"})
    write_tree(tmp_path, {"bin/helm": "#!/bin/sh\necho v3.19.0\n"})
    (tmp_path / "bin/helm").chmod(0o755)
    for path, text in ((tmp_path, "is not installed"), (tmp_path / "bin", "the helm on the PATH is v3.19.0")):
        monkeypatch.setenv("PATH", str(path))
        ran = run("import helm ../chart")
        assert (ran.code, text in ran.err, "hint: get helm 4" in ran.err) == (5, True, True)


def release(manifest: str, *, version: int = 3, status: str = "deployed") -> dict[str, Any]:
    """Give the Secret in which helm keeps a revision of the release `web`."""
    content = {
        "name": "web",
        "version": version,
        "chart": {"metadata": {"name": "demo", "version": "1.0.0"}},
        "manifest": manifest,
        "hooks": [{"kind": "Job", "name": "migrate", "manifest": json.dumps(MIGRATE)}],
    }
    text = base64.b64encode(gzip.compress(json.dumps(content).encode()))
    labels = {"owner": "helm", "name": "web", "status": status, "version": str(version)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {"name": f"sh.helm.release.v1.web.v{version}", "namespace": "ml", "labels": labels},
        "data": {"release": base64.b64encode(text).decode()},
    }


def test_c25_a_live_release_is_taken_over_without_making_anything_anew(run: Runner, app: Path) -> None:
    cluster = run.cluster("minikube")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"a": "1"}}
    labelled = {**manifest, "metadata": {"name": "web", "labels": {"app.kubernetes.io/managed-by": "Helm"}}}
    cluster.apply(
        {**labelled, "metadata": {**labelled["metadata"], "namespace": "ml"}, "data": {"a": "1", "old": "2"}},
        manager="helm",
    )
    old = json.dumps({**labelled, "data": {"a": "0"}})
    cluster.apply(release(old, version=2, status="superseded"))
    cluster.apply(release(json.dumps(labelled)))

    def web() -> dict[str, Any]:
        listed = cluster.list("v1", "ConfigMap", namespace="ml").items
        return next(dict(item) for item in listed if item["metadata"]["name"] == "web")

    uid = web()["metadata"]["uid"]
    run.ok("env add dev --context minikube -n ml")
    assert "no release `wbe` of Helm" in run("import helm --live wbe --env dev").err
    ran = run("import helm --live web --env dev --adopt -o json")
    assert (ran.code, ran.json["summary"]) == (0, "1 of 1 objects equal")
    assert "Job migrate (pre-install); --hooks keeps those of an install" in str(ran.json["notes"])
    run.ok("apply dev --yes")
    live = web()
    assert (live["metadata"]["uid"], live["data"]) == (uid, {"a": "1"})
    managers = {entry["manager"] for entry in live["metadata"]["managedFields"]}
    assert managers == {"mlstack"}
    ran = run("import helm --live web --env dev --name again --hooks -o json")
    assert (ran.code, ran.json["summary"]) == (0, "2 of 2 objects equal")


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_c25_overlays_become_environments(run: Runner, app: Path, tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "manifests", KUSTOMIZATION)
    run.play("module create own\nenv add test --no-preset\nenv add idle --no-preset\nenv targets idle own")
    ran = run("import kustomize ../manifests --name web -o json")
    assert ran.code == 0, ran.err
    assert ran.json["summary"] == "3 of 3 objects equal"
    assert "`test` deploys `web`, `web-prod` too: mlstack env targets test NAME chooses" in ran.json["notes"]
    assert not any("idle" in note for note in ran.json["notes"])
    for environment in ("dev", "prod"):
        assert rendered(run, environment) == built(folder / "overlays" / environment)
    assert "replicas: 3" in (app / "environments/prod/patches/web.yaml").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_c25_a_kustomization_is_built_at_each_render(
    run: Runner, app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tree(tmp_path / "manifests", KUSTOMIZATION)
    run.ok("env add dev --offline -n shop")
    component = "apiVersion: mlstack.dev/v1\nkind: Component\nkustomize: ../manifests/overlays/prod\n"
    write_tree(app, {"components/web.yaml": component})
    assert rendered(run, "dev") == built(folder / "overlays/prod")
    patch = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 9}}\n"
    write_tree(app, {"environments/dev/patches/web.yaml": patch})
    assert "replicas: 9" in run.ok("render dev")
    (folder / "overlays/prod/extra.yaml").write_text("a: [")
    assert run("render dev").code == 3
    write_tree(folder, {"overlays/prod/kustomization.yaml": "resources: ['https://x.example/a//b?ref=v1']\n"})
    assert "kustomize localize ../manifests/overlays/prod NEWDIR" in run("render dev").err
    assert run("param set web replicas 2").code == 2
    write_tree(folder, KUSTOMIZATION)
    write_tree(app, {"components/web.yaml": component.replace("prod", "prod/kustomization.yaml")})
    ran = run("render dev")
    assert (ran.code, "hint: name the folder that holds the file" in ran.err) == (4, True)
    write_tree(app, {"components/web.yaml": component})
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = run("render dev")
    assert (ran.code, "hint: get kustomize from" in ran.err) == (5, True)


@pytest.fixture
def remote(tmp_path: Path) -> Callable[..., str]:
    """A git repository with a kustomization; the function commits what it is given, and gives the address."""
    folder = tmp_path / "remote"

    def git(*words: str) -> None:
        names = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)

    def commit(**changed: str) -> str:
        write_tree(folder, {name.replace("__", "/") + ".yaml": text for name, text in changed.items()})
        git("add", "-A")
        git("commit", "-qm", "changed")
        return f"file://{folder}//overlays/prod@main"

    write_tree(folder, KUSTOMIZATION)
    git("init", "-q", "-b", "main")
    return commit


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_c25_somebody_elses_kustomization_is_copied_and_pinned(
    run: Runner, app: Path, tmp_path: Path, remote: Callable[..., str]
) -> None:
    source = remote()
    run.ok("env add dev --offline -n shop")
    run.ok(f"import kustomize {source} --name web")
    objects, folder = built(tmp_path / "remote/overlays/prod"), tmp_path / "remote"
    remote(base__web=str(KUSTOMIZATION["base/web.yaml"]).replace("replicas: 1", "paused: true"))
    before = read_tree(app)
    assert run(f"import kustomize {source} --name web").code == 2
    run.ok(f"import kustomize {source} --name web --force")
    assert read_tree(app) == before
    run.ok(f"import kustomize {source} --name web --force --update")
    assert rendered(run, "dev") == built(folder / "overlays/prod") != objects
    folder.rename(tmp_path / "gone")
    run.ok("render dev")
    (copy,) = (app / "vendor/kustomize").glob("*/overlays/prod/extra.yaml")
    copy.write_text(copy.read_text() + "#\n")
    assert "mlstack pkg install --force restores it" in run("render dev").err
    assert "is not what was copied" in run("pkg verify").out


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_c25_copies_of_kustomizations_are_restored_and_go_with_their_component(
    run: Runner, app: Path, remote: Callable[..., str]
) -> None:
    source = remote()
    empty = read_tree(app)
    component = f"apiVersion: mlstack.dev/v1\nkind: Component\nkustomize: {source}\n"
    write_tree(app, {"components/web.yaml": component})
    run.ok("env add dev --offline -n shop")
    assert "hint: mlstack pkg install" in run("render dev").err
    refused = run("pkg install --frozen")
    assert (refused.code, "is not up to date" in refused.err) == (3, True)
    assert run("pkg install -o json").json["copies"] == [source]
    whole, objects = read_tree(app), rendered(run, "dev")
    remote(base__web=str(KUSTOMIZATION["base/web.yaml"]).replace("replicas: 1", "paused: true"))
    for line in ("pkg install --frozen", "pkg install", "pkg install --force"):
        for path in sorted((app / "vendor").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        assert f"copied {source}" in run.ok(line)
        assert read_tree(app) == whole
    assert rendered(run, "dev") == objects
    assert "1 package as locked" in run.ok("pkg verify")
    run.ok("component rm web")
    run.ok("env rm dev")
    assert read_tree(app) == empty


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
def test_c25_what_somebody_elses_kustomization_takes_from_others_is_copied_and_pinned_too(
    run: Runner, app: Path, tmp_path: Path, remote: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = remote().replace("overlays/prod", "base")
    overlay = f"resources: ['{base.replace('@', '?ref=')}']\nnamePrefix: theirs-\n"
    source = remote(overlays__far__kustomization=overlay).replace("overlays/prod", "overlays/far")
    run.ok("env add dev --offline -n shop")
    component = f"apiVersion: mlstack.dev/v1\nkind: Component\nkustomize: {source}\n"
    write_tree(app, {"components/web.yaml": component})
    run.ok("pkg install")
    objects, whole = rendered(run, "dev"), read_tree(app)
    assert list(objects) == ["apps/v1 Deployment shop/theirs-web"]
    run.ok("pkg install --force")
    assert read_tree(app) == whole
    remote(base__web=str(KUSTOMIZATION["base/web.yaml"]).replace("replicas: 1", "paused: true"))
    ran = run("pkg install --force")  # its commit is the same, what it takes from the branch is not
    assert (ran.code, "what it refers to has moved" in ran.err) == (5, True)
    assert read_tree(app) == whole
    (tmp_path / "remote").rename(tmp_path / "gone")
    write_tree(tmp_path, {"bin/kubectl": f'#!/bin/sh\nshift\nexec {tool("kustomize")} build "$@"\n'})
    (tmp_path / "bin/kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")  # kubectl builds the copy as well
    assert rendered(run, "dev") == objects


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("reference", ["nowhere", "0123456789"])
def test_c25_a_revision_that_is_not_there_changes_nothing(
    run: Runner, app: Path, remote: Callable[..., str], reference: str
) -> None:
    source, before = remote().replace("@main", f"@{reference}"), read_tree(app)
    ran = run(f"import kustomize {source} --name web")
    assert (ran.code, f"no branch or tag `{reference}`" in ran.err) == (5, True)
    assert read_tree(app) == before


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("web/Chart.yaml", "mlstack import helm components/web"),
        ("web/kustomization.yaml", "mlstack import kustomize components/web"),
        ("web.jsonnet", "mlstack import ksonnet-app DIR"),
    ],
)
def test_c25_what_other_tools_take_leads_to_its_command(
    run: Runner, app: Path, file: str, command: str
) -> None:
    write_tree(app, {f"components/{file}": "name: web\n"})
    ran = run("component list")
    assert ran.code == 3
    assert command in ran.err
    assert f"components/{file}" in ran.err
