"""What the app deploys: `component`, `module`, `param`, `explain`, and `import` of what others wrote."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlstack.cli.main import DashedValueCommand, Family, ListingGroup
from mlstack.cli.options import (
    ENV_OPTION,
    GIVEN,
    component_and_parameter,
    components,
    environments,
    modules,
    option,
    parameter_and_value,
    parameters,
    word,
)
from mlstack.cli.page import emit
from mlstack.cli.ports import Session, operations, read_text
from mlstack.errors import MlstackError, UsageError

if TYPE_CHECKING:
    from mlstack.app.app_dir import AppDir
    from mlstack.app.params import ParamScope

component = Family("component", "Components: prototypes used under a name, and plain manifests.")
module = Family("module", "Modules: folders of components, with parameters of their own.")

KNOWN = word("NAME", "The component.", components)

IN_ENV = option("--env ENV", "In this environment alone.", environments)
MINE = option("--override", "For you alone, in --env ENV: a value that git does not see.")
OF_MODULE = option("--module NAME", "For all components of this module.")
VALUE_FILE = option("--file -f FILE", "Read the value from a file; `-` is stdin.")
TO_MODULE = option("--module NAME", "The module the components go to.")
AS_PROTOTYPE = option(
    "--as-prototype", "Make prototypes in packages/ with parameters: what varies, images, replicas."
)
KEEP_PROOF = option("--keep-proof DIR", "Write the objects before and after there.")
FORCE = option("--force", "Replace components of the same name.")
KSONNET_APP = word("DIR", "The folder with ksonnet's app.yaml; nothing is written into it.")
NEW_APP = option(
    "--out DIR", "The folder of the new app. Default: the app here, else one called as ksonnet's."
)


@component.command("list", examples=["", "--module serving --kinds"])
def list_components(
    session: Session,
    module: str | None = option("--module NAME", "Only those of this module and the ones in it.", modules),
    kinds: bool = option("--kinds", "Show the kinds of the objects that each brings."),
    environment: str | None = ENV_OPTION,
) -> object:
    """List the components of the app."""
    module = module and module.replace("/", ".")
    return session.call(operations.components.list_components, module=module)


@component.command(examples=["cnn mnist", "cnn training.cnn"])
def rename(
    session: Session,
    old: str = word("OLD", "The component.", components),
    new: str = word("NEW", "Its new name; `a.b` puts it into the module `a`."),
) -> object:
    """Give a component another name; its objects keep theirs, and no apply deletes them."""
    return operations.components.rename_component(session.app, old, new)


@component.command("rm", takes="kubeconfig folder output", examples=["cnn"])
def remove_component(session: Session, name: str = KNOWN) -> object:
    """Remove a component and what environments say about it; warns where it is still deployed."""
    return operations.components.remove_component(session.app, name, opener=session.opener())


@module.command(examples=["serving", "serving.canary"])
def create(session: Session, name: str = word("NAME", "The module; `a.b` is one in another.")) -> object:
    """Make a module: a folder of components with parameters of its own."""
    return operations.components.create_module(session.app, name)


@module.command("list")
def list_modules(session: Session) -> object:
    """List the modules of the app."""
    return operations.components.list_modules(session.app)


@module.command("rm", takes="kubeconfig folder output", examples=["serving --components"])
def remove_module(
    session: Session,
    name: str = word("NAME", "The module; `a.b` is one in another.", modules),
    with_components: bool = option("--components", "Remove its components too."),
) -> object:
    """Remove a module with its parameters and the modules in it."""
    return session.call(operations.components.remove_module)


# --- parameters ---

top = Family()
param = Family("param", "Parameters, at every level of an app.")


@param.command(
    "set",
    cls=DashedValueCommand,
    examples=[
        "--env=gke cnn num_gpus 1",
        "--env=gke accelerator nvidia-l4",
        "cnn extra_args --forward_only=true",
        "cnn labels.team vision",
        "--env=gke cnn batch_size 8 --override",
        "cnn 'args[0]' --verbose",
    ],
)
def set_(
    session: Session,
    words: Sequence[str] = word(
        "[COMPONENT] KEY VALUE",
        "Dots reach into maps, [0] into lists. Without a component, a value for all.",
        parameter_and_value,
    ),
    environment: str | None = IN_ENV,
    module: str | None = OF_MODULE,
    personal: bool = MINE,
    as_string: bool = option("--as-string", "Store the text as it is, without reading a type."),
    file: Path | None = VALUE_FILE,
    resolve_image: bool = option("--resolve-image", "Pin an image to the digest that its tag has now."),
) -> object:
    """Set a parameter; only the value changes in the file."""
    words = [*words, *([read_text(file)] if file is not None else [])]
    place, (key, text) = _scope(session, words, 2, "set", "KEY VALUE", "num_gpus 1")
    name, equals, value = text.partition("=")
    if equals and place.component is None and key in session.app.component_files:
        hint = f"mlstack param set {key} {name} {value}"
        raise UsageError(f"`{text}` is one word: a parameter and its value are two", hint=hint)
    return session.call(operations.params.set_param, place=place, key=key, text=text)


@param.command("delete", hidden=True, examples=["cnn num_gpus"])
@param.command(examples=["--env=gke cnn num_gpus", "cloud"])
def unset(
    session: Session,
    words: Sequence[str] = word(
        "[COMPONENT] KEY",
        "Without a component, a value for all: of the app, a module or an environment.",
        component_and_parameter,
    ),
    environment: str | None = IN_ENV,
    module: str | None = OF_MODULE,
    personal: bool = MINE,
) -> object:
    """Take a value back, so that the next lower level counts again."""
    place, (key,) = _scope(session, words, 1, "unset", "KEY", "num_gpus")
    return operations.params.unset_param(session.app, place, key)


def _scope(
    session: Session, words: Sequence[str], least: int, verb: str, takes: str, example: str
) -> tuple[ParamScope, Sequence[str]]:
    """Give the level of the app that is meant, and the words behind the component, if one is named."""
    from mlstack.app.params import ParamScope

    if len(words) not in (least, least + 1):
        count = "1 word" if len(words) == 1 else f"{len(words)} words"
        hint = f"mlstack param {verb} cnn {example}"
        raise UsageError(f"`param {verb}` takes [COMPONENT] {takes}, got {count}", hint=hint)
    component = words[0] if len(words) > least else None
    return session.filled(ParamScope, component=component), words[-least:]


@param.command(
    "list", takes=f"{GIVEN} folder output", examples=["", "cnn --env gke -o json", "--own --env gke"]
)
def list_(
    session: Session,
    component: str | None = word("[COMPONENT]", "Only this component.", components),
    environment: str | None = ENV_OPTION,
    set_only: bool = option("--set-only", "Leave out the defaults of prototypes."),
    own: bool = option(
        "--own --without-modules",
        "Only what this level itself sets: of the app, --module, COMPONENT, --env or both of these.",
    ),
    module: str | None = option("--module NAME", "Only components of this module."),
) -> object:
    """List the values that a render would use, and where each one was set."""
    if own and session.overrides:
        hint = "leave out --own, or --set and --values"
        raise UsageError("`--own` lists what files set, not what is given for one run", hint=hint)
    return session.call(operations.params.list_own_params if own else operations.params.list_params)


@param.command(takes="components exit_code folder output", examples=["minikube gke -c cnn"])
def diff(
    session: Session,
    first: str = word("ENV1", None, environments),
    second: str = word("ENV2", None, environments),
    exit_code: bool = option("--exit-code", "Exit with 1 when something differs."),
) -> int:
    """Show the parameters that differ between two environments."""
    result = session.call(operations.params.diff_params)
    emit(result, session.options.output)
    return 1 if exit_code and result.rows else 0


@param.command(takes="components folder output", examples=["", "-c cnn -o json"])
def lint(session: Session) -> object:
    """Find values and patches that change no object in any environment; exits with 1 when there are some."""
    return session.call(operations.explain.lint_params)


@param.command(
    takes=f"{GIVEN} folder output", examples=["cnn num_gpus --env gke", "web 'env[0].value' --env gke"]
)
def explain(
    session: Session,
    component: str = word("COMPONENT", "The component.", components),
    parameter: str | None = word(
        "[PARAM]", "One parameter, or a place inside it. Default: all that are set.", parameters
    ),
    environment: str | None = ENV_OPTION,
) -> object:
    """Show where a value comes from, level by level, and which fields of the objects it reaches."""
    return session.call(operations.explain.explain_param)


@top.command(
    "explain",
    takes=f"{GIVEN} folder output",
    examples=["deployment/web spec.replicas --env gke", "configmap/settings data.level --env gke"],
)
def explain_field(
    session: Session,
    name: str = word("KIND/NAME", "The object."),
    field: str = word("FIELD", "The path of a field in it, as a diff writes it."),
    env: str | None = option("--env ENV", "The environment. Default: the one chosen.", environments),
) -> object:
    """Show where a field of an object comes from: template line, patch, parameters and who set them."""
    return session.call(operations.explain.explain_field, environment=session.environment(env))


# --- import ---


class ImportGroup(ListingGroup):
    """A group that takes files where no command is named: `import web.yaml` is `import files web.yaml`."""

    default = "files"


imports = Family(
    "import",
    "Take over what exists: `import FILE` takes manifests, the commands below what tools write.",
    cls=ImportGroup,
)


@imports.command(
    examples=[
        "mlstack import deployment.yaml",
        "mlstack import manifests/ --module legacy",
        "mlstack import base/ --env gke=gke/ --env minikube=minikube/",
        "mlstack import - --name web < web.yaml",
    ]
)
def files(
    session: Session,
    places: Sequence[str] = word("FILE|DIR|URL|-...", "Manifests in YAML or JSON; `-` reads standard input."),
    env: Sequence[str] = option(
        "--env NAME=FILE|DIR", "The same as an environment has it: what differs becomes patches; repeatable."
    ),
    module: str = TO_MODULE,
    name: str | None = option("--name NAME", "What the only component is called. Default: its file's name."),
    split: bool = option("--split", "One component an object, not one a file."),
    as_prototype: bool = AS_PROTOTYPE,
    replace: bool = FORCE,
) -> object:
    """Make components of manifests; their text and comments stay as they are."""
    environments = tuple(_pairs(env, "--env NAME=DIR"))
    request = session.filled(operations.imports.ManifestsRequest, environments=environments)
    return operations.imports.import_manifests(session.app, request)


@imports.command(
    "ksonnet-app",
    takes="folder output kubeconfig",
    examples=["../my-kubeflow", "../my-kubeflow --env gke --out my-kubeflow --keep-proof proof"],
)
def ksonnet_app(
    session: Session,
    source: Path = KSONNET_APP,
    out: Path | None = NEW_APP,
    environments: Sequence[str] = option("--env NAME", "Only this environment; repeatable."),
    ext_str: Sequence[str] = option(
        "--ext-str NAME=VALUE", "An external variable of the Jsonnet; repeatable."
    ),
    jpath: Sequence[Path] = option(
        "--jpath -J DIR", "A further folder that Jsonnet may import from; repeatable."
    ),
    sets: Sequence[str] = option(
        "--set COMPONENT.KEY=VALUE", "A parameter that the app leaves unset; repeatable."
    ),
    convert: bool = option("--convert", "Rewrite objects of API versions that no server serves any more."),
    as_prototype: bool = AS_PROTOTYPE,
    modernise: bool = option(
        "--modernise", "After the proof, use today's prototypes where a component only called an old one."
    ),
    keep_proof: Path | None = KEEP_PROOF,
    replace: bool = FORCE,
) -> object:
    """Import an app of ksonnet: plain manifests, patches, and the proof that its objects stay equal."""
    from mlstack.importers.ksonnet import ComposeOptions

    settings = ComposeOptions(
        ext_vars=dict(_pairs(ext_str, "--ext-str NAME=VALUE")), jpath=tuple(jpath), params=_params(sets)
    )
    request = session.filled(operations.imports.KsonnetRequest, options=settings)
    try:
        kubeconfig = session.ports.kubeconfig(session.options.kubeconfig)
    except MlstackError:
        if session.options.kubeconfig:
            raise
        kubeconfig = None  # the environments get no context, which is told
    return operations.imports.import_ksonnet(request, _target(session, source, out), kubeconfig=kubeconfig)


@imports.command(
    "helm",
    takes="folder output kubeconfig",
    examples=[
        "./chart --name web --values values.yaml --values prod=values-prod.yaml",
        "redis --repo https://charts.example.com --version 20.0.0",
        "--live web --env prod --adopt",
    ],
)
def helm(
    session: Session,
    chart: str | None = word(
        "[CHART]",
        "A folder, an archive, an address, NAME/CHART of helm's repositories, or a name with --repo.",
    ),
    repo: str = option("--repo ADDRESS", "The chart repository."),
    version: str = option("--version VERSION", "The chart's version. Default: the newest."),
    live: str = option(
        "--live RELEASE", "Take what a release in the cluster has applied, without its chart."
    ),
    name: str = option("--name NAME", "Of release and component. Default: the chart's, the release's."),
    namespace: str = option("--namespace -n NAME", "Where the release is. Default: the environment's."),
    environments: Sequence[str] = option(
        "--env NAME", "Only for this environment; repeatable. Default: all of the app."
    ),
    values: Sequence[str] = option("--values [ENV=]FILE", "Values for all environments or one; repeatable."),
    sets: Sequence[str] = option("--set KEY=VALUE", "A value for all environments; repeatable."),
    hooks: bool = option("--hooks", "Keep the hooks of an install, in the order of their weights."),
    adopt: bool = option("--adopt", "Mark the objects: the next apply takes them over from Helm."),
    module: str = TO_MODULE,
    keep_proof: Path | None = KEEP_PROOF,
    replace: bool = FORCE,
) -> object:
    """Import what a chart renders, or a live release: a plain manifest, patches, and the proof."""
    from mlstack.registries.helm import ChartSource

    if bool(chart) == bool(live):
        raise UsageError("which chart?", hint="mlstack import helm CHART, or --live RELEASE")
    request = session.filled(
        operations.imports.HelmRequest,
        chart=ChartSource(place=chart, repository=repo, version=version) if chart else None,
        environments=environments or ((session.environment(None),) if live else ()),
        values=tuple(_owned(session, text) for text in values),
    )
    return operations.imports.import_helm(session.app, request, opener=session.opener() if live else None)


def _owned(session: Session, text: str) -> tuple[str, Path]:
    """Read `FILE`, or `ENV=FILE` where the app has such an environment."""
    owner, equals, file = text.partition("=")
    if equals and owner in session.app.environment_names:
        return owner, Path(file)
    return "", Path(text)


@imports.command(
    "kustomize",
    takes="folder output",
    examples=["../manifests/web", "https://github.com/example/app//config/default@v1.2.0 --name app"],
)
def kustomize(
    session: Session,
    source: str = word(
        "DIR|URL@REF", "A folder with a base and overlays/, or somebody else's kustomization."
    ),
    name: str = option("--name NAME", "What the component is called. Default: the folder's name."),
    keep: bool = option("--keep", "Of a folder: keep it, and let kustomize build it at each render."),
    update: bool = option("--update", "Take somebody else's as it is now, in place of what is locked."),
    module: str = TO_MODULE,
    keep_proof: Path | None = KEEP_PROOF,
    replace: bool = FORCE,
) -> object:
    """Import a kustomization: a folder as a manifest with patches, another's as a copy in vendor/."""
    is_remote = "://" in source or source.startswith(("git@", "github.com/"))
    if keep and not is_remote:  # typed where we stand, written as seen from the app
        source = os.path.relpath(Path(source).resolve(), session.app.root.resolve())
    if keep or is_remote:
        return session.call(operations.imports.refer_to_kustomization, source=source)
    request = session.filled(operations.imports.HelmRequest)
    return operations.imports.import_kustomization(session.app, Path(source), request)


