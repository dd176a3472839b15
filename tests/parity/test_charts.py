"""Helm charts as packages: the objects that the real helm renders, under the app's own rules."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import Tree, write_tree
from tests.support.charts import PLATFORM, RANDOM, STRICT, charts, comparable, helm_objects, packed
from tests.support.cli import Runner
from tests.support.tools import tool

pytestmark = pytest.mark.slow


@pytest.fixture
def app(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app with three charts, an environment `dev`, and helm on the PATH."""
    registry = charts(platform=PLATFORM, strict=STRICT, random=RANDOM)
    write_tree(tmp_path / "charts", registry)
    monkeypatch.setenv("PATH", f"{tool('helm').parent}{os.pathsep}{os.environ['PATH']}")
    run.ok("init shop")
    monkeypatch.chdir(tmp_path / "shop")
    run.ok("registry add charts ../charts")
    run.ok("env add dev --no-preset -n ml")
    for name in ("platform", "strict", "random"):
        run.ok(f"pkg install charts/{name}")
    return tmp_path / "shop"


def rendered(run: Runner, *options: str) -> dict[str, Any]:
    ran = run("render", "dev", "-o", "json", *options)
    assert ran.code == 0, ran.err
    return comparable(ran.json["items"])


def expected(app: Path, chart: str, release: str, **values: Any) -> dict[str, Any]:
    return comparable(helm_objects(app / f"vendor/charts/{chart}", release, values=values))


def test_r5_a_chart_renders_as_helm_template_does(run: Runner, app: Path) -> None:
    run.ok("generate platform web --replicas 2 --image.tag 1.10 --global.zone eu")
    objects = rendered(run)
    same = expected(
        app, "platform@1.2.0", "web", replicas=2, image={"tag": "1.10"}, **{"global": {"zone": "eu"}}
    )
    assert objects == same
    assert "apiextensions.k8s.io/v1 CustomResourceDefinition /widgets.example.com" in objects
    assert len(objects) == 7


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        (["cache.enabled false"], {"cache": {"enabled": False}}),
        (["config.drop null", "config.more 5"], {"config": {"drop": None, "more": 5}}),
        (["hosts '[c.example]'"], {"hosts": ["c.example"]}),
        (["cache.size 10Gi", "namespace other"], {"cache": {"size": "10Gi"}, "namespace": "other"}),
    ],
    ids=["condition", "null", "list", "subchart"],
)
def test_r5_values_of_an_environment_count_as_helm_has_them(
    run: Runner, app: Path, settings: list[str], values: dict[str, Any]
) -> None:
    run.ok("generate platform web")
    for setting in settings:
        run.ok(f"param set --env dev web {setting}")
    assert rendered(run) == expected(app, "platform@1.2.0", "web", **values)


def test_r5_values_files_are_taken_as_written(run: Runner, app: Path) -> None:
    run.ok("generate platform web")
    write_tree(
        app, {"v.yaml": "components: {web: {replicas: '3', image: {tag: 1.10}, more: {a: [null, 1e3]}}}\n"}
    )
    values = {"replicas": "3", "image": {"tag": 1.1}, "more": {"a": [None, 1000]}}
    assert rendered(run, "--values", "v.yaml") == expected(app, "platform@1.2.0", "web", **values)


def test_r5_hooks_and_tests_are_told_and_hooks_can_be_kept(run: Runner, app: Path) -> None:
    run.ok("generate platform web")
    ran = run("render dev")
    assert "Pod web-probe (test), Job web-migrate (pre-install, pre-upgrade); `hooks: apply`" in ran.err
    assert "web-migrate" not in ran.out
    file = app / "components/web.yaml"
    file.write_text(f"{file.read_text()}hooks: apply\n")
    ran = run("render dev")
    assert "Pod web-probe (test)" in ran.err
    assert "run when new, changed or failed, not at each upgrade: Job web-migrate" in ran.err
    kinds = [item["kind"] for item in run("render dev -o json").json["items"]]
    assert kinds.index("Job") < kinds.index("ConfigMap")  # before all that is not a definition


