"""`import ksonnet-app`: made-up apps of every format, composed as ks does, with proof."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from mlstack.importers import convert
from mlstack.importers.jsonnet import Evaluation, evaluated
from mlstack.yaml.read import read_documents
from tests.support.cli import Ran, Runner
from tests.support.ksonnet import MAIN, MAP, write_app

pytestmark = pytest.mark.slow
WEB = {"web": {"name": "web", "text": "plain"}}
FILES = {"components/web.jsonnet": MAP % "web"}


def imported(run: Runner, app: Path, *words: str) -> Ran:
    before = digest(app)
    ran = run("import", "ksonnet-app", str(app), "--out", "new", "-o", "json", *words)
    assert digest(app) == before
    return ran


def digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return hashlib.sha256(b"".join(bytes(path) + path.read_bytes() for path in files)).hexdigest()


def rendered(run: Runner, environment: str) -> dict[str, Mapping[str, Any]]:
    ran = run("render", environment, "--dir", "new")
    assert ran.code == 0, ran.err
    listed = [document.value for document in read_documents(ran.out, source="render")]
    return {f"{data['kind']}/{data['metadata']['name']}": data for data in listed}


@pytest.mark.parametrize("version", ["0.0.1", "0.1.0", "0.2.0", "0.3.0"])
def test_every_format_is_imported_with_proof(run: Runner, tmp_path: Path, version: str) -> None:
    values = {"prod": {"web": {"text": "for all"}}}
    app = write_app(tmp_path / "old", FILES, version=version, params=WEB, values=values)
    ran = imported(run, app)
    assert ran.code == 0, ran.out + ran.err
    assert ran.json["summary"] == "2 of 2 objects equal"
    assert rendered(run, "default")["ConfigMap/web"]["data"] == {"text": "plain"}
    assert rendered(run, "prod")["ConfigMap/web"]["data"] == {"text": "for all"}
    assert rendered(run, "prod")["ConfigMap/web"]["metadata"]["namespace"] == "ml"
    patch = (tmp_path / "new/environments/prod/patches/web.yaml").read_text()
    assert patch.endswith("data:\n  text: for all\n")


def test_c25_import_of_a_ksonnet_app_says_what_is_equal(run: Runner, tmp_path: Path) -> None:
    write_app(tmp_path / "old", FILES, params=WEB)
    ran = run("import ksonnet-app old --out new")
    assert (ran.code, "2 of 2 objects equal" in ran.out) == (0, True)


def test_globals_of_a_module_beat_its_components_and_null_removes(run: Runner, tmp_path: Path) -> None:
    params = '{global: {text: "all", gone: null}, components: {web: {name: "web", text: "own", gone: 1}}}'
    gone = MAP.replace("params.text", 'params.text + std.toString(std.objectHas(params, "gone"))')
    files = {"components/web.jsonnet": gone % "web", "components/params.libsonnet": params}
    imported(run, write_app(tmp_path / "old", files))
    assert rendered(run, "default")["ConfigMap/web"]["data"] == {"text": "allfalse"}


def test_globals_of_an_environment_beat_everything(run: Runner, tmp_path: Path) -> None:
    files = FILES | {"environments/prod/globals.libsonnet": '{text: "global"}'}
    imported(run, write_app(tmp_path / "old", files, params=WEB, values={"prod": {"web": {"text": "own"}}}))
    assert rendered(run, "prod")["ConfigMap/web"]["data"] == {"text": "global"}


def test_parameters_see_the_environment(run: Runner, tmp_path: Path) -> None:
    head = 'local env = std.extVar("__ksonnet/environments");'
    params = head + '{components: {web: {name: "web", text: env.server}}}'
    imported(run, write_app(tmp_path / "old", FILES | {"components/params.libsonnet": params}))
    assert rendered(run, "prod")["ConfigMap/web"]["data"] == {"text": "https://prod"}


@pytest.mark.parametrize(("version", "target"), [("0.1.0", "a/b"), ("0.3.0", "a.b")])
def test_modules_are_targets(run: Runner, tmp_path: Path, version: str, target: str) -> None:
    files = FILES | {
        "components/a/b/deep.jsonnet": MAP % "deep",
        "components/a/b/params.libsonnet": '{components: {deep: {name: "deep", text: "1"}}}',
        "components/left/out.jsonnet": MAP % "out",
        "components/left/params.libsonnet": "{components: {}}",
    }
    places = {"default": {}, "prod": {"targets": ["/", target]}}
    values = {"prod": {"a.b.deep": {"text": "2"}}}
    app = write_app(tmp_path / "old", files, version=version, environments=places, params=WEB, values=values)
    ran = imported(run, app)
    assert [row["name"] for row in ran.json["components"]] == ["a.b.deep", "web"]
    assert [*rendered(run, "default")] == ["ConfigMap/web"]
    assert sorted(rendered(run, "prod")) == ["ConfigMap/deep", "ConfigMap/web"]
    assert any("left.out" in note for note in ran.json["notes"])


def test_yaml_components_count_with_their_first_document_and_parameters(run: Runner, tmp_path: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\ndata: {a: '1', b: '1'}\n"
    files = {"components/plain.yaml": f"{text}---\n{text.replace('plain', 'second')}"}
    params = {"plain": {"data": {"a": "2"}}}
    values = {"prod": {"plain": {"data": {"b": None}}}}
    ran = imported(run, write_app(tmp_path / "old", files, params=params, values=values))
    assert rendered(run, "default")["ConfigMap/plain"]["data"] == {"a": "2", "b": "1"}
    assert [*rendered(run, "prod")] == ["ConfigMap/plain"]
    assert any("the first of 2 documents alone" in note for note in ran.json["notes"])
    assert ran.code == 0


def test_keys_with_dots_are_literal(run: Runner, tmp_path: Path) -> None:
    values = {"prod": {"web": {"text.a": "dead"}}}
    imported(run, write_app(tmp_path / "old", FILES, params=WEB, values=values))
    assert rendered(run, "prod")["ConfigMap/web"]["data"] == {"text": "plain"}


def test_main_patches_objects_and_brings_its_own(run: Runner, tmp_path: Path) -> None:
    extra = '{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "extra" } }'
    main = MAIN.replace("base + {}", f'base + {{ web +: {{ data +: {{ more: "1" }} }}, extra: {extra} }}')
    files = FILES | {"environments/prod/main.jsonnet": main}
    ran = imported(run, write_app(tmp_path / "old", files, params=WEB))
    assert ran.json["summary"] == "3 of 3 objects equal"
    assert rendered(run, "prod")["ConfigMap/web"]["data"] == {"text": "plain", "more": "1"}
    assert [*rendered(run, "default")] == ["ConfigMap/web"]


def test_lists_at_any_depth_null_items_and_arrays(run: Runner, tmp_path: Path) -> None:
    item = '{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "%s" } }'
    inner = '{ apiVersion: "v1", kind: "List", items: [null, %s] }' % (item % "b")
    items = f"[{item % 'a'}, {inner}]"
    files = {
        "components/list.jsonnet": f'local k = import "k.libsonnet";\nk.core.v1.list.new({items})',
        "components/array.jsonnet": f"[{item % 'c'}]",
    }
    ran = imported(run, write_app(tmp_path / "old", files))
    assert sorted(rendered(run, "default")) == ["ConfigMap/a", "ConfigMap/b", "ConfigMap/c"]
    assert any("is null" in note for note in ran.json["notes"])


def test_old_syntax_and_native_functions(run: Runner, tmp_path: Path) -> None:
    code = """\
