"""Packages that mean ill are refused, or end by a limit that is said: in seconds, with place and code."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.support.builders import Tree, write_tree
from tests.support.cli import Ran, Runner

pytestmark = pytest.mark.slow

SECONDS = 15
PACKAGE = "apiVersion: mlstack.dev/v1\nkind: Package\nname: evil\nversion: 0.1.0\nsummary: Evil\n"
TEMPLATE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ name }}}\n"
PROTOTYPE = """\
apiVersion: mlstack.dev/v1
kind: Prototype
name: web
summary: Evil
parameters:
  type: object
  properties:
    name: {type: string}
    x: SCHEMA
"""


def evil(schema: str = "{type: string}") -> Tree:
    """Give a package with a parameter `x` of this schema."""
    prototype = PROTOTYPE.replace("SCHEMA", schema)
    return {"package.yaml": PACKAGE, "web/prototype.yaml": prototype, "web/templates/a.yaml.j2": TEMPLATE}


class Installed:
    """An app beside a registry that holds the package `evil`; every command must end in seconds."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.run = Runner(capsys)
        self.package = folder / "registry" / "evil"
        self.app = folder / "app"
        self.run.ok("init", "app", "--dir", str(self.app))

    def __call__(self, *words: str) -> Ran:
        began = time.monotonic()
        ran = self.run("--dir", str(self.app), *words)
        assert time.monotonic() - began < SECONDS
        return ran

    def install(self, files: Mapping[str, str | bytes]) -> Ran:
        write_tree(self.package, files)
        self("registry", "add", "r", str(self.package.parent))
        return self("pkg", "install", "r/evil")


@pytest.fixture
def app(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Installed:
    monkeypatch.chdir(tmp_path)
    return Installed(tmp_path, capsys)


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Give the address of a server of schemas, and the paths that are asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            return

    served = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=served.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}", asked
    served.shutdown()
    thread.join()
    served.server_close()


@pytest.mark.parametrize(
    "schema",
    [
        "{$ref: 'SERVER/a'}",
        "{$ref: 'SERVER/a#/b'}",
        "{$dynamicRef: 'SERVER/a'}",
        "{$dynamicRef: 'file:///etc/hostname'}",
        "{$dynamicRef: '#x'}",
        "{$recursiveRef: 'SERVER/a'}",
        "{type: array, items: {$dynamicRef: 'SERVER/a'}}",
        "{not: {$dynamicRef: 'SERVER/a#b'}}",
        "{$defs: {a: {$dynamicRef: 'SERVER/a'}}}",
        "{properties: {default: {$dynamicRef: 'SERVER/a'}}}",
        "{$schema: 'http://json-schema.org/draft-04/schema#', $id: 'SERVER/a'}",
    ],
)
def test_a_schema_that_leads_elsewhere_is_refused_and_nothing_is_fetched(
    schema: str, app: Installed, server: tuple[str, list[str]]
) -> None:
    address, asked = server
    ran = app.install(evil(schema.replace("SERVER", address)))
    assert ran.code == 5
    assert "package `r/evil@0.1.0` is refused" in ran.err
    assert "(r/evil/web/prototype.yaml:5)" in ran.err
    assert asked == []
    assert not (app.app / "vendor").exists()


def test_data_that_looks_like_a_reference_is_data(app: Installed) -> None:
    schema = "{type: object, default: {$ref: 'http://x/y', $dynamicRef: z}}"
    assert app.install(evil(schema)).code == 0
    assert app("generate", "web", "a").code == 0


def test_references_that_multiply_are_refused(app: Installed) -> None:
    lines = [f"  d{n}: {{anyOf: [{{$ref: evil#/d{n + 1}}}, {{$ref: evil#/d{n + 1}}}]}}" for n in range(40)]
    definitions = "apiVersion: mlstack.dev/v1\nkind: Definitions\ndefinitions:\n" + "\n".join(lines)
    ran = app.install(
        {**evil("{$ref: evil#/d0}"), "definitions.yaml": definitions + "\n  d40: {type: string}\n"}
    )
    assert ran.code == 5
    assert "more than 20,000 values" in ran.err


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "1,000,000 steps"),
        ("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}", "too deeply"),
        ("{% set s = state(x='ab') %}{% for i in range(99) %}{% set s.x = s.x ~ s.x %}{% endfor %}", "8 MiB"),
        ("a: {{ 'x'|center(10000000000) }}", "a width or number above 100,000"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"b{n}: &b{n} [*a,*a,*a,*a]\n" for n in range(9999)),
            "aliases",
        ),
    ],
)
def test_a_template_without_end_ends_by_a_limit(template: str, message: str, app: Installed) -> None:
    assert app.install(evil() | {"web/templates/b.yaml.j2": template}).code == 0
    assert app("generate", "web", "a").code == 0
    app("env", "add", "dev", "--context", "minikube")
    ran = app("render", "dev")
    assert ran.code == 3
    assert message in ran.err
    assert "component `a`" in ran.err
    assert "vendor/r/evil@0.1.0/web/templates/b.yaml.j2:" in ran.err


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("{type: string, pattern: '^(a+)+$'}", "a" * 60 + "!"),
        ("{type: string, pattern: '^(a|aa)+$'}", "a" * 60 + "!"),
        ("{type: string, pattern: '(.*)*(.*)*(.*)*(.*)*(.*)*x$'}", "a" * 3000),
        (
            "{type: object, additionalProperties: false, patternProperties: {'^(a+)+$': {}}}",
            "a" * 60 + "!: 1",
        ),
        ("{type: object, propertyNames: {pattern: '^(a+)+$'}}", "a" * 60 + "!: 1"),
    ],
)
def test_a_pattern_takes_no_time(schema: str, value: str, app: Installed) -> None:
    assert app.install(evil(schema)).code == 0
    ran = app("generate", "web", "a", "--x", f"{{{value}}}" if "object" in schema else value)
    assert ran.code == 2
    assert "`x" in ran.err