@pytest.mark.parametrize(
    ("events", "policy", "message"),
    [
        ("pre-install,post-install", "", "run before the rest alone, not after it too: Job web-migrate"),
        ("post-install", "hook-succeeded", "stay when they have ended: Job web-migrate"),
        ("pre-install", "before-hook-creation,hook-failed", "stay when they have ended: Job web-migrate"),
        (
            "pre-upgrade",
            "",
            "what only helm runs is left out: Pod web-probe (test), Job web-migrate (pre-upgrade)",
        ),
        ("post-delete,pre-rollback", "", "Job web-migrate (post-delete, pre-rollback)"),
    ],
)
def test_r5_what_hooks_do_otherwise_than_with_helm_is_told(
    run: Runner, app: Path, tmp_path: Path, events: str, policy: str, message: str
) -> None:
    hooks = str(PLATFORM["templates/hooks.yaml"]).replace("pre-install,pre-upgrade", events)
    hooks = hooks.replace(
        "helm.sh/hook-weight:", f"helm.sh/hook-delete-policy: '{policy}', helm.sh/hook-weight:"
    )
    head = str(PLATFORM["Chart.yaml"]).replace("name: platform", "name: hooked")
    write_tree(tmp_path / "charts/hooked", {**PLATFORM, "Chart.yaml": head, "templates/hooks.yaml": hooks})
    run.ok("pkg install charts/hooked")
    run.ok("generate hooked web")
    file = app / "components/web.yaml"
    file.write_text(f"{file.read_text()}hooks: apply\n")
    ran = run("render dev")
    assert (ran.code, message in ran.err) == (0, True), ran.err
    assert ("web-migrate" in ran.out) == ("install" in events)


def test_r5_no_value_for_all_components_reaches_a_chart(run: Runner, app: Path) -> None:
    run.ok("generate platform web")
    before = rendered(run)
    params = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\nglobals: {replicas: 7}\n"
    write_tree(app, {"environments/dev/params.yaml": params})
    file = app / "app.yaml"
    file.write_text(f"{file.read_text()}params: {{image: {{tag: stolen}}}}\n")
    assert rendered(run) == before
    ran = run("render dev --set replicas=7")
    assert ran.code == 4
    assert "--set web.replicas=VALUE" in ran.err


def test_r5_values_of_a_chart_inside_stand_under_its_name(run: Runner, app: Path) -> None:
    run.ok("generate platform web")
    described = run.ok("prototype describe platform")
    assert 'cache: object, default {"size": 64, "policy": "lru", "enabled": true}' in described
    run.ok("param set web cache.policy fifo")
    run.ok("param set web global.zone eu")
    values = {"cache": {"policy": "fifo"}, "global": {"zone": "eu"}}
    assert rendered(run) == expected(app, "platform@1.2.0", "web", **values)
    assert "ConfigMap web-cache" in run.ok("param explain web cache.policy --env dev")


def test_r5_values_of_a_chart_that_is_packed_inside_are_offered_too(
    run: Runner, app: Path, tmp_path: Path
) -> None:
    inner = {path: text for path, text in PLATFORM.items() if path.startswith("charts/cache/")}
    files = {path: text for path, text in PLATFORM.items() if path not in inner}
    files["Chart.yaml"] = str(files["Chart.yaml"]).replace("name: platform", "name: sealed")
    write_tree(tmp_path / "charts/sealed", files)
    cache = {path.removeprefix("charts/cache/"): text for path, text in inner.items()}
    (tmp_path / "charts/sealed/charts/cache-0.3.1.tgz").write_bytes(packed("cache", cache))
    run.ok("pkg install charts/sealed")
    run.ok("generate sealed web")
    assert 'cache: object, default {"size": 64, "policy": "lru", "enabled": true}' in run.ok(
        "prototype describe sealed"
    )
    run.ok("param set web cache.policy fifo")
    assert rendered(run) == expected(app, "sealed@1.2.0", "web", cache={"policy": "fifo"})