local parts = import("parts.libsonnet");
local yaml = std.native("parseYaml")(importstr("x.yaml"))[0];
local text = std.native("regexSubst")("a(.)c", "xabcx", "<$1>");
{ apiVersion: "v1", kind: "ConfigMap", metadata: +{ name: "web" } } + + parts.data(yaml.a + text)
"""
    files = {
        "components/web.jsonnet": code,
        "components/parts.libsonnet": "{ data(text):: { data:+ { text: text } } }",
        "components/x.yaml.txt": "",
        "lib/x.yaml": "a: 'yes'\n",
    }
    ran = imported(run, write_app(tmp_path / "old", files))
    assert ran.code == 0, ran.out
    assert rendered(run, "default")["ConfigMap/web"]["data"] == {"text": "yesx<b>x"}


@pytest.mark.parametrize("folder", ["pkg@abc", "pkg"])
def test_packages_are_found_by_version_and_without(run: Runner, tmp_path: Path, folder: str) -> None:
    libraries = {"reg/pkg": {"registry": "reg", "name": "pkg", "version": "abc"}}
    code = '{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "web" } }'
    files = {
        "components/web.jsonnet": 'import "reg/pkg/web.libsonnet"',
        f"vendor/reg/{folder}/web.libsonnet": code,
    }
    ran = imported(run, write_app(tmp_path / "old", files, libraries=libraries))
    assert ran.json["summary"] == "2 of 2 objects equal"


def test_text_blocks_of_components_end_as_ks_deployed_them(run: Runner, tmp_path: Path) -> None:
    text = MAP.replace("params.text", "|||\n    a\n  |||")
    imported(run, write_app(tmp_path / "old", {"components/web.jsonnet": text % "web"}, params=WEB))
    assert rendered(run, "default")["ConfigMap/web"]["data"] == {"text": "a\n\n"}


def test_an_override_file_is_laid_over(run: Runner, tmp_path: Path) -> None:
    place = "{server: 'https://x', namespace: mine}"
    over = "kind: ksonnet.io/app-override\napiVersion: 0.3.0\n"
    over += f"environments: {{prod: {{destination: {place}}}}}\n"
    imported(run, write_app(tmp_path / "old", FILES | {"app.override.yaml": over}, params=WEB))
    assert rendered(run, "prod")["ConfigMap/web"]["metadata"]["namespace"] == "mine"


def test_what_cannot_be_evaluated_is_told_and_the_rest_is_imported(run: Runner, tmp_path: Path) -> None:
    files = FILES | {
        "components/broken.jsonnet": "{\n  a: [,\n}",
        "components/unset.jsonnet": MAP % "unset",
        "components/outer.jsonnet": '\n\nstd.extVar("image")',
        "components/gone.jsonnet": 'import "reg/pkg/x.libsonnet"',
    }
    libraries = {"reg/pkg": {"registry": "reg", "name": "pkg", "version": "abc"}}
    app = write_app(tmp_path / "old", files, environments={"default": {}}, params=WEB, libraries=libraries)
    ran = imported(run, app)
    assert ran.code == 1
    assert ran.json["summary"] == "1 of 1 objects equal; 4 components could not be imported"
    failures = {row["component"]: (row["where"], row["reason"]) for row in ran.json["failures"]}
    assert failures["broken"][0] == "components/broken.jsonnet:2"
    assert failures["outer"] == ("components/outer.jsonnet:3", "Undefined external variable: image")
    assert failures["unset"][1] == "Field does not exist: unset"
    assert "package reg/pkg@abc is not in vendor/" in failures["gone"][1]
    again = run("import", "ksonnet-app", "old", "--out", "again", "--ext-str", "image=x", "-o", "json")
    assert "outer" in {row["component"] for row in again.json["failures"]}  # a text is no object


def test_missing_parameters_and_folders_are_given(run: Runner, tmp_path: Path) -> None:
    files = {"components/web.jsonnet": f'(import "more.libsonnet") + {MAP % "web"}'}
    app = write_app(tmp_path / "old", files, params={"web": {"name": "web"}})
    (tmp_path / "more").mkdir()
    (tmp_path / "more/more.libsonnet").write_text("{}")
    ran = imported(run, app, "--jpath", str(tmp_path / "more"), "--set", "web.text=given", "--env", "prod")
    assert ran.json["summary"] == "1 of 1 objects equal"
    assert rendered(run, "prod")["ConfigMap/web"]["data"] == {"text": "given"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ('import "/etc/passwd"', "leads out of the app"),
        ('importstr "../../../secret.txt"', "leads out of the app"),
        ('importstr "link.txt"', "leads out of the app"),
        ("local f(x) = f(x + 1) tailstrict; f(1)", "evaluation was ended"),
        (
            'std.length(std.join("", ["xxxxxxxxxxxxxxxx" for i in std.range(1, 1000000000)]))',
            "evaluation was ended",
        ),
        ("local f(x) = f(x + 1) + 1; f(1)", "max stack frames exceeded"),
    ],
    ids=["absolute", "above", "link", "loop", "memory", "stack"],
)
def test_hostile_code_does_nothing(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    monkeypatch.setattr(
        "mlstack.importers.jsonnet.evaluate.__kwdefaults__", {"cpu_s": 2, "memory_bytes": 1 << 30}
    )
    (tmp_path / "secret.txt").write_text("hunter2")
    files = FILES | {"components/bad.jsonnet": code}
    app = write_app(tmp_path / "old", files, environments={"default": {}}, params=WEB)
    (app / "components/link.txt").symlink_to(tmp_path / "secret.txt")
    ran = imported(run, app)
    assert ran.code == 1
    [failure] = ran.json["failures"]
    assert reason in failure["reason"]
    assert "hunter2" not in ran.out + ran.err


def test_components_that_bring_the_same_object_are_alternatives(run: Runner, tmp_path: Path) -> None:
    files = FILES | {"components/zweb.jsonnet": MAP % "web"}
    ran = imported(run, write_app(tmp_path / "old", files, params=WEB))
    assert [*rendered(run, "default")] == ["ConfigMap/web"]
    assert any("`zweb` is no target of `default`" in note for note in ran.json["notes"])


def test_the_proof_can_be_kept(run: Runner, tmp_path: Path) -> None:
    imported(run, write_app(tmp_path / "old", FILES, params=WEB), "--keep-proof", "proof")
    before, after = ((tmp_path / f"proof/{side}/prod.yaml").read_text() for side in ("before", "after"))
    assert before == after != ""


def test_an_app_that_is_there_takes_the_components(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init mine")
    monkeypatch.chdir(tmp_path / "mine")
    write_app(tmp_path / "old", FILES, params=WEB)
    run.ok("env add staging --no-preset")
    ran = run("import ksonnet-app ../old")
    assert ran.code == 0, ran.err
    assert "note: `staging` deploys `web` too: mlstack env targets staging NAME chooses" in ran.err
    again = run("import ksonnet-app ../old")
    assert (again.code, "there is a component `web` already" in again.err) == (2, True)
    assert run("import ksonnet-app ../old --force").code == 0


@pytest.mark.parametrize("words", ["--out old/new", "--dir old"])
def test_nothing_is_written_into_an_app_of_ksonnet(run: Runner, tmp_path: Path, words: str) -> None:
    app = write_app(tmp_path / "old", FILES, params=WEB)
    before = digest(app)
    ran = run(f"import ksonnet-app old {words}")
    assert (ran.code, "stays as it is" in ran.err) == (2, True)
    assert digest(app) == before


def test_the_kubectl_context_of_the_server_is_found(run: Runner, tmp_path: Path) -> None:
    ran = imported(run, write_app(tmp_path / "old", FILES, params=WEB))
    assert any("no kubectl context leads to https://prod" in note for note in ran.json["notes"])


def test_old_versions_are_kept_and_named_or_converted(run: Runner, tmp_path: Path) -> None:
    pod = '{ metadata: { labels: { app: "web" } }, spec: { containers: [{ name: "c", image: "i" }] } }'
    head = '{ apiVersion: "extensions/v1beta1", kind: "Deployment", metadata: { name: "web" }, '
    code = f"{head} spec: {{ template: {pod} }} }}"
    app = write_app(tmp_path / "old", {"components/web.jsonnet": code})
    report = run("import ksonnet-app old --out kept -o json").json
    assert report["notes"][0].startswith(
        "no server serves extensions/v1beta1 Deployment any more (2): --convert"
    )
    ran = imported(run, app, "--convert")
    assert ran.json["notes"][0] == "converted: extensions/v1beta1 Deployment is apps/v1 now (2)"
    assert ran.json["summary"] == "2 of 2 objects equal"
    assert run("validate default --dir new").code == 0


def test_missing_packages_are_fetched_at_their_commit(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = '{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "%s" } }'
    place = tmp_path / "parts"
    commits = []
    for name in ("first", "second"):
        (place / "incubator/pkg").mkdir(parents=True, exist_ok=True)
        (place / "incubator/pkg/web.libsonnet").write_text(code % name)
        commits.append(commit_all(place))
    config = tmp_path / "gitconfig"
    config.write_text(f'[url "file://{place}"]\n\tinsteadOf = https://github.com/acme/parts.git\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    app = write_app(
        tmp_path / "old",
        {"components/web.jsonnet": 'import "acme/pkg/web.libsonnet"'},
        libraries={"acme/pkg": {"registry": "acme", "name": "pkg", "version": commits[0]}},
        registries={"acme": {"protocol": "github", "uri": "github.com/acme/parts/tree/master/incubator"}},
    )
    ran = imported(run, app)
    assert ran.json["summary"] == "2 of 2 objects equal"
    assert [*rendered(run, "prod")] == ["ConfigMap/first"]
    assert ran.json["notes"][0].startswith("fetched github.com/acme/parts/tree/master/incubator/pkg at")


def commit_all(folder: Path) -> str:
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q", "-b", "master"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    done = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_prototypes_have_parameters_under_the_names_of_ksonnet(run: Runner, tmp_path: Path) -> None:
    values = {"prod": {"web": {"text": "for all"}}}
    ran = imported(run, write_app(tmp_path / "old", FILES, params=WEB, values=values), "--as-prototype")
    assert ran.json["summary"] == "2 of 2 objects equal"
    assert ran.json["patches"] == []
    rows = run("param list web --env prod --dir new -o json").json["rows"]
    assert {row["name"]: row["value"] for row in rows} == {"text": "for all"}
    assert rendered(run, "default")["ConfigMap/web"]["data"] == {"text": "plain"}


@pytest.mark.parametrize(
    "spec",
    [
        '{"environments": [1], "registries": "x", "libraries": {"a": 1}}',
        '{"environments": {"a": 1, "b": {"path": [1], "destination": "x", "targets": 5, "libraries": [2]}}}',
        '{"environments": {"b c": {}}}',
    ],
)
def test_app_files_of_odd_shape_are_read_or_refused(run: Runner, tmp_path: Path, spec: str) -> None:
    head = '{"apiVersion": "0.3.0", "kind": "ksonnet.io/app", '
    app = write_app(tmp_path / "old", {**FILES, "app.yaml": head + spec[1:]}, params=WEB)
    assert imported(run, app).code in (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    "metadata", ["true", '{"name": "x", "labels": 1}', '{"name": 1}', '{"namespace": {}}']
)
def test_objects_of_odd_shape_are_named(run: Runner, tmp_path: Path, metadata: str) -> None:
    code = f'{{ apiVersion: "v1", kind: "ConfigMap", metadata: {metadata} }}'
    files = FILES | {"components/odd.jsonnet": code}
    ran = imported(run, write_app(tmp_path / "old", files, params=WEB), "--convert", "--keep-proof", "proof")
    assert ran.code == 1
    assert {row["component"] for row in ran.json["failures"]} == {"odd"}


def test_the_proof_is_not_kept_in_the_app_of_ksonnet(run: Runner, tmp_path: Path) -> None:
    ran = imported(run, write_app(tmp_path / "old", FILES, params=WEB), "--keep-proof", "old/proof")
    assert (ran.code, "stays as it is" in ran.err) == (2, True)


def test_known_prototypes_become_those_of_today(run: Runner, tmp_path: Path) -> None:
    parts = '{ all(params):: [{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: params.name } }] }'
    code = """\
