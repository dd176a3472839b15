"""Rendering beside the real `helm`: the same objects, each from inputs as its users write them."""

import os
import shutil
import subprocess
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep

import pytest

from mlstack.yaml import read
from tests.bench.apps import MLSTACK
from tests.bench.measure import Command, Timing, run_once
from tests.support.tools import tool

pytestmark = pytest.mark.bench

PROTOTYPES = 20
_ENV = [f"SETTING_{number}" for number in range(8)]
_LEVELS = ("debug", "info", "warning")

# --- the same three objects, as templates of either: `{{` and `}}` hold an expression of the other language

_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {name}
  labels:
    app: {name}
    tier: tier-{number}
spec:
  replicas: {replicas}
  selector:
    matchLabels:
      app: {name}
  template:
    metadata:
      labels:
        app: {name}
    spec:
      containers:
        - name: main
          image: {image}
          ports:
            - containerPort: {port}
          env:
{env}
          resources:
            limits:
              cpu: {cpu}
              memory: {memory}
          volumeMounts:
            - name: config
              mountPath: /etc/component
      volumes:
        - name: config
          configMap:
            name: {config_name}
"""
_SERVICE = """\
apiVersion: v1
kind: Service
metadata:
  name: {name}
  labels:
    app: {name}
spec:
  selector:
    app: {name}
  ports:
    - name: http
      port: 80
      targetPort: {port}
"""
_CONFIG_MAP = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {config_name}
  labels:
    app: {name}
data:
  component.conf: |
{lines}
"""
_CONFIG = ("name = {name}", "port = {port}", "log_level = {level}", "replicas = {replicas}")
_PLAIN = tuple(f"option_{number} = tier-{{number}}" for number in range(8))


def _template(text: str, number: int, say: Callable[[str, str], str]) -> str:
    """Fill in expressions; `say` writes one of a value of the component, in a value or in a text."""
    env = [f"            - name: {name}\n              value: {say(name.lower(), 'text')}" for name in _ENV]
    values = {name: say(name, "value") for name in ("name", "replicas", "image", "port", "cpu", "memory")}
    values |= {"config_name": say("name", "config"), "env": "\n".join(env), "number": str(number)}
    raw = {name: say(name, "raw") for name in ("name", "port", "level", "replicas")}
    lines = [f"    {line}".format(**{**raw, "number": number}) for line in (*_CONFIG, *_PLAIN)]
    return text.format(**values, lines="\n".join(lines))


def _jinja(name: str, kind: str) -> str:
    value = "name" if name == "name" else f"params.{name}"
    if kind == "config":
        return f'{{{{ {value} ~ "-config" }}}}'
    return f"{{{{ {value} | string | raw }}}}" if kind == "raw" else f"{{{{ {value} }}}}"


def _go(name: str, kind: str) -> str:
    if kind == "config":
        return f"{{{{ .Values.{name} }}}}-config"
    quoted = kind == "text" or (name in ("cpu", "memory", "image") and kind != "raw")
    return f"{{{{ .Values.{name}{' | quote' if quoted else ''} }}}}"


def _defaults(number: int) -> dict[str, str]:
    settings = {name.lower(): f"value-{number}-{place}" for place, name in enumerate(_ENV)}
    fixed = {"replicas": "1", "image": f"registry.example/p{number}:1", "port": str(8000 + number)}
    return {**fixed, "cpu": "500m", "memory": "256Mi", "level": "info", **settings}


def _own(number: int) -> dict[str, str]:
    """What a component sets itself."""
    return {"replicas": str(1 + number % 3), "setting_0": f"own-{number}", "level": _LEVELS[number % 3]}


def _overridden(components: int) -> dict[int, dict[str, str]]:
    """What the environment sets for 30 % of the components."""
    return {n: {"replicas": "5", "setting_1": f"e0-{n}"} for n in range(components) if n % 10 < 3}


# ------------------------------------------------------------------------------------------------ inputs


