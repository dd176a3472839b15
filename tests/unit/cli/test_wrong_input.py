"""Wrong input: one clear message with its place and the next step, the right exit code, nothing written."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from mlstack.operations import app as env
from tests.support.builders import Tree, read_tree, write_tree
from tests.support.cli import Runner
from tests.support.kubectl import KUBECONFIG
from tests.support.registry import generate, small_app

ENV = "environments/prod/environment.yaml"
PARAMS = "environments/prod/params.yaml"
FRONT = "components/front.yaml"
HEAD = "apiVersion: mlstack.dev/v1\nkind: {}\n"
COMPONENT = HEAD.format("Component") + "prototype: web\nparams: {image: nginx}\n"
ENV_PARAMS = HEAD.format("EnvironmentParams")
OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
TEMPLATE = "vendor/ours/tools@1.2.0/web/templates/page.yaml.j2"
CONFLICT = "<<<<<<< ours\nname: a\n=======\nname: b\n>>>>>>> theirs\n"


# command line | exit code | first line after `error: ` | hint; names that lead to nothing, or cannot be any
NAMES = """
aply prod | 2 | no command `mlstack aply` | did you mean `mlstack apply`?
param sett front color red | 2 | no command `mlstack param sett` | did you mean `mlstack param set`?
render prdo | 4 | no environment `prdo` | did you mean `prod`?
render '' | 4 | no environment `` | there is prod; mlstack env add
apply '' | 4 | no environment `` | there is prod; mlstack env add
delete '' --yes | 4 | no environment `` | there is prod; mlstack env add
rollback '' 1 --yes | 4 | no environment `` | there is prod; mlstack env add
ls | 2 | no command `mlstack ls` | did you mean `mlstack component list`?
apply other.json | 4 | no environment `other.json` | mlstack plan ENV --out other.json
render other | 4 | no environment `other` | mlstack env add other
render prod -c frnt | 4 | no component or module `frnt` | did you mean `front`?
env list -o sarif | 2 | no output format `sarif` |
render prod -o jsno | 2 | no output format `jsno` | use `-o json`
apply prod -n Bad_NS | 2 | `Bad_NS` cannot be a namespace | use up to 63 lower-case letters
generate wep back | 4 | no installed package has a prototype `wep` | did you mean `web`?
generate web back | 2 | prototype `web` needs `image` | add --image=VALUE
generate web front --image x | 2 | there is a component `front` already (components/front.yaml) | --force
generate web ../x --image x | 2 | `../x` cannot be a component name | use up to 63 letters
generate web back. --image x | 2 | `back.` cannot be a component name | use up to 63 letters
generate web back --image x --imge y | 4 | prototype `web` has no parameter `imge` | did you mean `image`?
generate web back --image x --zzzz y | 4
    | prototype `web` has no parameter `zzzz` | mlstack prototype describe web
generate web back --image x --replicas many | 2 | `replicas` must be an integer, got "many" | --help
generate web Front --image x | 2 | a component `front` is there, and `Front` differs | on macOS
env add Prod | 2 | an environment `prod` is there, and `Prod` differs | choose another name
registry add Ours ../registry | 2 | a registry `ours` is there, and `Ours` differs | choose
component rename front ../x | 2 | `../x` cannot be a component name | use up to 63
component rename front .x | 2 | `.x` cannot be a component name | use up to 63
component rm frnt | 4 | no component `frnt` | did you mean `front`?
env add prod | 2 | there is an environment `prod` already | mlstack env describe prod
env add b --context minikub | 4 | the kubeconfig has no context `minikub` | did you mean `minikube`?
env add ../b | 2 | `..` cannot be an environment name | use up to 63
env add b --namespace B | 2 | `B` cannot be a namespace | use up to 63
env set prod --namespace B_c | 2 | `B_c` cannot be a namespace | use up to 63
env set prod --kubernetes-version 1.99 | 2
    | `kubernetesVersion` must be 1.30 to 1.37, got `1.99` | mlstack env set prod --kubernetes-version 1.36