local params = std.extVar("__ksonnet/params").components["%s"];
local k = import "k.libsonnet";
local all = import "kubeflow/core/%s.libsonnet";
std.prune(k.core.v1.list.new(all.all(params)))
"""
    files = FILES | {
        "components/core.jsonnet": code % ("core", "all"),
        "components/other.jsonnet": code % ("other", "nobody-knows"),
        "vendor/kubeflow/core/all.libsonnet": parts,
        "vendor/kubeflow/core/nobody-knows.libsonnet": parts,
    }
    params = WEB | {
        "core": {"name": "core", "jupyterHubImage": "example.org/hub:1", "noSuch": 1},
        "other": {"name": "other"},
    }
    values = {"prod": {"core": {"jupyterHubImage": "example.org/hub:2"}}}
    ran = imported(run, write_app(tmp_path / "old", files, params=params, values=values), "--modernise")
    assert ran.json["summary"] == "6 of 6 objects equal"
    [note] = [note for note in ran.json["notes"] if "component of" in note]
    assert note.startswith("core: component of `kubeflow/core/kubeflow-core` now")
    assert "gone: ConfigMap core; new: " in note
    assert note.endswith("parameters without effect now: noSuch")
    types = {row["name"]: row["type"] for row in run("component list --dir new -o json").json["components"]}
    assert types == {"core": "prototype", "other": "manifest", "web": "manifest"}
    for environment, image in (("default", "hub:1"), ("prod", "hub:2")):
        assert f"example.org/{image}" in str(rendered(run, environment)["StatefulSet/tf-hub"])


def test_a_component_of_an_old_prototype_keeps_what_that_was(run: Runner, tmp_path: Path) -> None:
    parts = '{ all(params):: [{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: params.name } }] }'
    code = """\
