"""Parameters from outside: what a typed value means, at which level it is set, listed and taken back."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.params import ParamScope
from mlstack.operations import params
from mlstack.yaml.read import read_document
from tests.support.builders import Tree, read_tree, write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

ANYTHING: Tree = {
    "anything/prototype.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Prototype
        name: anything
        summary: One parameter of every type
        parameters:
          type: object
          properties:
            port: {type: [integer, string]}
            cpu: {type: [number, string], default: 500m}
            flag: {type: [boolean, string]}
            text: {type: string, default: ""}
            args: {type: array, items: {type: string}, default: [one, two]}
            rules: {type: array, items: {type: object}}
            nodes: {type: object, default: {}}
            password: {type: string, x-secret: true}
            level: {enum: [low, high]}
            shape: {type: object, properties: {size: {enum: [big, small]}}}
        """,
    "anything/templates/page.yaml.j2": """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: {{ name }}}
        data: {all: {{ params | tojson }}}
        """,
}


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Iterator[Path]:
    """An app with the components `a`, `shop.b` and environments `gke`, `minikube`."""
    root = small_app(tmp_path).root
    monkeypatch.chdir(root)
    write_tree(tmp_path / "registry/tools", ANYTHING)
    for line in ("registry index ../registry", "pkg rm ours/tools", "pkg install ours/tools"):
        assert run(line).code == 0, run(line).err
    for line in (
        "generate anything a",
        "generate anything shop.b",
        "env add gke --no-preset",
        "env add minikube --no-preset",
    ):
        assert run(line).code == 0
    yield root


def value(run: Runner, key: str, component: str = "a", *words: str) -> object:
    rows = run("param", "list", component, "-o", "json", *words).json["rows"]
    return next((row["value"] for row in rows if row["name"] == key), None)


LEVELS = ("", "--module shop", "shop.b", "--env gke", "--env gke shop.b")


def test_m6_and_c11_a_union_takes_the_number_first(app: Path, run: Runner) -> None:
    typed = [("port", "80", 80), ("port", "http", "http"), ("cpu", "2.5", 2.5), ("cpu", "100m", "100m")]
    typed += [("flag", "true", True), ("flag", "maybe", "maybe"), ("text", "80", "80")]
    for key, text, read in typed:
        assert run(f"param set shop.b {key} {text}").code == 0
        assert value(run, key, "shop.b", "--env", "gke") == read


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_m7_as_string_stores_the_very_text(app: Path, run: Runner, level: str) -> None:
    for words in ("text null", "port 5", "flag true", "nodes.x 1"):
        assert run(f"param set --as-string {level} {words}").code == 0
    rendered = read_document(run("render gke -c shop.b").out, source="it").value
    taken = json.loads(rendered["data"]["all"])
    assert (taken["text"], taken["port"], taken["flag"], taken["nodes"]) == ("null", "5", "true", {"x": "1"})


def test_c11_a_union_that_is_typed_is_a_number_first(app: Path, run: Runner) -> None:
    run("generate anything new --port=80 --cpu 2 --flag true")
    assert [value(run, key, "new") for key in ("port", "cpu", "flag")] == [80, 2, True]
    run("generate anything other --port=http --cpu 2m --flag maybe")
    assert [value(run, key, "other") for key in ("port", "cpu", "flag")] == ["http", "2m", "maybe"]


def test_c12_the_text_null_is_stored(app: Path, run: Runner) -> None:
    run("param set --as-string a text null")
    file = app / "components/shop/b.yaml"
    file.write_text(file.read_text() + 'params: {text: "null", password: "null"}\n')
    assert value(run, "text") == value(run, "text", "shop.b") == "null"
    taken = json.loads(read_document(run("render gke -c shop.b").out, source="it").value["data"]["all"])
    assert (taken["text"], taken["password"]) == ("null", "null")


