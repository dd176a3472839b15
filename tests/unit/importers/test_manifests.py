"""`import FILE|DIR|-`: components under stable names, the text as it was."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from mlstack.app import edit
from tests.support.builders import write_tree
from tests.support.cli import Runner

MAP = (
    "# what the web reads\napiVersion: v1\nkind: ConfigMap  # a map\nmetadata: {name: web}\ndata: {a: '1'}\n"
)
JOB = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  generateName: run-  # each\nspec: {}\n"
SECRET = "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {token: hunter2hunter2}\n"


@pytest.fixture
def app(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    run("init demo")
    monkeypatch.chdir(tmp_path / "demo")
    run("env add minikube")
    return tmp_path / "demo"


def component(app: Path, name: str) -> str:
    return (app / "components" / name).read_bytes().decode()


def test_a_file_becomes_a_component_byte_for_byte(run: Runner, app: Path) -> None:
    text = (MAP + "---\n" + SECRET).replace("\n", "\r\n")
    Path("web app.yml").write_bytes(text.encode())
    ran = run("import", "web app.yml", "-o", "json")
    assert [row["name"] for row in ran.json["components"]] == ["web-app"]
    assert component(app, "web-app.yaml") == text
    assert run("render minikube -o name").out.count("default/") == 2


def test_the_same_import_gives_the_same_names(run: Runner, app: Path) -> None:
    Path("a.yaml").write_text(MAP)
    assert run("import a.yaml -o name").out == "a\n"
    assert run("import a.yaml --force -o name").out == "a\n"
    again = run("import a.yaml")
    assert (again.code, "there is a component `a` already" in again.err) == (2, True)


def test_a_folder_is_modules_and_what_is_no_object_is_left_out(run: Runner, app: Path) -> None:
    for file, text in {
        "x/web.yaml": MAP,
        "x/sub/job.json": '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}',
        "x/values.yaml": "a: 1\n",
        "x/README.md": "text",
    }.items():
        (app / file).parent.mkdir(parents=True, exist_ok=True)
        (app / file).write_text(text)
    ran = run("import x -o name --module old")
    assert ran.out.split() == ["old.sub.job", "old.web"]
    assert run("import x --module b").err.startswith("note: left out x/values.yaml")


def test_split_gives_one_component_an_object(run: Runner, app: Path) -> None:
    items = "apiVersion: v1\nkind: List\nitems:\n- # inner\n" + "".join(
        f"  {line}\n" for line in SECRET.splitlines()
    )
    Path("all.yaml").write_text(f"{MAP}---\n{items}")
    assert run("import all.yaml --split -o name").out.split() == ["configmap-web", "secret-keys"]
    assert component(app, "configmap-web.yaml") == MAP
    assert "name: keys" in component(app, "secret-keys.yaml")


def test_generated_names_null_items_and_secrets_are_told(run: Runner, app: Path) -> None:
    Path("j.yaml").write_text(f"{JOB}---\napiVersion: v1\nkind: List\nitems:\n- null\n---\n{SECRET}")
    ran = run("import j.yaml")
    assert ran.code == 0
    assert "is called `run` now" in ran.err
    assert "an item of a List is null" in ran.err
    assert "Secret keys holds its values" in ran.err
    assert "hunter2" not in ran.err + ran.out
    assert "  name: run  # each\n" in component(app, "j.yaml")
    assert run("render minikube").code == 0


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("a: [", 3, "broken YAML"),
        (f"{MAP}---\na: 1\n", 3, "is no Kubernetes object"),
        (f"{MAP}---\n{MAP}", 3, "is there twice: it stands at x.yaml:2 too (x.yaml:8)"),
        ("", 2, "there is no object of Kubernetes in `x.yaml`"),
        ("- {apiVersion: v1, kind: Pod}\n", 2, "a list of objects is written as `apiVersion: v1`"),
        ("<!DOCTYPE html>", 2, "`x.yaml` is a web page"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", 3, "it has no `metadata.name`"),
    ],
    ids=["broken", "mixed", "twice", "empty", "list", "page", "nameless"],
)
def test_what_cannot_be_imported_changes_nothing(
    run: Runner, app: Path, text: str, code: int, message: str
) -> None:
    Path("x.yaml").write_text(text)
    ran = run("import x.yaml")
    assert ran.code == code
    assert message in ran.err
    assert not [*(app / "components").iterdir()]


def test_a_list_of_objects_is_told_of_whichever_file_holds_it(run: Runner, app: Path) -> None:
    write_tree(app, {"in/a.yaml": "- {apiVersion: v1, kind: Pod}\n", "in/b.yaml": "a: 1\n"})
    assert "a list of objects is written as" in run("import in").err


def test_no_component_takes_the_file_of_its_modules_parameters(run: Runner, app: Path) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
    write_tree(app, {"params.yaml": text, "a.yaml": text})
    ran = run("import a.yaml --name params --module mod")
    assert (ran.code, "its file is that of the module's parameters" in ran.err) == (2, True)
    ran = run("import params.yaml --module mod")
    assert (ran.code, "`mod.params` is called `mod.params-2`" in ran.err) == (0, True)
    assert run.ok("import params.yaml") and (app / "components/params.yaml").is_file()


def test_what_is_too_large_for_a_template_is_told_with_its_size(run: Runner, app: Path) -> None:
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{a: '{'x' * 1_100_000}'}}\n"
    write_tree(app, {"big.yaml": text})
    ran = run("import big.yaml --as-prototype --name big")
    assert (ran.code, "`big` has 1.0 MiB, and a template of a prototype holds 1 MiB" in ran.err) == (3, True)
    assert "hint: import it as it is" in ran.err and not (app / "components/big.yaml").exists()


def test_standard_input(run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MAP.encode())))
    assert run("import - --name web -o name").out == "web\n"


@pytest.mark.parametrize(
    ("file", "text", "hint"),
    [
        ("d/Chart.yaml", "name: x\n", "mlstack import helm d"),
        ("d/kustomization.yaml", "resources: []\n", "mlstack import kustomize d"),
        ("d/app.yaml", "apiVersion: 0.3.0\nkind: ksonnet.io/app\n", "mlstack import ksonnet-app d"),
    ],
)
def test_what_has_a_command_of_its_own_leads_there(
    run: Runner, app: Path, file: str, text: str, hint: str
) -> None:
    Path("d").mkdir()
    Path(file).write_text(text)
    ran = run("import d")
    assert (ran.code, hint in ran.err) == (2, True)


DEPLOYMENT = """\
# the web
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}  # web
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1"}]}
"""


def test_what_differs_between_environments_becomes_patches(run: Runner, app: Path) -> None:
    run("env add gke -n ml")
    other = DEPLOYMENT.replace("nginx:1", "nginx:2").replace("{name: web}  #", "{name: web, namespace: ml} #")
    more = {
        "base/web.yaml": DEPLOYMENT,
        "gke/web.yaml": other,
        "mini/web.yaml": DEPLOYMENT,
        "mini/extra.yaml": MAP,
    }
    for file, text in more.items():
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text(text)
    ran = run("import base --env gke=gke --env minikube=mini -o json")
    assert ran.code == 0, ran.err
    assert component(app, "web.yaml") == DEPLOYMENT
    assert ran.json["patches"] == ["environments/gke/patches/web.yaml"]
    assert "image: nginx:2" in run("render gke").out
    assert run("render gke -o name").out.splitlines() == ["Deployment ml/web"]
    assert run("render minikube -o name").out.splitlines() == [
        "ConfigMap default/web",
        "Deployment default/web",
    ]
    assert (run("import base --env nope=gke --force").code, run("import base --env gke").code) == (4, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body", "code", "message"),
    [
        (200, MAP, 0, ""),
        (404, "", 4, "nothing stands at"),
        (403, "", 5, "answers with HTTP 403"),
        (200, "<!DOCTYPE html>", 2, "is a web page"),
    ],
    ids=["text", "gone", "refused", "page"],
)
def test_a_url_is_fetched(run: Runner, app: Path, status: int, body: str, code: int, message: str) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        ran = run("import", f"http://127.0.0.1:{server.server_port}/a/web.yaml?raw=1")
        server.shutdown()
    assert (ran.code, message in ran.err) == (code, True)
    assert [path.name for path in (app / "components").iterdir()] == ([] if code else ["web.yaml"])


@pytest.mark.slow
def test_as_prototype_what_varies_becomes_parameters(run: Runner, app: Path) -> None:
    run("env add gke -n ml")
    odd = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: odd}\n"
    odd += "data: {a: '{{x}} {% y %}', b: \"{# #}\\n{{\"}\n"
    for folder, image in (("base", "nginx:1"), ("gke", "nginx:2")):
        Path(folder).mkdir()
        Path(folder, "web.yaml").write_text(f"{DEPLOYMENT.replace('nginx:1', image)}---\n{odd}")
    plain = run("import base --env gke=gke --module plain")
    assert plain.code == 0, plain.err
    before = run("render gke").out
    run("component rm plain.web")
    ran = run("import base --env gke=gke --module plain --as-prototype")
    assert ran.code == 0, ran.err
    assert run("render gke").out == before
    rows = {row["name"]: row["value"] for row in run("param list plain.web --env gke -o json").json["rows"]}
    assert rows == {"image": "nginx:2", "replicas": 1}
    assert not [*app.glob("environments/gke/patches/*")]
    assert run("param set plain.web replicas 3 --env gke").code == 0
    assert "replicas: 3" in run("render gke").out
    assert run("pkg test packages/plain-web").code == 0


COMMENTED = """\
# The web server
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}  # short
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      # the only one, {{ so far }}
      - name: web
        image: "nginx:1"  # pinned
        args:
        - |
          first
          second
