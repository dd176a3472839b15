"""Whatever stands in a file of an app, a package or a registry: a command works, or says what is wrong where.

The law: no traceback and no fault of ours, no file half written, nothing written by what failed.
"""

from __future__ import annotations

import io
import shlex
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from mlstack.cli.main import main
from mlstack.cli.ports import Ports
from tests.support.builders import Tree, kubeconfig, read_tree, restore_tree, write_tree
from tests.support.cli import Runner
from tests.support.registry import generate, small_app

HEAD = "apiVersion: mlstack.dev/v1\nkind: {}\n"
RULES = """\
conflicts: [{path: spec.replicas, manager: keda*, take: theirs}]
readiness: [{kind: a.example.org/Widget, ready: {condition: Up}}]
params: {color: red}
"""
OWN: Tree = {
    "demo/components/own.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\ndata: {a: b}\n",
    "demo/components/mod/params.yaml": HEAD.format("ModuleParams") + "params: {replicas: 2}\n",
    "demo/environments/gke/environment.yaml": HEAD.format("Environment")
    + "context: gke\nnamespace: ml\ntargets: [front, own]\nallowedNamespaces: [ml]\nprotected: false\n",
    "demo/environments/gke/params.yaml": HEAD.format("EnvironmentParams")
    + "globals: {color: green}\ncomponents: {front: {replicas: 3, tags: {a: b}}}\n",
    "demo/environments/gke/patches/own.yaml": "apiVersion: v1\nkind: ConfigMap\n"
    "metadata: {name: own}\ndata: {a: c}\n",
    "demo/environments/gke/patches/front.yaml": HEAD.format("Patch")
    + "target: {kind: ConfigMap, name: front}\ntype: strategic\nmergeKeys: {data.list: id}\n"
    + "patch: {metadata: {$retainKeys: [name], name: front}, data: {$patch: replace, a: b}}\n---\n"
    + HEAD.format("Patch")
    + "target: {kind: ConfigMap}\ntype: json\npatch: [{op: replace, path: /data/a, value: c}]\n",
    "registry/more/package.yaml": HEAD.format("Package") + "name: more\nversion: 1.0.0\nsummary: Blocks\n",
    "registry/more/definitions.yaml": HEAD.format("Definitions")
    + "definitions: {count: {type: integer, minimum: 0}}\n",
    "registry/more/blocks/sizes.yaml": HEAD.format("ParameterBlock")
    + "properties: {size: {$ref: 'more#/count', default: 1, unit: pods, aliases: [old]}}\n",
    "registry/more/page/prototype.yaml": HEAD.format("Prototype")
    + "name: page\nsummary: Page\nblocks: [more/sizes]\nparameters: {properties: {color: {type: string}}}\n",
    "registry/more/page/templates/page.yaml.j2": "apiVersion: v1\nkind: ConfigMap\n"
    "metadata: {name: {{ name }}}\ndata: {size: '{{ params.size }}'}\n",
    "demo/.mlstack/current-environment": "gke\n",
    "demo/.mlstack/overrides.yaml": HEAD.format("PersonalOverrides")
    + "environments: [{name: gke, namespace: mine}]\nregistries: [{name: ours, address: ../registry}]\n",
    "demo/environments/approved-differences.yaml": HEAD.format("ApprovedDifferences")
    + "approved: [{subject: front *, reason: sizes}]\n",
    "demo/environments/prices.yaml": HEAD.format("Prices")
    + "currency: USD\nrequests: {cpu: 0.03}\ngpus: {'*': 1}\nstorage: {standard: 0.1}\nloadBalancers: 20\n",
    "demo/policies/own.yaml": HEAD.format("Policy")
    + "id: own\nreason: it is so\nfix: mend it\nmatch: {kinds: [Service]}\nexpression: object.kind != 'x'\n",
    "demo/new.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: new}\nspec: {ports: [{port: 80}]}\n",
    "old/app.yaml": "apiVersion: 0.2.0\nkind: ksonnet.io/app\nname: old\nenvironments:\n  default:\n"
    "    destination: {namespace: ml, server: 'https://127.0.0.1'}\n    path: default\n",
    "old/components/params.libsonnet": "{ global: {}, components: {} }\n",
    "old/components/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    "demo/v.yaml": "color: red\ncomponents: {front: {replicas: 1}}\n",
}
SOPS = "demo/environments/gke/params.sops.yaml"  # in the way of other files: it is there where it is broken
ENCRYPTED = b"""\
components:
  front:
    token: ENC[AES256_GCM,data:eA==,type:str]
sops:
  age: []
  mac: ENC[AES256_GCM,data:eg==,type:str]
  version: 3.9.0
"""
READS = ("render gke", "param list --env gke", "component list", "env describe gke", "validate gke -o json")
# File below the folder of the app and its registry -> command lines that read it.
FILES = {
    "demo/app.yaml": (*READS, "registry list", "pkg list --installed", "param set color green", "apply gke"),
    "demo/mlstack.lock": (*READS, "pkg list --installed", "pkg install ours/tools", "pkg rm ours/base"),
    "demo/components/front.yaml": (
        *READS,
        "param explain front",
        "param set front replicas 4",
        "component rm front",
    ),
    "demo/components/own.yaml": (*READS, "diff gke", "apply gke --yes"),
    "demo/components/mod/params.yaml": (
        "render gke -c front",
        "param list",
        "param set --module mod replicas 4",
    ),
    "demo/environments/gke/environment.yaml": (
        *READS,
        "env list",
        "env set gke -n other",
        "apply gke",
        "env rm gke",
    ),
    "demo/environments/gke/params.yaml": (
        *READS,
        "param set --env gke front replicas 4",
        "param unset --env gke color",
    ),
    "demo/environments/gke/patches/own.yaml": ("render gke", "component rm own"),
    "demo/environments/gke/patches/front.yaml": (
        "render gke",
        "param lint",
        "explain configmap/front data.a --env gke",
    ),
    "registry/more/definitions.yaml": ("registry lint ../registry", "pkg install new/more"),
    "registry/more/blocks/sizes.yaml": (
        "registry lint ../registry",
        "pkg install new/more",
        "prototype describe new/more/page",
    ),
    "demo/.mlstack/current-environment": ("render", "env current", "env list", "env current --set gke"),
    "demo/.mlstack/overrides.yaml": (*READS, "env list", "env set gke -n other --override"),
    "demo/environments/approved-differences.yaml": ("env matrix", "env matrix --approve x"),
    "demo/environments/gke/cluster.json": ("validate gke", "env snapshot gke --check", "env snapshot gke"),
    SOPS: (
        *READS,
        "param set --env gke front replicas 4",
        "component rm front",
        "env copy gke other",
        "env rm gke",
    ),
    "demo/environments/prices.yaml": ("footprint gke", "footprint gke -o json"),
    "demo/policies/own.yaml": ("policy list", "validate gke --policy", "validate gke --policy own -o sarif"),
    "demo/new.yaml": ("import new.yaml", "import new.yaml --force"),
    "old/app.yaml": ("import ksonnet-app ../old", "render default --dir ../old"),
    "old/components/a.yaml": ("import ksonnet-app ../old",),
    "demo/v.yaml": ("render gke --values v.yaml", "generate web back --image x --values v.yaml"),
    "demo/plan.json": ("apply plan.json --dry-run", "apply plan.json"),
    "demo/vendor/ours/tools@1.2.0/package.yaml": ("render gke", "pkg list --installed", "pkg rm ours/tools"),
    "registry/registry.yaml": (
        "registry describe ours",
        "pkg install --force ours/tools",
        "registry index ../registry",
        "registry lint ../registry",
    ),
    "registry/tools/package.yaml": ("registry add new ../registry", "pkg list", "registry lint ../registry"),
    "registry/tools/web/prototype.yaml": ("registry lint ../registry", "pkg install new/tools"),
    "registry/tools/web/templates/page.yaml.j2": (
        "pkg install new/tools",
        "prototype preview new/tools/web --image x",
    ),
    "registry/tools/web/examples/plain.yaml": ("registry index ../registry", "pkg install new/tools"),
}
ODD_TOKENS = (
    *(
        "? a\n",
        "<<: *x\n",
        "- \n",
        "&a [*a]\n",
        "---\n",
        "...\n",
        "%YAML 9.9\n---\n",
        "{",
        "]",
        "\t",
        ": x",
        '"',
    ),
    *(
        "a: b: c\n",
        "|\n",
        ">-9\n",
        "!!python/object:os.system x\n",
        "!!binary a\n",
        "!<tag> x\n",
        "*x\n",
        "#\n",
    ),
    *(
        "\0",
        "\ufeff",
        "\u2028",
        "\x85",
        "\x1b[2J",
        "\ud7ff",
        "\r",
        "<<<<<<< ours\n",
        "=",
        "~",
        "\n\n",
        "a: 1\na: 2\n",
    ),
    *(
        "[" * 3000,
        "{a: " * 3000,
        "- " * 3000,
        "9" * 6000,
        "x" * 100_000,
        "1e999999",
        "0x" + "f" * 3000,
        "-.inf",
        ".nan",
    ),
    *(
        "2001-99-99",
        "1:30:00",
        "012",
        "{{ 1 }}",
        "{% for %}",
        "{{ params }}",
        "{{ env.x.y }}",
        "{% include 'x' %}",
        "`",
    ),
)
DEEP: Any = "x"
for _ in range(300):
    DEEP = [DEEP]