def test_m17_what_the_environment_sets_alone(app: Path, run: Runner) -> None:
    run("param set shop.b port 3")
    run("param set --env gke a port 5")
    rows = run("param list --env gke --without-modules -o json").json["rows"]
    assert [(row["component"], row["name"], row["value"]) for row in rows] == [("a", "port", 5)]


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_m5_an_item_of_a_list_is_set_and_taken_back_at_each_level(app: Path, run: Runner, level: str) -> None:
    before = read_tree(app)
    assert run(f"param set {level} args '[a, b, c]'").code == 0
    whole = read_tree(app)
    assert run(f"param set {level} args[1] --else").code == 0
    assert value(run, "args", "shop.b", "--env", "gke") == ["a", "--else", "c"]
    assert run(f"param set {level} args[1] b").code == 0
    assert run(f"param set {level} args[3] d").code == 0
    assert run(f"param unset {level} args[3]").code == 0
    assert read_tree(app) == whole
    assert run(f"param unset {level} args").code == 0
    assert read_tree(app) == before


def test_m5_item_of_an_inherited_list_brings_the_list_along(app: Path, run: Runner) -> None:
    assert run("param set a args[1] three").out.startswith('set args = ["one", "three"] (a, ')
    wrong = run("param set --env gke a args[4] x")
    assert (wrong.code, "there is no item 4: the list has 2" in wrong.err) == (2, True)
    run.play("param set a nodes.all '[a, b]'\nparam set a nodes.all.1 c")
    assert value(run, "nodes", "a") == {"all": ["a", "c"]}
    assert run("param set a rules[0].verbs '[get]'").code == 0
    assert run("param set a rules[0].verbs[1] list").code == 0
    assert value(run, "rules") == [{"verbs": ["get", "list"]}]
    before = read_tree(app)
    for words in ("rules[0].verbs[0] put", "rules[0].verbs [put]", "rules[1].verbs [put]"):
        run.play(f"param set --env gke a {words}\nparam unset --env gke a {words.split()[0]}")
        assert read_tree(app) == before