def test_r5_a_schema_gives_parameters_and_refuses_others(run: Runner, app: Path) -> None:
    assert "level: integer, default 3, 1 to 5" in run.ok("prototype describe strict")
    assert "needs `owner`" in run("generate strict s").err
    run.ok("generate strict s --owner ada")
    assert "did you mean `level`?" in run("param set s levle 4").err
    assert "must be 1 to 5, got 9" in run("param set s level 9").err
    assert rendered(run, "-c", "s") == expected(app, "strict@0.1.0", "s", owner="ada")


def test_r5_a_chart_of_chance_is_refused_by_field(run: Runner, app: Path) -> None:
    run.ok("generate random r")
    ran = run("render dev")
    assert ran.code == 3
    assert "Secret r: stringData.password" in ran.err
    assert "templates/secret.yaml:4" in ran.err
    run.ok("param set r password kept")
    assert run("render dev").code == 0
    run.ok("param unset r password")
    patch = "{apiVersion: v1, kind: Secret, metadata: {name: r}, stringData: {password: fixed}}\n"
    write_tree(app, {"environments/dev/patches/r.yaml": patch})
    assert run("render dev").code == 0


def test_r5_errors_of_a_chart_have_file_and_line(run: Runner, app: Path, tmp_path: Path) -> None:
    broken = {
        **STRICT,
        "Chart.yaml": "{apiVersion: v2, name: broken, version: 0.1.0}\n",
        "values.schema.json": "{}",
        "templates/map.yaml": "a: 1\nb: {{ .Values.a.b.c }}\n",
        "templates/refused.yaml": '{{ if .Values.no }}{{ fail "`no` is not for you" }}{{ end }}\n',
    }
    write_tree(tmp_path / "charts/broken", broken)
    run.ok("pkg install charts/broken")
    run.ok("generate broken b")
    ran = run("render dev")
    assert ran.code == 3
    assert "nil pointer" in ran.err
    assert "(vendor/charts/broken@0.1.0/templates/map.yaml:2)" in ran.err
    run.ok("param set b no true")
    run.ok("param set b a '{b: {c: 1}}'")
    ran = run("render dev")
    assert "component `b`: the chart says: `no` is not for you (components/b.yaml:" in ran.err


ITSELF = '{{ define "x" }}{{ include "x" . }}{{ end }}a: {{ include "x" . }}\n'
ELSEWHERE = '{"properties": {"a": {"$ref": "file:///nowhere.json"}}}'


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        (
            {"templates/map.yaml": ITSELF},
            'executing "broken/templates/map.yaml" at <include "x" .>: … ',
            None,
        ),
        (
            {"values.schema.json": ELSEWHERE},
            "refers to what cannot be read: ",
            "`values.schema.json` stands alone",
        ),
        ({"templates/map.yaml": "apiVersion: v1\nmetadata: {name: a}\n"}, "it has no `kind`", None),
    ],
    ids=["includes itself", "schema elsewhere", "no kind"],
)
def test_r5_faults_of_a_chart_are_told_in_few_words(
    run: Runner, app: Path, tmp_path: Path, files: Tree, message: str, hint: str | None
) -> None:
    head = "{apiVersion: v2, name: broken, version: 0.1.0}\n"
    whole = {**STRICT, "Chart.yaml": head, "values.yaml": "a: 1\n", "values.schema.json": "{}", **files}
    write_tree(tmp_path / "charts/broken", whole)
    run.ok("pkg install charts/broken")
    run.ok("generate broken b")
    ran = run("render dev")
    assert (ran.code, message in ran.err, len(ran.err) < 1000) == (3, True, True), ran.err
    assert "components/" not in ran.err
    assert hint is None or hint in ran.err


