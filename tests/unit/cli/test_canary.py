"""Secrets planted wherever there are any stand in nothing that a command prints, nor in a plan file."""

import base64
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.errors import ClusterError, ForbiddenError, TransientError
from mlstack.kube.client import Applied, ClientWrapper, ObjectRef
from tests.support.cli import Ran, Runner, memory_cluster
from tests.support.registry import REGISTRY

pytestmark = pytest.mark.slow

# Parameters at every level, a manifest, what lies in the cluster alone, what was set before, and a login.
PARAM, OTHER, LOW, GLOBAL = "cAn4ry-paräm", "cAn4ry'other\"<x>", "cAn4rylow77", "cAn4ryglobal5"
TYPED, MANIFEST, LIVE, EARLIER, LOGIN = (
    f"cAn4ry{name}" for name in ("typed3", "manifest8", "live1", "old6", "pw2")
)
LINES = "cAn4ryline-one\ncAn4ryline-two\n"
CANARIES = (PARAM, OTHER, LOW, GLOBAL, TYPED, MANIFEST, *LINES.split(), LIVE, EARLIER, LOGIN)
SHORT = "z9q"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


VAULT = {
    "registry/vault/package.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Package
        name: vault
        version: 1.0.0
        summary: Keeps things
        """,
    "registry/vault/vault/prototype.yaml": """\
        apiVersion: mlstack.dev/v1
        kind: Prototype
        name: vault
        summary: Keeps things
        parameters:
          type: object
          not: {properties: {mode: {const: refused}}, required: [mode]}
          properties:
            token: {type: string, x-secret: true, aliases: [old_token]}
            other: {type: string, x-secret: true}
            shared: {type: string, x-secret: true}
            picky: {type: string, x-secret: true, pattern: '^[a-z]*$', maxLength: 40}
            chosen: {type: string, x-secret: true, enum: [abc, def]}
            short: {type: string, x-secret: true}
            number: {type: integer, x-secret: true}
            mode: {type: string, default: plain}
        """,
    "registry/vault/vault/templates/page.yaml.j2": """\
        {% if params.mode == "fails" %}
        {{ fail("`token` is " ~ params.token ~ " in " ~ (params.token | b64)) }}
        {% endif %}
        {% if params.mode == "undefined" %}{{ params[params.token] }}{% endif %}
        {% if params.mode == "attribute" %}{{ params.token.foo[params.token].bar }}{% endif %}
        {% if params.mode == "broken" %}{{ ("a: [" ~ params.token) | raw }}{% endif %}
        {% if params.mode == "noobject" %}{{ params.token }}: {{ params.other }}{% endif %}
        {% if params.mode == "name" %}{% set title = params.token %}{% endif %}
        {{ note("the token is " ~ params.token ~ " or " ~ (params.token | b64)) }}
        apiVersion: apps/v1
        kind: Deployment
        metadata:
          name: {{ title | default(name) }}
          annotations:
            note: {{ params.other }}
        spec:
          selector: {matchLabels: {app: vault}}
          template:
            metadata: {labels: {app: vault}}
            spec:
              containers:
              - name: main
                image: nginx
                args:
                - {{ "--token=" ~ params.token }}
                - {{ "--short=" ~ params.short }}
                env:
                - name: TOKEN
                  value: {{ params.token }}
                - name: B64
                  value: {{ params.token | b64 }}
        ---
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: {{ name }}}
        data:
          plain: {{ params.shared }}
          file: {{ "[db]\\npassword = " ~ params.token ~ "\\nbasic = " ~ (("u:" ~ params.token) | b64) }}
        ---
        apiVersion: v1
        kind: Secret
        metadata: {name: {{ name }}}
        stringData:
          token: {{ params.token }}
          short: {{ params.short }}
        """,
}


class Talkative(ClientWrapper):
    """A cluster that quotes what it is sent and what it has: in warnings, refusals and faults.

    Attributes:
        quotes: gives the error for an object that is written; None lets it pass with a warning.
    """

    quotes: Callable[[Any], ClusterError] | None = None

    def apply(self, obj: Any, **how: Any) -> Applied:
        """Write, and say what."""
        if self.quotes is not None and obj["kind"] != "Namespace":
            raise self.quotes(obj)
        applied = super().apply(obj, **how)
        warnings = (go(obj), json.dumps(applied.object, ensure_ascii=False), repr(obj))
        return Applied(object=applied.object, warnings=warnings)


def go(value: Any) -> str:
    """Write a value as Go's `%v` does."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go(inner)}' for key, inner in sorted(value.items()))}]"
    return f"[{' '.join(map(go, value))}]" if isinstance(value, list) else str(value)