def _target(session: Session, source: Path, out: Path | None) -> AppDir | Path:
    """Give the app that is imported to: the one here, or the folder of a new one."""
    from mlstack.app.layout import find_root
    from mlstack.importers.ksonnet import is_app, read_app

    start = session.options.folder or session.folder
    root = find_root(start or Path.cwd())
    if out is None and root is not None and not is_app(root):
        return session.app
    if folder := out or start:
        return folder
    name = read_app(source).name
    here = Path.cwd().resolve()
    inside = here.is_relative_to(source.resolve())
    return source.resolve().parent / f"{name}-mlstack" if inside else Path(name)


def _pairs(words: Sequence[str], form: str) -> list[tuple[str, str]]:
    pairs = []
    for text in words:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"`{text}` is not {form.partition(' ')[2]}", hint=f"write {form}")
        pairs.append((name, value))
    return pairs


def _params(words: Sequence[str]) -> dict[str, dict[str, object]]:
    """Read `COMPONENT.KEY=VALUE` words; values are YAML, the component's name may hold dots."""
    from mlstack.yaml.write import resolve_plain

    params: dict[str, dict[str, object]] = {}
    for name, value in _pairs(words, "--set COMPONENT.KEY=VALUE"):
        component, dot, key = name.rpartition(".")
        if not dot:
            raise UsageError(f"`{name}={value}` names no component", hint="write --set COMPONENT.KEY=VALUE")
        params.setdefault(component, {})[key] = resolve_plain(value)
    return params