env rm prdo | 4 | no environment `prdo` | did you mean `prod`?
pkg install ours/tols | 4 | registry `ours` has no package `tols` | did you mean `tools`?
pkg install our/tools | 4 | no registry `our` in app.yaml | did you mean `ours`?
pkg install tols | 4 | no registry has a package `tols` | did you mean `tools`?
pkg install ours | 4 | no registry has a package `ours` | `ours` is a registry: mlstack registry describe ours
registry index nothing | 4 | no folder `nothing` | relative paths start at
completion | 2 | missing argument 'SHELL'. Choose from: bash, zsh | mlstack completion --help
pkg install tools/ | 2 | `tools/` is not a package | write `registry/package`
pkg install ours/tools@9 | 4 | package `tools` has no version `9` | known versions: 1.2.0
pkg rm ours/tools | 2 | package `ours/tools` is used by `front` | mlstack component rm front
registry add x ../nothing | 5 | no folder `../nothing` for registry `x` | check the address
registry add x ftp://a/b | 5 | `ftp://a/b` is no address of a registry | give a folder, a git URL
registry describe our | 4 | no registry `our` | did you mean `ours`?
prototype describe wep | 4 | no installed package has a prototype `wep` | did you mean `web`?
prototype describe eb | 4 | no installed package has a prototype `eb` | did you mean `web`?
prototype describe ours/tools/wbe | 4 | package `ours/tools` has no prototype `wbe` | did you mean `web`?
prototype describe ours/tools@9/web | 4
    | no prototype `ours/tools@9/web`: package `ours/tools@9` is not installed | mlstack pkg install ours/