@pytest.mark.parametrize("pattern", ["(?=a)b", r"(a)\1", "((((a{100}){100}){100}){100})", "a" * 5000])
def test_a_pattern_that_takes_more_than_the_text_is_long_is_refused(pattern: str, app: Installed) -> None:
    ran = app.install(evil(f"{{type: string, pattern: '{pattern}'}}"))
    assert ran.code == 5
    assert "`parameters.properties.x.pattern` cannot be" in ran.err
    assert "(r/evil/web/prototype.yaml:9)" in ran.err


@pytest.mark.parametrize("pattern", ["^[a-z]*$", r"^[a-z]*$(?!\n)", r"^[a-z]*\Z", r"^[\u0061-z]*$"])
def test_the_end_of_a_pattern_is_the_end_of_the_text(pattern: str, app: Installed) -> None:
    assert app.install(evil(f"{{type: string, pattern: '{pattern}'}}")).code == 0
    assert app("generate", "web", "a", "--x", "abc\n").code == 2
    assert app("generate", "web", "a", "--x", "abc").code == 0


def sparse(folder: Path) -> None:
    (folder / "large.txt").touch()
    os.truncate(folder / "large.txt", 20 * 1024**3)


def several(folder: Path) -> None:
    for number in range(40):
        (folder / f"large{number}.txt").touch()
        os.truncate(folder / f"large{number}.txt", 1024**2)


def deep(folder: Path) -> None:
    home = os.open(".", os.O_RDONLY)
    os.chdir(folder)
    for _ in range(300):
        Path("d").mkdir()
        os.chdir("d")
    os.fchdir(home)
    os.close(home)


def many(folder: Path) -> None:
    for number in range(2100):
        (folder / f"{number}.txt").touch()


def named(name: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / os.fsdecode(name)).touch()


FOLDERS = {
    "a file of 20 GB": (sparse, "more than 2000 files and 32 MiB"),
    "forty files of 1 MiB": (several, "more than 2000 files and 32 MiB"),
    "folders in folders": (deep, "more than 32 deep"),
    "many files": (many, "more than 2000 files"),
    "no UTF-8": (named(b"caf\xe9.txt"), r"cannot be shown: 'caf\udce9.txt'"),
    "a line break": (named(b"a\nb"), r"cannot be shown: 'a\nb'"),
    "an escape": (named(b"a\x1b[31mb"), r"cannot be shown: 'a\x1b[31mb'"),
    "a turn of direction": (named("a\u202eb".encode()), r"cannot be shown: 'a\u202eb'"),
}


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("has_index", [False, True])
def test_a_folder_of_ill_will_is_refused(kind: str, has_index: bool, app: Installed) -> None:
    make, message = FOLDERS[kind]
    write_tree(app.package, evil())
    app("registry", "add", "r", str(app.package.parent))
    if has_index:
        app.run.ok("registry", "index", str(app.package.parent))
    make(app.package)
    ran = app("pkg", "install", "r/evil")
    assert ran.code == 5
    assert message in ran.err


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_vendored_folder_of_ill_will_is_refused(kind: str, app: Installed) -> None:
    make, message = FOLDERS[kind]
    assert app.install(evil()).code == 0
    make(app.app / "vendor/r/evil@0.1.0")
    ran = app("prototype", "list")
    assert ran.code == 5
    assert message in ran.err


@pytest.mark.parametrize("kind", ["no UTF-8", "a line break", "deep", "a large file"])
def test_a_repository_of_ill_will_is_refused(kind: str, app: Installed) -> None:
    write_tree(app.package, evil())
    if kind == "deep":
        folder = app.package / "/".join("d" * 40)
        folder.mkdir(parents=True)
        (folder / "a").touch()
    elif kind == "a large file":
        (app.package / "a").write_bytes(bytes(33 * 1024 * 1024))
    else:
        FOLDERS[kind][0](app.package)
    root = app.package.parent
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)
    ran = app("registry", "add", "r", root.as_uri())
    assert ran.code == 5
    assert {"deep": "32 deep", "a large file": "32 MiB"}.get(kind, "cannot be shown") in ran.err