def registry(folder: Path) -> Path:
    """Write a registry with one package of 20 prototypes."""
    package = folder / "bench"
    package.mkdir(parents=True)
    (package / "package.yaml").write_text(
        "apiVersion: mlstack.dev/v1\nkind: Package\nname: bench\nversion: 0.1.0\nsummary: to measure with\n"
    )
    for number in range(PROTOTYPES):
        templates = package / f"p{number}" / "templates"
        templates.mkdir(parents=True)
        lines = [
            *("apiVersion: mlstack.dev/v1", "kind: Prototype", f"name: p{number}", "summary: a web server"),
            *("parameters:", "  properties:"),
        ]
        for name, value in _defaults(number).items():
            kind = "integer" if value.isdigit() else "string"
            lines += [f"    {name}:", f"      type: {kind}", f"      default: {value}"]
        (templates.parent / "prototype.yaml").write_text("\n".join(lines) + "\n")
        for place, text in enumerate((_DEPLOYMENT, _SERVICE, _CONFIG_MAP)):
            (templates / f"{place}.yaml.j2").write_text(_template(text, number, _jinja))
    return folder


def app_of(folder: Path, bench: Path, *, components: int) -> Path:
    """Make an app of that many components and one environment."""
    for words in (
        ("init", folder.name),
        ("registry", "add", "bench", str(bench)),
        ("pkg", "install", "bench/bench"),
    ):
        cwd = folder.parent if words[0] == "init" else folder
        subprocess.run([*MLSTACK, *words], cwd=cwd, check=True, capture_output=True)
    change_all(folder, components=components, image="1")
    environment = folder / "environments" / "e0"
    environment.mkdir(parents=True)
    (environment / "environment.yaml").write_text(
        "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: bench\nnamespace: e0\n"
    )
    lines = ["apiVersion: mlstack.dev/v1", "kind: EnvironmentParams", "components:"]
    for number, values in _overridden(components).items():
        lines += [f"  c{number}:", *(f"    {name}: {value}" for name, value in values.items())]
    (environment / "params.yaml").write_text("\n".join(lines) + "\n")
    return folder


def change_all(folder: Path, *, components: int, image: str) -> None:
    """Write every component, with another image."""
    for number in range(components):
        values = {**_own(number), "image": f"registry.example/c{number}:{image}"}
        params = "".join(f"  {name}: {value}\n" for name, value in values.items())
        text = f"apiVersion: mlstack.dev/v1\nkind: Component\nprototype: bench/bench/p{number % PROTOTYPES}\n"
        (folder / "components" / f"c{number}.yaml").write_text(f"{text}params:\n{params}")


def chart(folder: Path, *, components: int) -> Path:
    """Write the same as one chart that takes a chart a prototype under an alias a component."""
    folder.mkdir(parents=True)
    head = ["apiVersion: v2", "name: bench", "version: 0.1.0", "dependencies:"]
    values, overrides = [], []
    overridden = _overridden(components)
    for number in range(components):
        head.append(f"- {{name: p{number % PROTOTYPES}, version: 0.1.0, alias: c{number}}}")
        own = {"name": f"c{number}", **_own(number), "image": f"registry.example/c{number}:1"}
        values += [f"c{number}:", *(f"  {name}: {value}" for name, value in own.items())]
        if number in overridden:
            overrides += [f"c{number}:", *(f"  {name}: {v}" for name, v in overridden[number].items())]
    for name, lines in (("Chart", head), ("values", values), ("values-e0", overrides)):
        (folder / f"{name}.yaml").write_text("\n".join(lines) + "\n")
    for number in range(min(PROTOTYPES, components)):
        templates = folder / "charts" / f"p{number}" / "templates"
        templates.mkdir(parents=True)
        (templates.parent / "Chart.yaml").write_text(f"apiVersion: v2\nname: p{number}\nversion: 0.1.0\n")
        defaults = "".join(f"{name}: {value}\n" for name, value in _defaults(number).items())
        (templates.parent / "values.yaml").write_text(defaults)
        for place, text in enumerate((_DEPLOYMENT, _SERVICE, _CONFIG_MAP)):
            (templates / f"{place}.yaml").write_text(_template(text, number, _go))
    return folder


