"""`import`: what others wrote becomes components of the app; `upgrade`: what an older mlstack wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mlstack.cli.main import ListingGroup, family
from mlstack.cli.options import option, word
from mlstack.cli.ports import Session
from mlstack.errors import MlstackError, UsageError

if TYPE_CHECKING:
    from mlstack.app.app_dir import AppDir


class ImportGroup(ListingGroup):
    """A group that takes files where no command is named: `import web.yaml` is `import files web.yaml`."""

    default = "files"


imports = family(
    "Take over what exists: `import FILE` takes manifests, the commands below what tools write.",
    cls=ImportGroup,
)

top = family()


@top.command(
    examples=["mlstack upgrade --dry-run", "mlstack upgrade"],
    dry_run=option("--dry-run", "Say what would change; write nothing."),
)
def upgrade(session: Session, dry_run: bool = False) -> object:
    """Bring the files of the app up to date with this mlstack; nothing else rewrites them."""
    from mlstack.app.layout import find_root
    from mlstack.operations import doctor

    start = session.options["folder"] or session.folder or Path.cwd()
    return doctor.upgrade(find_root(start) or session.app.root, dry_run=dry_run)


MODULE = option("--module NAME", "The module the components go to.")
AS_PROTOTYPE = option(
    "--as-prototype", "Make prototypes in packages/ with parameters: what varies, images, replicas."
)
KEEP_PROOF = option("--keep-proof DIR", "Write the objects before and after there.")
FORCE = option("--force", "Replace components of the same name.")


@imports.command(
    examples=[
        "mlstack import deployment.yaml",
        "mlstack import manifests/ --module legacy",
        "mlstack import base/ --env gke=gke/ --env minikube=minikube/",
        "mlstack import - --name web < web.yaml",
    ],
    places=word("FILE|DIR|URL|-...", "Manifests in YAML or JSON; `-` reads standard input."),
    env=option(
        "--env NAME=FILE|DIR", "The same as an environment has it: what differs becomes patches; repeatable."
    ),
    module=MODULE,
    name=option("--name NAME", "What the only component is called. Default: its file's name."),
    split=option("--split", "One component an object, not one a file."),
    as_prototype=AS_PROTOTYPE,
    force=FORCE,
)
def files(
    session: Session,
    places: list[str],
    env: list[str] | None = None,
    module: str = "",
    name: str | None = None,
    split: bool = False,
    as_prototype: bool = False,
    force: bool = False,
) -> object:
    """Make components of manifests; their text and comments stay as they are."""
    from mlstack.operations import imports

    request = imports.ManifestsRequest(
        places=tuple(places),
        environments=tuple(_pairs(env, "--env NAME=DIR")),
        module=module,
        name=name,
        split=split,
        as_prototype=as_prototype,
        replace=force,
    )
    return imports.import_manifests(session.app, request)


@imports.command(
    "ksonnet-app",
    takes="folder output kubeconfig",
    examples=[
        "mlstack import ksonnet-app ../my-kubeflow",
        "mlstack import ksonnet-app ../my-kubeflow --env gke --out my-kubeflow --keep-proof proof",
    ],
    source=word("DIR", "The folder with ksonnet's app.yaml; nothing is written into it."),
    out=option(
        "--out DIR", "The folder of the new app. Default: the app here, else one called as ksonnet's."
    ),
    env=option("--env NAME", "Only this environment; repeatable."),
    ext_str=option("--ext-str NAME=VALUE", "An external variable of the Jsonnet; repeatable."),
    jpath=option("--jpath -J DIR", "A further folder that Jsonnet may import from; repeatable."),
    sets=option("--set COMPONENT.KEY=VALUE", "A parameter that the app leaves unset; repeatable."),
    convert=option("--convert", "Rewrite objects of API versions that no server serves any more."),
    as_prototype=AS_PROTOTYPE,
    modernise=option(
        "--modernise", "After the proof, use today's prototypes where a component only called an old one."
    ),
    keep_proof=KEEP_PROOF,
    force=FORCE,
)
def ksonnet_app(
    session: Session,
    source: Path,
    out: Path | None = None,
    env: list[str] | None = None,
    ext_str: list[str] | None = None,
    jpath: list[Path] | None = None,
    sets: list[str] | None = None,
    convert: bool = False,
    as_prototype: bool = False,
    modernise: bool = False,
    keep_proof: Path | None = None,
    force: bool = False,
) -> object:
    """Import an app of ksonnet: plain manifests, patches, and the proof that its objects stay equal."""
    from mlstack.importers.compose import Options
    from mlstack.operations import imports

    options = Options(
        ext_vars=dict(_pairs(ext_str, "--ext-str NAME=VALUE")), jpath=tuple(jpath or ()), params=_params(sets)
    )
    request = imports.KsonnetRequest(
        source=source,
        environments=tuple(env or ()),
        options=options,
        convert=convert,
        as_prototype=as_prototype,
        modernise=modernise,
        keep_proof=keep_proof,
        replace=force,
    )
    try:
        kubeconfig = session.ports.kubeconfig(session.options["kubeconfig"])
    except MlstackError:
        if session.options["kubeconfig"]:
            raise
        kubeconfig = None  # the environments get no context, which is told
    return imports.import_ksonnet(request, _target(session, source, out), kubeconfig=kubeconfig)


@imports.command(
    "helm",
    takes="folder output kubeconfig",
    examples=[
        "mlstack import helm ./chart --name web --values values.yaml --values prod=values-prod.yaml",
        "mlstack import helm redis --repo https://charts.example.com --version 20.0.0",
        "mlstack import helm --live web --env prod --adopt",
    ],
    chart=word(
        "[CHART]",
        "A folder, an archive, an address, NAME/CHART of helm's repositories, or a name with --repo.",
    ),
    repo=option("--repo ADDRESS", "The chart repository."),
    version=option("--version VERSION", "The chart's version. Default: the newest."),
    live=option("--live RELEASE", "Take what a release in the cluster has applied, without its chart."),
    name=option("--name NAME", "Of release and component. Default: the chart's, the release's."),
    namespace=option("--namespace -n NAME", "Where the release is. Default: the environment's."),
    env=option("--env NAME", "Only for this environment; repeatable. Default: all of the app."),
    values=option("--values [ENV=]FILE", "Values for all environments or one; repeatable."),
    sets=option("--set KEY=VALUE", "A value for all environments; repeatable."),
    hooks=option("--hooks", "Keep the hooks of an install, in the order of their weights."),
    adopt=option("--adopt", "Mark the objects: the next apply takes them over from Helm."),
    module=MODULE,
    keep_proof=KEEP_PROOF,
    force=FORCE,
)
def helm(
    session: Session,
    chart: str | None = None,
    repo: str = "",
    version: str = "",
    live: str = "",
    name: str = "",
    namespace: str = "",
    env: list[str] | None = None,
    values: list[str] | None = None,
    sets: list[str] | None = None,
    hooks: bool = False,
    adopt: bool = False,
    module: str = "",
    keep_proof: Path | None = None,
    force: bool = False,
) -> object:
    """Import what a chart renders, or a live release: a plain manifest, patches, and the proof."""
    from mlstack.importers.helm import ChartSource
    from mlstack.operations import imports

    if bool(chart) == bool(live):
        raise UsageError("which chart?", hint="mlstack import helm CHART, or --live RELEASE")
    environments = tuple(env or ())
    if live and not environments:
        environments = (session.environment(None),)
    request = imports.HelmRequest(
        chart=ChartSource(place=chart, repository=repo, version=version) if chart else None,
        live=live,
        name=name,
        namespace=namespace,
        environments=environments,
        values=tuple(_owned(session, text) for text in values or ()),
        sets=tuple(sets or ()),
        hooks=hooks,
        adopt=adopt,
        module=module,
        keep_proof=keep_proof,
        replace=force,
    )
    return imports.import_helm(session.app, request, opener=session.opener() if live else None)


def _owned(session: Session, text: str) -> tuple[str, Path]:
    """Read `FILE`, or `ENV=FILE` where the app has such an environment."""
    owner, equals, file = text.partition("=")
    if equals and owner in session.app.environment_names:
        return owner, Path(file)
    return "", Path(text)


@imports.command(
    "kustomize",
    takes="folder output",
    examples=[
        "mlstack import kustomize ../manifests/web",
        "mlstack import kustomize https://github.com/example/app//config/default@v1.2.0 --name app",
    ],
    source=word("DIR|URL@REF", "A folder with a base and overlays/, or somebody else's kustomization."),
    name=option("--name NAME", "What the component is called. Default: the folder's name."),
    keep=option("--keep", "Of a folder: keep it, and let kustomize build it at each render."),
    update=option("--update", "Take somebody else's as it is now, in place of what is locked."),
    module=MODULE,
    keep_proof=KEEP_PROOF,
    force=FORCE,
)
def kustomize(
    session: Session,
    source: str,
    name: str = "",
    keep: bool = False,
    update: bool = False,
    module: str = "",
    keep_proof: Path | None = None,
    force: bool = False,
) -> object:
    """Import a kustomization: a folder as a manifest with patches, another's as a copy in vendor/."""
    from mlstack.operations import imports

    is_remote = "://" in source or source.startswith(("git@", "github.com/"))
    if keep and not is_remote:  # typed where we stand, written as seen from the app
        source = os.path.relpath(Path(source).resolve(), session.app.root.resolve())
    if keep or is_remote:
        return imports.refer_to_kustomization(
            session.app, source, name=name, module=module, replace=force, update=update
        )
    request = imports.HelmRequest(name=name, module=module, keep_proof=keep_proof, replace=force)
    return imports.import_kustomization(session.app, Path(source), request)