local params = std.extVar("__ksonnet/params").components["hub"];
local jupyterhub = import "kubeflow/core/jupyterhub.libsonnet";
std.prune(jupyterhub.all(params))
"""
    files = {"components/hub.jsonnet": code, "vendor/kubeflow/core/jupyterhub.libsonnet": parts}
    params = {"hub": {"name": "hub", "image": "example.org/hub:1", "serviceType": "NodePort"}}
    app = write_app(tmp_path / "old", files, params=params)
    imported(run, app, "--modernise")
    text = (tmp_path / "new/components/hub.yaml").read_text()
    assert "jupyterHubImage: example.org/hub:1" in text and "jupyterHubServiceType: NodePort" in text
    assert "installOperator: false" in text


@pytest.mark.parametrize("path", ["/etc", "../../elsewhere"])
def test_the_folder_of_an_environment_is_one_of_the_app(run: Runner, tmp_path: Path, path: str) -> None:
    own = f"apiVersion: 0.3.0\nkind: ksonnet.io/app\nname: old\nenvironments: {{default: {{path: {path}}}}}\n"
    app = write_app(tmp_path / "old", {**FILES, "app.yaml": own}, params=WEB)
    ran = imported(run, app)
    assert (ran.code, "leads out of the app" in ran.err) == (3, True), ran.err


def test_an_app_without_environments_gives_its_components(run: Runner, tmp_path: Path) -> None:
    app = write_app(tmp_path / "old", FILES, environments={}, params=WEB)
    ran = imported(run, app)
    assert ran.code == 0, ran.err
    assert "there is nothing that ks deployed" in ran.json["notes"][0]
    assert (tmp_path / "new/components/web.yaml").is_file()
    assert not (tmp_path / "new/environments").exists()


def test_a_component_may_look_at_the_others(run: Runner, tmp_path: Path) -> None:
    looking = """\