# ---------------------------------------------------------------------------------------------- measuring


@pytest.fixture(scope="module")
def helm() -> str:
    return str(tool("helm"))


def ratio(ours: list[Timing], theirs: list[Timing]) -> tuple[float, float]:
    """The medians of the ratios of each pair: processor and wall."""
    pairs = list(zip(ours, theirs, strict=True))
    return (
        median(a.cpu_s[0] / b.cpu_s[0] for a, b in pairs),
        median(a.wall_s[0] / b.wall_s[0] for a, b in pairs),
    )


def show(name: str, ours: list[Timing], theirs: list[Timing]) -> None:
    cpu, wall = ratio(ours, theirs)
    times = [1000 * median(t.cpu_s[0] for t in runs) for runs in (ours, theirs)]
    memory = [max(t.peak_bytes for t in runs) >> 20 for runs in (ours, theirs)]
    print(
        f"{name:44} {cpu:6.2f} {wall:6.2f} {times[0]:8.0f} {times[1]:8.0f} {memory[0]:8d} {memory[1]:8d} MiB"
    )


_NUMBERS = count()


@pytest.mark.parametrize(("components", "rounds"), [(1, 15), (100, 9), (1000, 5)])
def test_render_beside_helm(helm: str, tmp_path: Path, components: int, rounds: int) -> None:
    app = app_of(tmp_path / "app", registry(tmp_path / "bench"), components=components)
    values = chart(tmp_path / "chart", components=components)
    peer = Command(
        name="helm",
        argv=[helm, "template", "bench", str(values), "-n", "e0", "-f", str(values / "values-e0.yaml")],
    )
    ours, theirs = ([*MLSTACK, "render", "e0"], list(peer.argv))
    assert objects(ours, cwd=app) == objects(theirs, cwd=app)
    print(f"\n{components} components{'':30} processor wall  ours ms  helm ms     ours     helm")
    for name in ("stored, nothing changed", "templates stored, all inputs changed", "nothing stored"):
        with TemporaryDirectory() as cache:
            environ = {"XDG_CACHE_HOME": cache}
            run_once(Command(name="warm up", argv=ours, cwd=app, environ=environ))
            sleep(3 if name.startswith("stored") else 0)  # what has just been written is not trusted
            run_once(Command(name="warm up", argv=ours, cwd=app, environ=environ))
            pairs: tuple[list[Timing], list[Timing]] = ([], [])
            for _ in range(rounds):
                if name.startswith("templates"):
                    change_all(app, components=components, image=f"changed-{next(_NUMBERS)}")
                if name.startswith("nothing"):
                    shutil.rmtree(f"{cache}/mlstack", ignore_errors=True)
                pairs[0].append(run_once(Command(name=name, argv=ours, cwd=app, environ=environ)))
                pairs[1].append(run_once(peer))
        show(f"  {name}", *pairs)


def test_help_beside_helm_version(helm: str) -> None:
    ours, theirs = [], []
    for _ in range(15):
        ours.append(run_once(Command(name="mlstack --help", argv=[*MLSTACK, "--help"])))
        theirs.append(run_once(Command(name="helm version", argv=[helm, "version"])))
    show("\nmlstack --help beside helm version", ours, theirs)


def objects(argv: list[str], *, cwd: Path) -> dict[tuple[str, str], object]:
    """The objects that a command prints, without the marks that mlstack adds."""
    environ = {**os.environ, "XDG_CACHE_HOME": os.devnull}
    run = subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True, env=environ)
    content = {}
    for document in read.read_documents(run.stdout, source="output"):
        data = document.value
        metadata = data["metadata"]
        metadata.pop("namespace", None)
        metadata.pop("annotations", None)
        if data["kind"] == "Deployment":
            data["spec"]["template"]["metadata"].pop("annotations", None)  # the hash of what its pods read
        metadata["labels"] = {k: v for k, v in metadata["labels"].items() if k in ("app", "tier")}
        content[data["kind"], metadata["name"]] = data
    return content