def test_r5_without_helm_it_is_said_where_to_get_it(
    run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run.ok("generate platform web")
    run.ok("render dev")
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = run("render dev")
    assert ran.code == 5
    assert "hint: get helm 4 from https://helm.sh/" in ran.err
    (tmp_path / "helm").write_text("#!/bin/sh\necho v3.19.0\n")
    (tmp_path / "helm").chmod(0o755)
    ran = run("render dev")
    assert ran.code == 5
    assert "the helm on the PATH is v3.19.0, and charts need helm 4" in ran.err


def test_r5_what_helm_would_not_pack_is_left_out(run: Runner, app: Path, tmp_path: Path) -> None:
    ignored = "# ours\n*.md\ncrds/kustomization.yaml\nci/\n/values-*.yaml\n!keep.md\n"
    more = {
        ".helmignore": ignored,
        "templates/README.md": "a: [",
        "crds/kustomization.yaml": "resources: []\n",
    }
    more |= {"ci/values.yaml": "", "values-prod.yaml": "", "files/keep.md": "", "files/ci": ""}
    write_tree(tmp_path / "charts/strict", more)
    run.ok("pkg rm charts/strict")
    run.ok("pkg install charts/strict")
    names = {path.name for path in (app / "vendor/charts/strict@0.1.0").rglob("*") if path.is_file()}
    expected_names = {"Chart.yaml", "values.yaml", "values.schema.json", "map.yaml", "keep.md", "ci"}
    assert names == expected_names
    run.ok("generate strict s --owner ada")
    run.ok("render dev")


def test_r5_one_changed_byte_of_a_chart_is_found(run: Runner, app: Path) -> None:
    run.ok("generate platform web")
    file = app / "vendor/charts/platform@1.2.0/files/motd.txt"
    file.write_text("Two\nlines\n")
    assert run("render dev").code == 5


def test_r5_a_folder_of_charts_is_indexed_and_looked_through(run: Runner, app: Path, tmp_path: Path) -> None:
    write_tree(tmp_path / "charts", {"strict/.helmignore": "notes.md\n", "strict/notes.md": "ours"})
    run.ok("pkg rm charts/strict")
    assert "no `registry.yaml`" in run("registry lint ../charts").out
    assert "index of 3 packages was rewritten" in run.ok("registry index ../charts")
    run.ok("registry lint ../charts")
    run.ok("registry update charts")
    run.ok("pkg install charts/strict")
    assert not (app / "vendor/charts/strict@0.1.0/notes.md").exists()
    (tmp_path / "charts/strict/values.yaml").write_text("level: 4\n")
    assert "digests included" in run("registry lint ../charts").out


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("registry lint ../charts/strict", "helm lint ../charts/strict"),
        ("pkg test ../charts/strict", "mlstack validate ENV -c COMPONENT"),
        ("pkg publish ../charts/strict oci://127.0.0.1:1/x", "helm package ../charts/strict"),
    ],
)
def test_r5_commands_for_authors_of_packages_say_what_serves_a_chart(
    run: Runner, app: Path, command: str, instead: str
) -> None:
    ran = run(command)
    assert (ran.code, "`../charts/strict` is a Helm chart, which" in ran.err) == (2, True)
    assert f"hint: {instead}" in ran.err


def test_m19_a_value_inside_a_chart_is_explained_both_ways(run: Runner, app: Path) -> None:
    run.ok("generate platform web --image.tag 1.10")
    run.ok("param set --env dev web image.tag '9'")
    explained = run("param explain web image.tag --env dev -o json").json["parameters"][0]
    chain = [(step["layer"], str(step["value"])) for step in explained["chain"]]
    assert chain[-2:] == [("component", "1.10"), ("environment", "9")]
    assert any("image" in reach["path"] and ":9" in reach["value"] for reach in explained["reaches"])
    place = next(reach for reach in explained["reaches"] if "image" in reach["path"])
    kind, _, name = place["object"].partition(" ")
    field = run(f"explain {kind}/{name} {place['path']} --env dev -o json").json
    assert "image.tag" in [param["name"] for param in field["parameters"]]