module create shop..cart | 2 | `shop..cart` cannot be a module name: a part of it is empty | single dots
init demo --dir . | 2 | there is an app at | choose another folder
--dir /nowhere render prod | 4 | no app directory at `/nowhere` or above | mlstack init NAME makes one
pkg rm ours/tolos | 4 | package `ours/tolos` is not installed | did you mean `ours/tools`?
pkg rm ours/base | 2 | package `ours/base` is required by `ours/tools` | mlstack pkg rm ours/tools
env add new --extends prdo | 4 | no environment `prdo` | did you mean `prod`?
env current --set prdo | 4 | no environment `prdo` | did you mean `prod`?
registry add ours ../elsewhere | 2 | `ours` is the registry ../registry already | choose another name
registry add 'no good' ../registry | 2 | `no good` cannot be | use up to 63
prototype list wbe | 4 | no prototype matches `wbe` | did you mean `web`?
prototype preview web | 2 | prototype `web` needs `image` | add --image=VALUE
generate web --image x | 2 | what is the component called | mlstack generate
"""
# values of the wrong type, out of range, for parameters that there are not
VALUES = """
param set front replica 2 | 4 | prototype `web` has no parameter `replica` | did you mean `replicas`?
param set front | 2 | `param set` takes [COMPONENT] KEY VALUE, got 1 word | mlstack param set cnn num_gpus 1
param set front replicas | 2 | `front` is a component: which of its parameters? | mlstack param list front
param set front replicas=2 | 2 | `replicas=2` is one word: | mlstack param set front replicas 2
param set front replicas x | 2 | `replicas` must be an integer, got "x" | mlstack prototype describe web
param set replicas x | 2 | `replicas` must be an integer, got "x" | mlstack prototype describe web
param set --env=prod replicas x | 2 | `replicas` must be an integer, got "x" | mlstack prototype describe web
param set replicsa 1 | 4 | no installed prototype has a parameter `replicsa` | did you mean `replicas`?
param set front a..b 1 | 2 | `a..b` is not a parameter's name | write num_gpus, or resources.limits.cpu
param set --module=m front replicas 1 | 2 | `--module` sets a value for all its components | leave out
param explain front replica | 4 | prototype `ours/tools/web` has no parameter `replica` | did you mean
param set front replicas 10 | 2 | `replicas` must be 0 to 9 pods, got 10 | mlstack prototype describe web
param set front replicas 99999999999999999999 | 2 | `replicas` must be an integer, got | describe web
param set front color blue | 2 | `color` must be one of `red`, `green`, got "blue" | describe web
param set front image '' | 2 | `image` must not be empty | mlstack prototype describe web
param set front image --file nothing | 4 | no file `nothing` | relative paths start at
param set front image --file components | 2 | cannot read `components`: is a directory | give a text file
param set --env=prdo front replicas 2 | 4 | no environment `prdo` | did you mean `prod`?
param set --module=m color red | 4 | no module `m` | mlstack module list
param list --module other --own | 4 | no module `other` | mlstack module list
param unset front color | 4 | `color` is not set for front | it comes from prototype ours/tools/web
generate web back --image x --replicas 10 | 2 | `replicas` must be 0 to 9 pods, got 10 | --help
generate web back --image x --color blue | 2 | `color` must be one of `red`, `green`, got "blue" | --help
generate web back --image x --color | 2 | `--color` needs a value | --color
generate web back --image x --tags a=1 --tags b=2 | 2 | `--tags` is given twice | --tags=ONE,TWO
generate web back --values /nowhere.yaml | 4 | no values file `/nowhere.yaml` | relative paths start at
env set prod --ttl 5 | 2 | `--ttl 5` has no unit | --ttl 5h
env set prod --allow-namespace 'Not One' | 2 | `Not One` cannot be a namespace | use up to 63
env set prod --extends '' | 2 | `extends` must match `^[a-zA-Z0-9] | mlstack env set --help
render prod --set color | 2 | `--set color` is not `key=value` | write --set
render prod --set frnt.color=red | 4 | no component has a parameter `frnt` (--set frnt.color) | did you
render prod --set colr=red | 4 | no component has a parameter `colr` (--set colr) | did you mean `color`?
render prod --set front.colr=red | 4
    | prototype `web` has no parameter `colr` (--set front.colr) | did you mean `color`?
render prod --set front=red | 2 | `front` is a component, no parameter (--set front) | --set front.PARAM=VALUE
render prod --set replicas=x | 2 | `replicas` must be an integer, got "x" (--set replicas) | --set replicas=1
render prod --values v.yaml | 4 | no values file `v.yaml` | relative paths start at
render prod --values components | 2
    | cannot read the values file `components`: is a directory | give a YAML file
"""
# The same, and the files of the app that are changed before: broken, of another kind, changed by hand; None
# removes one.
FILES: dict[str, dict[str, Any]] = {
    "generate web shop.params --image x | 2 | `shop.params` cannot be a component: its file is that of"
    " the module's parameters | choose another name": {
        "components/shop/params.yaml": HEAD.format("ModuleParams")
    },
    "generate web shop.Params --image x | 2 | `shop.Params` cannot be a component: its file is that of"
    " the module's parameters | choose another name": {
        "components/shop/params.yaml": HEAD.format("ModuleParams")
    },
    "generate web Shop.cart --image x | 2 | a module `shop` is there, and `Shop` differs from it in"
    " letter case alone | choose another name": {"components/shop/params.yaml": HEAD.format("ModuleParams")},
    "validate | 2 | which environment? There are other, prod | name one": {
        "environments/other/environment.yaml": HEAD.format("Environment")
    },
    "component rm front | 3 | `front` is the last target of `prod`; without one everything would be"
    " deployed (environments/prod/environment.yaml) | mlstack env targets prod NAME, or --all": {
        ENV: HEAD.format("Environment") + "targets: [front, front]\n",
        "components/back.yaml": OBJECT,
    },
    "component list | 3 | a file of kind `ModuleParams` is no component (components/params.yaml:1)"
    " | parameters of the whole app stand in app.yaml": {
        "components/params.yaml": HEAD.format("ModuleParams")
    },
    "component list | 4 | no installed package has a prototype `wbe` (components/back.yaml) | did you mean": {
        "components/back.yaml": HEAD.format("Component") + "prototype: wbe\n"
    },
    "param set plain replicas 1 | 2 | `plain` is a plain manifest, which has no parameters"
    " | or patch it in environments/ENV/patches/plain.yaml": {"components/plain.yaml": OBJECT},
    "param explain plain | 2 | `plain` is a plain manifest, which has no parameters"
    " | edit components/plain.yaml": {"components/plain.yaml": OBJECT},
    "render prod --values v.yaml | 4 | no component `other` (v.yaml:1) | mlstack component list": {
        "v.yaml": "components: {other: {color: red}}\n"
    },
    "render prod --values v.yaml | 3 | `front` is a component, no parameter (v.yaml:1)"
    " | components: {front:": {"v.yaml": "front: {color: red}\n"},
    'render prod --values v.yaml | 3 | `replicas` must be an integer, got "x" (v.yaml:3)'
    " | --set replicas=1": {"v.yaml": "components:\n  front:\n    replicas: x\n"},
    "render prod --values v.yaml | 3 | a values file is a map, got a list (v.yaml) |": {"v.yaml": "- a\n"},
    "render prod | 3 | `replicas` must be an integer, got a list (components/front.yaml:4)"
    " | mlstack param set front replicas 1": {FRONT: COMPONENT.replace("nginx", "nginx, replicas: [1]")},
    "render prod | 3 | prototype `web` has no parameter `imge` (components/front.yaml:4)"
    " | did you mean `image`?": {FRONT: COMPONENT.replace("image", "imge")},
    "render prod | 4 | no installed package has a prototype `wep` (components/front.yaml)"
    " | did you mean `web`?": {FRONT: COMPONENT.replace("web", "wep")},
    "render prod | 3 | `replicas` must be 0 to 9 pods, got 99 (environments/prod/params.yaml:5)"
    " | mlstack param set --env=prod front replicas 9": {
        PARAMS: ENV_PARAMS + "components:\n  front:\n    replicas: 99\n"
    },
    'render prod | 3 | `color` must be one of `red`, `green`, got "blue"'
    " (environments/prod/params.yaml:4) | mlstack param set --env=prod color": {
        PARAMS: ENV_PARAMS + "globals:\n  color: blue\n"
    },
    'render prod | 3 | `replicas` must be an integer, got "x" (app.yaml:5) | mlstack param set replicas 1': {
        "app.yaml": HEAD.format("App") + "name: demo\nparams:\n  replicas: x\n"
    },
    "render prod | 4 | no component `frnt` (environments/prod/params.yaml:4) | did you mean `front`?": {
        PARAMS: ENV_PARAMS + "components:\n  frnt: {replicas: 1}\n"
    },
    "render prod | 4 | no component `frnt` to patch (environments/prod/patches/frnt.yaml)"
    " | did you mean `front`?": {"environments/prod/patches/frnt.yaml": OBJECT},
    "render prod | 3 | `kind` must be `EnvironmentParams` in this file, got `Component`"
    " (environments/prod/params.yaml:2) |": {PARAMS: COMPONENT},
    "render prod | 3 | `apiVersion` is `mlstack.dev/v9`, which a newer mlstack wrote; this one reads"
    " `mlstack.dev/v1`: upgrade mlstack (environments/prod/params.yaml:1) |": {
        PARAMS: ENV_PARAMS.replace("v1", "v9")
    },
    "render prod | 3 | the file must be a map, got a list (environments/prod/params.yaml:1) |": {
        PARAMS: "- a\n"
    },
    "render prod | 3 | the file holds nothing (environments/prod/params.yaml) | fill it, or remove it": {
        PARAMS: ""
    },
    "render prod | 3 | broken YAML: did not find expected node content (environments/prod/params.yaml:4)"
    " | a value is missing here": {PARAMS: ENV_PARAMS + "globals: [\na: }\n"},
    "render prod | 3 | broken YAML: a tab cannot indent (environments/prod/params.yaml:4)"
    " | indent with spaces": {PARAMS: ENV_PARAMS + "globals:\n\ta: 1\n"},
    "render prod | 3 | `globals` is set twice (environments/prod/params.yaml:4) | keep one": {
        PARAMS: ENV_PARAMS + "globals: {}\nglobals: {}\n"
    },
    "render prod | 3 | broken YAML: control characters are not allowed (environments/prod/params.yaml:3)"
    " | remove control characters": {PARAMS: ENV_PARAMS + "globals: {color: a\0}\n"},
    "render prod | 3 | the file is not UTF-8 text (environments/prod/params.yaml:3) | save it as UTF-8": {
        PARAMS: ENV_PARAMS.encode() + b"globals: {color: \xe9}\n"
    },
    "render prod | 3 | the file is not UTF-8 text (environments/prod/params.yaml:1) | save it as UTF-8": {
        PARAMS: ENV_PARAMS.encode("utf-16")
    },
    "render prod | 3 | the file holds the marks of a merge conflict (app.yaml:3)"
    " | choose what shall stand there": {"app.yaml": HEAD.format("App") + CONFLICT},
    "pkg install ours/tools | 3 | the file holds the marks of a merge conflict (mlstack.lock:3)"
    " | git checkout --ours mlstack.lock": {"mlstack.lock": HEAD.format("Lock") + CONFLICT},
    "param set front color green | 3 | broken YAML: did not find expected node content"
    " (environments/prod/params.yaml:4) | a value is missing here": {
        PARAMS: ENV_PARAMS + "globals: [\na: }\n"
    },
    "param unset front image | 3 | broken YAML: did not find expected node content (app.yaml:4) |": {
        "app.yaml": HEAD.format("App") + "name: [\na: }\n"
    },
    "validate prod | 3 | `kubernetesVersion` must be 1.30 to 1.37, got `1.99`"
    " (environments/prod/environment.yaml) | mlstack env set prod --kubernetes-version 1.36": {
        ENV: HEAD.format("Environment") + 'kubernetesVersion: "1.99"\n'
    },
    "apply prod | 3 | environment `prod` names no kubectl context (environments/prod/environment.yaml)"
    " | mlstack env set prod --context CONTEXT": {ENV: HEAD.format("Environment")},
    "render prod | 3 | environments extend each other in a circle: prod → prod |": {
        ENV: HEAD.format("Environment") + "extends: prod\n"
    },
    "render prod | 4 | no prototype `ours/tools/web`: package `ours/tools` is not installed"
    " (components/front.yaml) | mlstack pkg install ours/tools": {"mlstack.lock": None},
    "render prod | 5 | the content of package `ours/tools@1.2.0` is not what mlstack.lock says"
    " | mlstack pkg install --force restores": {TEMPLATE: "a: 1\n"},
    "render prod | 3 | a document is no Kubernetes object: it has no `kind` (components/x.yaml:1)"
    " | give it apiVersion, kind": {"components/x.yaml": "apiVersion: v1\nmetadata: {name: a}\n"},
    "render prod | 3 | `kind` must be `Component` in this file, got `Componnet` (components/x.yaml:2) |": {
        "components/x.yaml": HEAD.format("Componnet") + "prototype: web\n"
    },
    "render prod | 3 | component `x`: a mapping or a list cannot be a key (components/x.yaml:1)"
    " | helm template": {"components/x.yaml": "kind: {{ .Values.kind }}\n"},
    "render prod | 3 | component `x` brings `ConfigMap default/a` twice (components/x.yaml:1 and"
    " components/x.yaml:5) | rename or remove one": {"components/x.yaml": f"{OBJECT}---\n{OBJECT}"},
}


@cache
def app_tree() -> Tree:
    with TemporaryDirectory() as folder:
        app = small_app(Path(folder))
        env.add_environment(app, "prod", kubeconfig=KUBECONFIG, use_preset=False)
        generate(app)
        return read_tree(Path(folder))


@pytest.fixture
def app(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an app with one component and one environment, and stand in it."""
    root = write_tree(tmp_path, app_tree()) / "demo"
    monkeypatch.chdir(root)
    return root


FOLDERS = [
    f"{line}{name} | 2 | `{name}` cannot be an environment name: `{part}` in an environment's folder | choose"
    for part in ("patches", "Patches", "params.yaml", "environment.yaml")
    for name in (f"prod/{part}", f"prod/{part}/eu")
    for line in ("env add ", "env set prod --name ")
]
LINES = (NAMES + VALUES).replace("\n    |", " |").splitlines()
CASES = {**{case: {} for case in (*LINES, *FOLDERS) if case}, **FILES}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[:90])
def test_one_message_with_place_and_next_step_and_nothing_is_written(
    app: Path, run: Runner, tmp_path: Path, case: str
) -> None:
    line, code, message, hint = (part.strip() for part in f"{case} ".split(" | "))
    for name, content in CASES[case].items():
        (app / name).unlink(missing_ok=True)
        if content is not None:
            write_tree(app, {name: content})
    before = read_tree(tmp_path)
    ran = run(line)
    first, *others = ran.err.splitlines()
    assert (ran.code, ran.out) == (int(code), "")
    assert first.startswith(f"error: {message}")
    assert hint in "\n".join(others)
    assert all(other.startswith(("hint: ", "      ", "  ")) for other in others)
    assert "internal fault" not in ran.err
    assert read_tree(tmp_path) == before


def test_bytes_that_are_no_text_are_refused_as_a_value(app: Path, run: Runner) -> None:
    ran = run("param set front color a\udcff")  # as Python hands on what is no UTF-8
    assert ran.code == 2
    assert ran.err.startswith(
        "error: `color` holds the control character U+DCFF, which no object can carry\n"
    )