ODD_VALUES = (
    *(
        None,
        True,
        0,
        -1,
        10**400,
        1e308,
        float("inf"),
        float("nan"),
        "",
        " ",
        "x" * 5000,
        "a\nb",
        "../../x",
        "/etc/passwd",
    ),
    *(
        [],
        {},
        [None],
        {"": ""},
        {1: 2},
        {None: None},
        {"a": {"b": [{}]}},
        [[]],
        "é\u202e",
        "1.0.0.0",
        "no",
        "{{ x }}",
    ),
    *(
        "front",
        "gke",
        "mlstack.dev/v2",
        DEEP,
        ["front"] * 500,
        {str(number): number for number in range(500)},
        "[",
        "*",
    ),
)


def run(words: str, folder: Path, ports: Ports | None = None) -> tuple[int, str]:
    """Run a command line in the app, on clusters in memory, and give its exit code and what it said."""
    ports = ports or Runner(capsys=None).ports()  # type: ignore[arg-type]  # nothing is read back
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), chdir(folder / "demo"):
        code = main(shlex.split(words), ports=ports)
    return code, err.getvalue()


@cache
def tree() -> dict[str, bytes]:
    """Give an app of one component, a manifest and an environment, and its registry."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        app_dir = small_app(folder)
        generate(app_dir)
        write_tree(folder, OWN)
        app = folder / "demo/app.yaml"
        app.write_text(app.read_text().replace("params: {}\n", "") + RULES)
        for line in ("plan gke --out plan.json", "env snapshot gke", "registry index ../registry"):
            code, err = run(line, folder)
            assert code == 0, err
        return read_tree(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken")


@st.composite
def broken(draw: st.DrawFn, data: bytes) -> bytes:
    """Give a file that is not quite as it was: bytes, tokens, values or keys of it are others."""
    how = draw(st.sampled_from(["bytes", "token", "value", "value", "key", "cut"]))
    if how == "bytes":
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 12))
        return data[:at] + draw(st.binary(max_size=12)) + data[at + length :]
    if how == "cut":
        return data[: draw(st.integers(0, len(data)))]
    if how == "token":
        at = draw(st.sampled_from([place for place, byte in enumerate(data) if byte in b"\n :"] or [0]))
        return data[: at + 1] + draw(st.sampled_from(ODD_TOKENS)).encode() + data[at + 1 :]
    try:
        value = yaml.safe_load(data)
    except yaml.YAMLError:
        return data[::-1]
    places = list(_places(value))
    if not places:
        return yaml.safe_dump(draw(st.sampled_from(ODD_VALUES))).encode()
    holder, key = draw(st.sampled_from(places))
    if how == "value":
        holder[key] = draw(st.sampled_from(ODD_VALUES))
    elif isinstance(holder, dict):
        old = holder.pop(key)
        other = draw(st.sampled_from([*holder, "", "unknown", "apiVersion", "name", "0", "x" * 300]))
        holder[other] = old
    return yaml.safe_dump(value, sort_keys=False).encode()


def _places(value: Any) -> Any:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


@pytest.mark.parametrize("file", FILES)
@settings(max_examples=settings.default.max_examples // 12)  # an example is several commands
@given(data=st.data())
def test_every_command_works_or_says_what_is_wrong(folder: Path, file: str, data: st.DataObject) -> None:
    whole = {**tree()}
    content = data.draw(broken(whole.get(file, ENCRYPTED)))
    for line in FILES[file]:
        before = {**whole, file: content}
        restore_tree(folder, before)
        if "new/" in line:
            for earlier in ("registry index ../registry", "registry add new ../registry"):
                run(earlier, folder)
            if line.startswith("prototype "):
                run(f"pkg install new/{file.split('/')[1]}", folder)
            before = read_tree(folder)
        code, err = run(line, folder)
        assert code in (0, 1, 2, 3, 4, 5, 6, 7), (line, err)
        assert "internal fault" not in err
        assert "Traceback" not in err
        assert code in (0, 1, 7) or err.partition("\n")[0].startswith(
            ("error: ", "note: ", "warning: ", '{"error": ')
        ), err
        after = {path: text for path, text in read_tree(folder).items() if path != "demo/.mlstack/lock"}
        before.pop("demo/.mlstack/lock", None)
        assert not [path for path in after if path.endswith((".tmp", "~"))]
        if code not in (0, 1, 6, 7):
            assert after == before, (line, err)


def test_an_environment_with_an_encrypted_value_of_no_parameter_is_described(folder: Path) -> None:
    restore_tree(folder, {**tree(), SOPS: ENCRYPTED.replace(b"token", b"tokne")})
    for line in ("env describe gke", "env describe gke -o json", "env describe gke -o yaml"):
        assert run(line, folder) == (0, "")


@settings(max_examples=settings.default.max_examples // 12)
@given(content=broken(kubeconfig("gke", "minikube", current="gke", server="https://127.0.0.1:1").encode()))
def test_a_broken_kubeconfig_is_told(folder: Path, content: bytes) -> None:
    for line in ("env add new --context gke", "env list", "apply gke --dry-run", "doctor gke"):
        restore_tree(folder, {**tree(), "kubeconfig": content})
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
            code, err = run(line, folder, ports=Ports())
        assert code in (0, 1, 2, 3, 4, 6), (line, err)
        assert "internal fault" not in err
        assert "Traceback" not in err