local others = std.extVar("__ksonnet/components");
local web = others["web"];
[web, { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "app" }, data: { of: web.metadata.name } }]
"""
    files = FILES | {"components/app.jsonnet": looking, "components/broken.jsonnet": "{ a: "}
    ran = imported(run, write_app(tmp_path / "old", files, environments={"default": {}}, params=WEB))
    assert ran.json["summary"] == "2 of 2 objects equal; 1 component could not be imported"
    assert rendered(run, "default")["ConfigMap/app"]["data"] == {"of": "web"}
    assert any("app: brings 1 object of the other components again" in note for note in ran.json["notes"])


CALL = """\
local params = std.extVar("__ksonnet/params").components["core"];
local k = import "k.libsonnet";
local all = import "kubeflow/core/all.libsonnet";
std.prune(k.core.v1.list.new(all.all(params)))
"""


def test_what_is_not_modernised_leaves_no_package_behind(run: Runner, tmp_path: Path) -> None:
    hub = '{ apiVersion: "apps/v1", kind: "StatefulSet", metadata: { name: "tf-hub" } }'
    files = FILES | {
        "components/core.jsonnet": CALL,
        "components/hub.jsonnet": hub,
        "components/none.jsonnet": '{ apiVersion: "v1", kind: "List" }',
        "vendor/kubeflow/core/all.libsonnet": f"{{ all(params):: [{hub.replace('tf-hub', 'old')}] }}",
    }
    app = write_app(tmp_path / "old", files, params=WEB | {"core": {"name": "core"}})
    imported(run, app)
    plain = digest(tmp_path / "new")
    shutil.rmtree(tmp_path / "new")
    ran = imported(run, app, "--modernise")
    assert any(note.startswith("core: stays a manifest, as `kubeflow-core`") for note in ran.json["notes"])
    assert digest(tmp_path / "new") == plain


def test_a_prototype_is_known_by_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    prototype = """\
// @optionalParam size string 3 How much
local env = std.extVar("__ksonnet/environments");
local size = import "param://size";
[{ apiVersion: "v1", kind: "ConfigMap", data: { 'size': size, of: "all" } }]
"""
    component = """\