def test_m20_one_run_takes_items_strings_files_and_stdin(
    app: Path, run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("line 1\nline 2\n")
    words = ["--set", "a.args[0]=first", "--set-string", "port=80", "--set-file", f"a.text={tmp_path}/text"]
    rows = run("param", "list", "a", "-o", "json", *words).json["rows"]
    listed = {row["name"]: (row["value"], row["origin"]) for row in rows}
    assert listed["args"] == (["first", "two"], "--set a.args[0]")
    assert listed["port"] == ("80", "--set-string port")
    assert listed["text"] == ("line 1\nline 2\n", "--set-file a.text")
    assert "first" in run("render", "gke", "-c", "a", *words).out
    monkeypatch.setattr("sys.stdin", io.StringIO("cpu: 3\n"))
    (tmp_path / "more.yaml").write_text("cpu: 4\nport: 1\n")
    ran = run("param", "list", "a", "-o", "json", "--values", f"{tmp_path}/more.yaml", "--values", "-")
    values = {row["name"]: row["value"] for row in ran.json["rows"]}
    assert (values["cpu"], values["port"]) == (3, 1)
    explained = run("param explain a cpu --set cpu=7 -o json").json["parameters"][0]
    assert (explained["value"], explained["layer"]) == (7, "command line")
    wrong = run("render gke --set a.args[7]=x")
    assert (wrong.code, "no item 7: the list has 2 (--set a.args[7])" in wrong.err) == (2, True)
    assert run("render gke --set-file text=nowhere").code == 4
    assert run("render gke --set-string text").code == 2


def test_c14_every_values_file_counts(app: Path, run: Runner, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("port: 1\ntext: one\nnodes: {a: x, b: x}\n")
    (tmp_path / "two.yaml").write_text("text: two\nnodes: {b: z}\n")
    line = f"generate anything c --values {tmp_path}/one.yaml --values {tmp_path}/two.yaml --cpu 9"
    assert run(line).code == 0
    params = "params:\n  port: 1\n  text: two\n  nodes:\n    a: x\n    b: z\n  cpu: 9\n"
    assert (app / "components/c.yaml").read_text().endswith(params)


def test_m15_one_level_lists_what_it_sets_itself(app: Path, run: Runner) -> None:
    for words in (
        "port 1",
        "--module shop port 2",
        "shop.b port 3",
        "--env gke port 4",
        "--env gke a port 5",
    ):
        assert run(f"param set {words}").code == 0
    run("param set --env gke a password hidden")

    def own(words: str) -> list[tuple[str, str, object, str]]:
        rows = run(f"param list --own {words} -o json").json["rows"]
        return [(row["component"], row["name"], row["value"], row["level"]) for row in rows]

    of_a = [("a", "port", 5, "environment"), ("a", "password", "********", "environment")]
    assert own("") == [("", "port", 1, "app")]
    assert own("--module shop") == [("", "port", 2, "module")]
    assert own("shop.b") == [("shop.b", "port", 3, "component")]
    assert own("--env gke") == [("", "port", 4, "environment globals"), *of_a]
    assert own("--env gke a") == of_a
    assert own("--env minikube") == []
    table = run("param list --env gke --without-modules").out
    assert table.splitlines()[1].split() == ["all", "port", "4", "environments/gke/params.yaml:4"]


def test_m21_no_secret_is_printed(app: Path, run: Runner) -> None:
    secret = "correct-horse"
    for words in ("", "a", "--env gke", "--env gke a", "--module shop"):
        assert secret not in "".join(str(run(f"param set {words} password {secret}")))
    for line in (
        "param list --env gke",
        "param list --own",
        "param list --own --env gke",
        "param list --own a",
        "param explain a password --env gke",
        "param explain a",
        "param diff gke minikube",
        "env describe gke",
        "diff local:gke local:minikube",
    ):
        for form in ("table", "json", "yaml"):
            ran = run(f"{line} -o {form}")
            assert ran.code in (0, 1), ran.err
            assert secret not in ran.out + ran.err, line


@pytest.mark.slow
def test_a_thousand_values_change_a_file_by_these_values_alone(app: Path, run: Runner) -> None:
    keys = range(40)
    lines = ["apiVersion: mlstack.dev/v1", "kind: EnvironmentParams", "globals: {}  # of all", "components:"]
    lines += ["  a:", "    # nodes of a", "    nodes:"]
    lines += [f"      key{key}: 0   # about {key}" for key in keys]
    lines += ['    text: "kept"', ""]
    file = app / "environments/gke/params.yaml"
    file.write_text("\n".join(lines))
    place = ParamScope(component="a", environment="gke")
    for number in range(1000):
        params.set_param(AppDir(app), place, f"nodes.key{number % 40}", str(number))
    expected = [
        line.replace(": 0 ", f": {953 + at} ") if 7 <= at < 47 else line for at, line in enumerate(lines)
    ]
    assert file.read_text().split("\n") == expected


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_set_then_unset_gives_every_file_back(app: Path, run: Runner, level: str) -> None:
    before = read_tree(app)
    for key in ("port", "nodes.deep.er", "text"):
        assert run(f"param set {level} {key} 1").code == 0
        assert read_tree(app) != before
        assert run(f"param unset {level} {key}").code == 0
        assert read_tree(app) == before


def offered(run: Runner, monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    words = line.split(" ")
    asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    for name, text in {"_MLSTACK_COMPLETE": "complete_bash", **asked}.items():
        monkeypatch.setenv(name, text)
    ran = run("param")
    monkeypatch.delenv("_MLSTACK_COMPLETE")
    return ran.out.split()


def test_tab_offers_parameters_and_their_values(
    app: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line, words in {
        "mlstack param set ": ["a", "shop.b"],
        "mlstack param set a p": ["password", "port"],
        "mlstack param set a flag ": ["false", "true"],
        "mlstack param set a flag t": ["true"],
        "mlstack param set --env gke flag f": ["false"],
        "mlstack param set --env gke fl": ["flag"],
        "mlstack param set a level ": ["high", "low"],
        "mlstack param set a password ": [],
        "mlstack param set a shape.": ["shape.size"],
        "mlstack param set a shape.size ": ["big", "small"],
        "mlstack param set nowhere ": [],
        "mlstack param unset a flag ": [],
        "mlstack param explain a po": ["port"],
    }.items():
        assert offered(run, monkeypatch, line) == words, line