"""


def test_as_prototype_keeps_comments_and_proves_itself(run: Runner, app: Path) -> None:
    run("env add gke -n ml")
    Path("web.yaml").write_text(COMMENTED)
    Path("of-gke.yaml").write_text(COMMENTED.replace("nginx:1", "nginx:2").replace("second", "third"))
    ran = run("import web.yaml --env gke=of-gke.yaml --as-prototype -o json")
    assert (ran.code, ran.json["summary"]) == (0, "1 of 1 objects equal")
    template = (app / "packages/web/web/templates/objects.yaml.j2").read_text()
    for part in ("# The web server\n", "{name: web}  # short\n", "# the only one, ", "}}  # pinned\n"):
        assert part in template
    assert "second" not in template
    assert "third" in run("render gke").out


@pytest.mark.parametrize("option", ["", "--split", "--as-prototype"])
def test_json_objects_in_a_row_are_imported(run: Runner, app: Path, option: str) -> None:
    run("env add gke -n ml")
    template = '{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "{}", "uid": "u"}}}}\n'
    Path("rows.json").write_text("".join(map(template.format, "ab")))
    run.ok(f"import rows.json {option}")
    assert run.ok("render gke").count("kind: ConfigMap") == 2


def test_as_prototype_is_one_write(run: Runner, app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("web.yaml").write_text(COMMENTED)
    before = {path: path.read_bytes() for path in app.rglob("*") if path.is_file()}
    writes = []
    write_files = edit.write_files

    def counting(files: Mapping[Path, bytes | str], **options: Any) -> None:
        writes.append([path for path in files if path.is_relative_to(app)])
        write_files(files, **options)

    monkeypatch.setattr(edit, "write_files", counting)
    assert run("import web.yaml --as-prototype").code == 0
    assert len([paths for paths in writes if paths]) == 1
    assert {path for path in app.rglob("*") if path.is_file()} > before.keys()


def test_templates_of_helm_are_told(run: Runner, app: Path) -> None:
    Path("web.yaml").write_text(MAP.replace("'1'", "'{{ .Values.a }}'"))
    assert "holds `{{ .Values.a }}` as text" in run("import web.yaml").err