local env = std.extVar("__ksonnet/environments");
local params = std.extVar("__ksonnet/params").components["my-map"];
local size = params.size;
[
  {
    apiVersion: 'v1',
    kind: "ConfigMap",
    data: {
      size: size,
      "of": 'all',
    },
  },
]
"""
    monkeypatch.setattr(convert, "_known", lambda: {convert.fingerprint(prototype): "some-map"})
    assert convert.old_names(component) == ("some-map",)
    assert convert.old_names(component.replace("my-map", "other")) == ("some-map",)
    assert convert.old_names(component.replace("'all'", "'one'")) == ()


def test_the_second_evaluator_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("_jsonnet")
    (tmp_path / "lib.libsonnet").write_text("{ all: [std.extVar('name')] + import('more.json') }")
    (tmp_path / "more.json").write_text("[1, 2.5, null]")
    native = "std.native('parseYaml')('a: 1'), std.native('regexSubst')('b', 'abc', 'x')"
    whole = Evaluation(
        file=str(tmp_path / "main.jsonnet"),
        text=f"(import('lib.libsonnet')) + {{ native: [{native}], k: (import 'k.libsonnet').core.v1 }}",
        roots=(str(tmp_path),),
        ext_vars={"name": "web"},
    )
    texts = [whole.text, "import '/etc/passwd'", "import '../outside.libsonnet'", "{ a: 1 + }", "{}.a"]
    jobs = [asdict(replace(whole, text=text)) for text in texts]
    (tmp_path.parent / "outside.libsonnet").write_text("{}")
    first = [evaluated(job) for job in jobs]
    monkeypatch.setitem(sys.modules, "_gojsonnet", None)
    second = [evaluated(job) for job in jobs]
    assert first[0] == second[0]
    assert first[0]["value"]["all"] == ["web", 1, 2.5, None]
    for left, right in zip(first[1:], second[1:], strict=True):
        assert left.keys() == right.keys() >= {"error"}
    for answer in (first[1], second[1], first[2], second[2]):
        assert "leads out of the app" in answer["error"]