def _target(session: Session, source: Path, out: Path | None) -> AppDir | Path:
    """Give the app that is imported to: the one here, or the folder of a new one."""
    from mlstack.app.layout import find_root
    from mlstack.importers.ksonnet import is_app, read_app

    start = session.options["folder"] or session.folder
    root = find_root(start or Path.cwd())
    if out is None and root is not None and not is_app(root):
        return session.app
    if folder := out or start:
        return folder
    name = read_app(source).name
    here = Path.cwd().resolve()
    inside = here.is_relative_to(source.resolve())
    return source.resolve().parent / f"{name}-mlstack" if inside else Path(name)


def _pairs(words: list[str] | None, form: str) -> list[tuple[str, str]]:
    pairs = []
    for text in words or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"`{text}` is not {form.partition(' ')[2]}", hint=f"write {form}")
        pairs.append((name, value))
    return pairs


def _params(words: list[str] | None) -> dict[str, dict[str, object]]:
    """Read `COMPONENT.KEY=VALUE` words; values are YAML, the component's name may hold dots."""
    from mlstack.yaml.scalars import resolve_plain

    params: dict[str, dict[str, object]] = {}
    for name, value in _pairs(words, "--set COMPONENT.KEY=VALUE"):
        component, dot, key = name.rpartition(".")
        if not dot:
            raise UsageError(f"`{name}={value}` names no component", hint="write --set COMPONENT.KEY=VALUE")
        params.setdefault(component, {})[key] = resolve_plain(value)
    return params