def go_bytes(obj: Any) -> str:
    data = [*(obj.get("stringData") or obj.get("data") or {"": PARAM}).values()]
    written = ", ".join(f"{byte:#x}" for byte in str(data[0]).encode())
    return f'core.Secret{{Data:map[string][]uint8{{"token":[]uint8{{{written}}}}}}}'


REFUSALS: dict[str, Callable[[Any], ClusterError]] = {
    "webhook": lambda obj: ForbiddenError(
        f'admission webhook "x.y.z" denied: {json.dumps(obj)}', why="policy"
    ),
    "go": lambda obj: ClusterError(f".data expected map, got &{{{go(obj)}}}"),
    "bytes": lambda obj: ClusterError(f"Invalid value: {go_bytes(obj)}"),
    "cut": lambda obj: ClusterError(go(obj)[:400] + " …"),
    "busy": lambda obj: TransientError(f"try later: {yaml.safe_dump(obj)}"),
    "fault": lambda obj: KeyError(json.dumps(obj)),  # type: ignore[return-value,dict-item]
}


@pytest.fixture
def vault(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Give an app with secrets at every level, applied before with others."""
    monkeypatch.chdir(tmp_path)
    run.enter(tmp_path, {**REGISTRY, **VAULT}, "vault")
    run.new_cluster = lambda name: Talkative(memory_cluster(name))
    run.play(f"""
        env add gke --context gke --no-preset
        generate vault safe --token {EARLIER} --short {SHORT} --other {EARLIER}
        apply minikube --no-wait
        param set safe token {LOW}
        param set safe number 48151623
        param set --env=minikube safe token {PARAM}
        param set --env=minikube shared {GLOBAL}
    """)
    run.ok("param", "set", "--env=minikube", "safe", "other", OTHER)
    raw = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "raw"},
        "data": {"a": b64(MANIFEST), "lines": b64(LINES)},
    }
    Path("components/raw.yaml").write_text(yaml.safe_dump(raw))
    live = {**raw, "data": {"a": b64(LIVE)}}
    copy = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps(live)}
    run.cluster("minikube").create(
        {**live, "metadata": {"name": "raw", "namespace": "default", "annotations": copy}}
    )
    return run


def forms(canary: str) -> Iterator[str]:
    """Give how a canary may look, also within longer base64."""
    yield canary
    yield json.dumps(canary)[1:-1]
    yield canary.encode().hex()
    yield " ".join(map(str, canary.encode()))
    for before in range(3):
        yield base64.b64encode(b"\0" * before + canary.encode()).decode()[4:-4]


def check(*texts: str) -> None:
    for text in texts:
        flat = text.replace("\n", "").replace(" ", "")
        for canary in CANARIES:
            for form in forms(canary):
                assert form not in text, f"{canary} as {form} in {text}"
                assert form.replace(" ", "") not in flat or len(form) < 8, f"{canary} as {form} in {text}"
        assert "cAn4ry" not in text, text


COMMANDS = (
    "env describe minikube",
    "param list --env minikube",
    "param list safe",
    "param explain safe --env minikube",
    "param explain safe token --env minikube",
    "param diff minikube gke",
    "component list",
    "validate minikube",
    "diff minikube",
    "diff minikube --live",
    "diff minikube gke",
    "diff local:minikube remote:minikube",
    "plan minikube --out plan.json",
    "apply minikube --dry-run",
    "apply minikube --yes --no-wait",
    "status minikube",
    "history list minikube",
    "history show minikube 1",
    "history show minikube",
    "history diff minikube 1",
    "rollback minikube 1 --dry-run",
    "rollback minikube 1 --yes --no-wait",
    "delete minikube --dry-run",
    f"param set safe token {TYPED}",
    "apply gke --dry-run",
    f"param set safe picky {TYPED}!",
    f"param set safe chosen {TYPED}",
    f"param set safe number {TYPED}",
    f"apply gke --set safe.picky={TYPED}! --dry-run",
    f"apply gke --set safe.chosen={TYPED} --dry-run",
    f"apply gke --set safe.token={TYPED} --dry-run",
    f"plan gke --set safe.token={TYPED} --out plan.json",
    f"validate gke --set safe.number={TYPED}",
    "validate gke --set safe.mode=refused",
    "validate gke --set safe.mode=fails",
    "validate gke --set safe.mode=undefined",
    "validate gke --set safe.mode=attribute",
    "validate gke --set safe.mode=broken",
    "validate gke --set safe.mode=noobject",
    "validate gke --set safe.mode=name",
    "apply gke --set safe.mode=name",
    "render gke --set safe.mode=fails",
    f"prototype preview vault --token {TYPED} --mode fails",
    f"generate vault second --token {TYPED} --picky {TYPED}!",
    f"generate vault third --token {TYPED}",
    f"registry add evil https://ada:{LOGIN}@127.0.0.1:1/a.git",
    f"registry add evil git+https://{LOGIN}@127.0.0.1:1/a.git",
)

WRONG = COMMANDS.index("apply gke --dry-run") + 1


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_no_command_tells_a_secret(vault: Runner, output: str) -> None:
    for line in COMMANDS:
        ran = vault(line if output == "table" else f"{line} -o {output}")
        assert ran.code in ((0, 1) if COMMANDS.index(line) < WRONG else (0, 1, 2, 3, 5, 6)), (line, ran)
        try:
            check(ran.out, ran.err, *(file.read_text() for file in Path.cwd().glob("plan.json")))
        except AssertionError as error:
            raise AssertionError(f"{line}: {error}") from None


WHOLE = {
    "enum": f"enum: [{{token: {LOW}, mode: a}}]",
    "const": f"const: {{token: {LOW}, mode: a}}",
    "not": "not: {required: [token]}",
    "if": "if: {required: [token]}\n          then: {properties: {mode: {const: a}, token: {const: no}}}",
    "maxProperties": "maxProperties: 1",
    "propertyNames": "propertyNames: {pattern: '^t'}",
    "anyOf": "anyOf: [{properties: {token: {maxLength: 3}}}, {properties: {mode: {const: a}}}]",
    "unevaluated": "unevaluatedProperties: {const: 5}",
}


@pytest.mark.parametrize("keyword", WHOLE)
def test_rules_over_all_parameters_tell_no_secret(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyword: str
) -> None:
    prototype = VAULT["registry/vault/vault/prototype.yaml"].replace(
        "not: {properties: {mode: {const: refused}}, required: [mode]}", WHOLE[keyword]
    )
    monkeypatch.chdir(tmp_path)
    run.enter(tmp_path, {**REGISTRY, **VAULT, "registry/vault/vault/prototype.yaml": prototype}, "vault")
    for line in (
        f"generate vault safe --token {TYPED} --short {SHORT}",
        "validate minikube",
        "param explain safe",
    ):
        for output in ("", " -o json"):
            ran = run(f"{line}{output}")
            check(ran.out, ran.err)
            assert SHORT not in ran.out + ran.err


def test_a_login_in_the_address_of_a_registry_is_told_nowhere(vault: Runner) -> None:
    app = Path("app.yaml")
    text = app.read_text().replace("../registry", f"https://ada:{LOGIN}%2Fx@127.0.0.1:1/a.git")
    app.write_text(text)
    for line in (
        "registry list",
        "registry describe ours",
        "pkg list",
        "pkg install ours/tools",
        "pkg describe ours/tools",
    ):
        for output in ("table", "json", "yaml"):
            ran = vault(f"{line} -o {output}")
            check(ran.out, ran.err)
    app.write_text(text.replace("https://ada:", "https://"))
    for line in ("registry list", "pkg install ours/tools"):
        ran = vault(line)
        check(ran.out, ran.err)
    app.write_text(text + "registries: [")
    ran = vault("registry list")
    check(ran.out, ran.err)


@pytest.mark.parametrize("debug", ["", "--debug "])
def test_a_server_that_quotes_what_it_was_sent_tells_no_secret(vault: Runner, debug: str) -> None:
    cluster: Any = vault.cluster("minikube")
    for cluster.quotes in REFUSALS.values():
        for line in ("apply minikube --yes --no-wait", "diff minikube", "rollback minikube 1 --yes -o json"):
            ran = vault(f"{debug}{line}")
            assert ran.code not in (0, 1), ran
            check(ran.out, ran.err)


def test_values_that_are_wanted_are_given(vault: Runner) -> None:
    rendered = [*yaml.safe_load_all(vault.ok("render minikube"))]
    secret = next(obj for obj in rendered if obj["kind"] == "Secret" and obj["metadata"]["name"] == "safe")
    assert secret["data"] == {"token": b64(PARAM), "short": b64(SHORT)}
    assert json.loads(vault.ok("render minikube -o json"))["items"][1:]
    check(vault("render minikube").err)


def test_short_secrets_are_masked_by_their_place_and_tear_nothing_out(vault: Runner) -> None:
    vault.ok("param set safe short 1")
    listed = vault.ok("param list safe --env minikube -o json")
    assert {"short": "********"}.items() <= {
        row["name"]: row["value"] for row in json.loads(listed)["rows"]
    }.items()
    diffed = vault("diff minikube -o json")
    assert "apps/v1" in diffed.out
    assert "v********" not in diffed.out


@pytest.mark.parametrize("words", ["render minikube", "render minikube -o json", "show minikube -c raw"])
def test_a_terminal_shows_no_secret_of_a_render(vault: Runner, words: str) -> None:
    reader, writer = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "mlstack", *words.split()], stdout=writer, stderr=writer):
        os.close(writer)
        output = b""
        with suppress(OSError):  # so a terminal ends whose other side is closed
            while piece := os.read(reader, 65536):
                output += piece
    os.close(reader)
    check(output.decode())
    assert b"********" in output
    assert b"note: secrets are hidden" in output


def test_logs_and_reasons_of_pods_tell_no_secret(vault: Runner) -> None:
    vault.ok("apply minikube --yes --no-wait")
    talkative: Any = vault.cluster("minikube")
    memory = talkative._cluster
    for pod in memory.list("v1", "Pod", namespace="default").items:
        name = pod["metadata"]["name"]
        memory.written["default", name, "main"] = f"cannot log in with {PARAM} ({b64(PARAM)})"
        end = {"terminated": {"exitCode": 1, "reason": "Error", "message": f"bad {PARAM}"}}
        loop = {
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": f"bad {MANIFEST}"}},
            "lastState": end,
        }
        status = {"name": "main", "image": "nginx", "imageID": "", "ready": False, "restartCount": 3, **loop}
        memory.patch(
            ObjectRef("v1", "Pod", "default", name),
            {"status": {"phase": "Running", "containerStatuses": [status]}},
            subresource="status",
        )
    for output in ("table", "json", "yaml"):
        ran: Ran = vault(f"status minikube -o {output}")
        check(ran.out, ran.err)
