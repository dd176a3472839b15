"""Nothing from outside reaches a terminal raw: control characters, hidden and turned text, forged lines."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.cli import output
from mlstack.errors import ForbiddenError
from mlstack.kube.client import Applied, ClientWrapper
from mlstack.yaml import write
from tests.support.cli import Ran, Runner, memory_cluster
from tests.support.registry import REGISTRY

HOSTILE = (
    "x\x1b]0;owned\x07\x9b31m\u202e\u2066y\u2069\u200b\x7f\r\u2028\U000e0041z\nerror: forged\nhint: run this"
)
TURNED = "a\u202eb\u200bc\U000e0041"
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e0fff]"
)
FORGED = re.compile("^(error: forged|hint: run this)", re.MULTILINE)


def quoted(text: str) -> str:
    return write.to_flow(text)


EVIL = {
    "registry/evil/package.yaml": f"""\
        apiVersion: mlstack.dev/v1
        kind: Package
        name: evil
        version: 1.0.0
        summary: {quoted(HOSTILE)}
        license: {quoted(HOSTILE)}
        """,
    "registry/evil/trap/prototype.yaml": f"""\
        apiVersion: mlstack.dev/v1
        kind: Prototype
        name: trap
        summary: {quoted(HOSTILE)}
        description: {quoted(HOSTILE)}
        parameters:
          type: object
          properties:
            shown: {{type: string, default: {quoted(TURNED)}, description: {quoted(HOSTILE)}}}
            one: {{type: string, enum: [a, {quoted(HOSTILE)}], default: a, description: {quoted(HOSTILE)}}}
            old: {{type: string, x-deprecated: {quoted(HOSTILE)}}}
            count: {{type: integer, unit: {quoted(HOSTILE)}, default: 1}}
        notes: {quoted(HOSTILE)}
        """,
    "registry/evil/trap/templates/page.yaml.j2": f"""\
        {{% if params.count == 3 %}}{{{{ fail({quoted(HOSTILE)}) }}}}{{% endif %}}
        apiVersion: v1
        kind: ConfigMap
        metadata:
          name: {{{{ name }}}}
          labels: {{note: {quoted(HOSTILE)}}}
          annotations: {{note: {quoted(HOSTILE)}}}
        data:
          text: {quoted(HOSTILE)}
          turned: {{{{ params.shown }}}}
        """,
}


class Hostile(ClientWrapper):
    """A cluster whose warnings and refusals hold what a terminal would obey."""

    refuses = False

    def apply(self, obj: Any, **how: Any) -> Applied:
        """Warn, or refuse."""
        if self.refuses and obj["kind"] == "ConfigMap":
            raise ForbiddenError(
                f"ConfigMap: admission webhook denied: {HOSTILE}", why="policy", hint=HOSTILE
            )
        applied = super().apply(obj, **how)
        return Applied(object=applied.object, warnings=(*applied.warnings, HOSTILE))


@pytest.fixture
def evil(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Give an app with a package that means no good, and a cluster of the same kind."""
    monkeypatch.chdir(tmp_path)
    run.enter(tmp_path, {**REGISTRY, **EVIL}, "evil")
    run.ok("generate trap trap")
    run.new_cluster = lambda name: Hostile(memory_cluster(name))
    return run


def check(ran: Ran) -> None:
    """Hold what was printed against what may be printed."""
    assert not RAW.search(ran.out), ascii(ran.out)
    assert not RAW.search(ran.err), ascii(ran.err)
    assert not FORGED.search(ran.err), ran.err
    assert ran.code != 70, ran.err


COMMANDS = """\
pkg list
pkg describe ours/evil
prototype list
prototype describe trap
prototype search trap
prototype preview trap
generate trap --help
param list
param explain trap shown
param set trap one HOSTILE
param set trap HOSTILE 1
param set trap old 1
render minikube
render minikube --set old=1
render minikube --set count=3
render HOSTILE
validate minikube
diff minikube
apply minikube
status minikube
history list minikube
env describe HOSTILE
env add HOSTILE
env add gke --context HOSTILE
component rm HOSTILE
registry add more HOSTILE
registry add HOSTILE ../registry
apply minikube --HOSTILE
apply minikube --timeout HOSTILE
HOSTILE"""


@pytest.mark.slow
@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_no_command_prints_what_a_terminal_obeys(evil: Runner, output: str) -> None:
    for line in COMMANDS.splitlines():
        words = [word.replace("HOSTILE", HOSTILE) for word in line.split()]
        ran = evil(*words, *(() if output == "table" else ("-o", output)))
        check(ran)
        if output == "json" and ran.out.startswith("{"):
            json.loads(ran.out)
        if output == "yaml" and ran.code == 0 and "--help" not in words:
            list(yaml.safe_load_all(ran.out))


def test_a_value_is_the_same_in_json_and_yaml_as_in_its_file(evil: Runner) -> None:
    for format_, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        rendered = read(evil.ok("render", "minikube", "-o", format_))
        obj = rendered["items"][0] if format_ == "json" else rendered
        assert obj["metadata"]["annotations"]["note"] == HOSTILE
    assert json.loads(evil.ok("pkg describe ours/evil -o json"))["summary"] == HOSTILE


@pytest.mark.parametrize("output", ["table", "json"])
def test_refusals_and_warnings_of_the_server_are_shown_not_obeyed(evil: Runner, output: str) -> None:
    check(evil("apply", "minikube", "-o", output))
    Hostile.refuses = True
    try:
        check(evil("apply", "minikube", "--set", "count=2", "-o", output))
        evil.ok("param set trap count 4")
        refused = evil("apply", "minikube", "-o", output)
    finally:
        Hostile.refuses = False
    check(refused)


@pytest.mark.parametrize(
    "text", ["a\tb\nc", "日本語 🚀", "क\u094d\u200dष", "👩\u200d💻", "a \N{NO-BREAK SPACE}b", "e\u0301"]
)
def test_ordinary_text_of_all_scripts_stays(text: str) -> None:
    assert output.escaped(text) == text
    assert output.json_escaped(f'"{text}"') == f'"{text}"'


def test_a_document_says_the_same_when_its_characters_are_escaped() -> None:
    text = "".join(map(chr, (*range(1, 0x100), *range(0x2000, 0x2070), 0xFEFF, 0xE0041)))
    written = output.json_escaped(json.dumps({text: text}, ensure_ascii=False, indent=2))
    assert json.loads(written) == {text: text}
    assert not RAW.search(written)
    assert yaml.safe_load(output.escaped(write.to_yaml({text: [text]}))) == {text: [text]}
    assert json.loads(output.json_escaped(write.to_json({text: [text]}))) == {text: [text]}


def test_what_libraries_and_threads_write_is_escaped_too(capfd: pytest.CaptureFixture[str]) -> None:
    program = """
import sys, threading, warnings
from mlstack.cli import fast, main
def fails(words, session):
    print("out \\x1b[31m")
    warnings.warn("warned \\x1b[31m", stacklevel=1)
    thread = threading.Thread(target=lambda: 1 / len("") if "\\x1b" else None, name="t\\x1b[31m")
    thread.start(); thread.join()
    return 0
main._run = fails
sys.argv = ["mlstack", "x"]
raise SystemExit(fast.main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    captured = capfd.readouterr()
    assert "out \\x1b[31m" in captured.out
    assert "warned \\x1b[31m" in captured.err
    assert "t\\x1b[31m" in captured.err
    assert "\x1b" not in captured.out + captured.err
