"""`init`, and `env add, list, describe, set, rm, current`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from mlstack.app.app import Environment
from mlstack.app.declare import FileKey, keys_of
from mlstack.cli.main import family
from mlstack.cli.options import ENV, components, environments, option, presets, word
from mlstack.cli.ports import Session

top = family()
env = family("Environments: kubectl contexts and namespaces that components are deployed to.")


@top.command(
    takes="output",
    examples=["mlstack init my-kubeflow && cd my-kubeflow"],
    name=word("NAME", "The app's name, and that of its new folder."),
    folder=option("--dir DIR", "The folder to make. Default: NAME, here."),
    skip_default_registries=option(
        "--skip-default-registries", "Name no registry, not even the bundled one."
    ),
)
def init(
    session: Session, name: str, folder: Path | None = None, skip_default_registries: bool = False
) -> object:
    """Create an app directory; needs no network and no cluster."""
    from mlstack.operations import app

    place = folder or (session.folder or Path()) / name
    return app.init(place, name, default_registry=not skip_default_registries)


@env.command(
    takes="kubeconfig folder output",
    examples=["mlstack env add minikube", "mlstack env add staging --context gke-staging -n ml"],
    name=word("ENV", "Its name, and that of a preset.", presets),
    context=option("--context NAME", "The kubectl context. Default: the current one."),
    namespace=option("--namespace -n NAME", "The namespace to deploy to."),
    extends=option("--extends ENV", "The environment whose values lie below.", environments),
    no_preset=option("--no-preset", "Take no values from the preset of that name."),
)
def add(
    session: Session,
    name: str,
    context: str | None = None,
    namespace: str | None = None,
    extends: str | None = None,
    no_preset: bool = False,
) -> object:
    """Add an environment from a kubectl context; the cluster is not contacted."""
    from mlstack.operations import app

    return app.add_environment(
        session.app,
        name,
        kubeconfig=session.ports.kubeconfig(session.options["kubeconfig"]),
        context=context,
        namespace=namespace,
        extends=extends,
        use_preset=not no_preset,
    )


@env.command("list", examples=["mlstack env list -o json"])
def list_(session: Session) -> object:
    """List the environments of the app."""
    from mlstack.operations import app

    return app.list_environments(session.app)


@env.command(examples=["mlstack env describe gke"], name=ENV)
def describe(session: Session, name: str) -> object:
    """Show one environment, with what it inherits and the parameters it sets."""
    from mlstack.operations import app

    return app.describe_environment(session.app, name)


# Options of `env set` that are spelled otherwise than the key of environment.yaml that they set.
_SPELLED = {
    "context": "--context NAME",
    "namespace": "--namespace -n NAME",
    "kubernetes_version": "--kubernetes-version X.Y",
    "targets": "--target NAME",
    "protected": "--protected/--unprotected",
    "allowed_namespaces": "--allow-namespace NAME",
}
_SETTABLE = [
    key
    for key in keys_of(Environment)
    if key.name not in ("extends", "cluster") and key.schema.get("type") != "object"
]


def _emptied(key: FileKey) -> str:
    return f"all_{key.field.rpartition('_')[2]}"


def _setting_options() -> dict[str, tuple[Any, Any]]:
    """Give options for the keys of an environment: flags, texts, and lists with an option to empty them."""
    options: dict[str, tuple[Any, Any]] = {}
    for key in _SETTABLE:
        name, text = f"--{key.field.replace('_', '-')}", key.schema["description"]
        if key.schema.get("type") == "array":
            complete = components if key.field == "targets" else None
            declared = option(_SPELLED.get(key.field, f"{name} NAME"), text, complete)
            options[key.field] = (Annotated[list[str] | None, declared], None)
            emptied = _emptied(key)
            declared = option(f"--{emptied.replace('_', '-')}", f"Empty `{key.name}`.")
            options[emptied] = (Annotated[bool, declared], False)
        elif key.schema.get("type") == "boolean" or "enum" in key.schema:
            flag = option(_SPELLED.get(key.field, f"{name}/--no-{name[2:]}"), text)
            options[key.field] = (Annotated[bool | None, flag], None)
        else:
            options[key.field] = (
                Annotated[str | None, option(_SPELLED.get(key.field, f"{name} TEXT"), text)],
                None,
            )
    return options


_SETTINGS = _setting_options()


@env.command(
    "set",
    takes=f"name {' '.join(_SETTINGS)} forget_cluster new_name kubeconfig folder output",
    shared=_SETTINGS,
    examples=[
        "mlstack env set gke --namespace kubeflow",
        "mlstack env set gke --target kubeflow-core --protected",
    ],
    name=ENV,
    forget_cluster=option("--forget-cluster", "Bind the context to the cluster met next."),
    new_name=option("--name NAME", "Rename the environment."),
)
def set_(session: Session, name: str, forget_cluster: bool = False, new_name: str | None = None) -> object:
    """Change an environment."""
    from mlstack.operations import app

    options, changes = session.options, {}
    for key in _SETTABLE:
        value = options[key.field]
        if "enum" in key.schema and value is not None:
            value = key.schema["enum"][0 if value else 1]
        elif key.schema.get("type") == "array":
            value = () if options[_emptied(key)] else tuple(value or ()) or None
        if value is not None:
            changes[key.name] = value
    kubeconfig = session.ports.kubeconfig(options["kubeconfig"]) if "context" in changes else None
    return app.change_environment(
        session.app, name, changes, new_name=new_name, forget_cluster=forget_cluster, kubeconfig=kubeconfig
    )


@env.command(examples=["mlstack env rm staging"], name=ENV)
def rm(session: Session, name: str) -> object:
    """Remove an environment from the app; the cluster is not touched."""
    from mlstack.operations import app

    return app.remove_environment(session.app, name)


@env.command(
    examples=["mlstack env current --set gke", "mlstack env current --unset"],
    chosen=option("--set ENV", "Take this one when a command names none.", environments),
    unset=option("--unset", "Choose none."),
)
def current(session: Session, chosen: str | None = None, unset: bool = False) -> object:
    """Print or choose the environment that commands take when they name none."""
    from mlstack.operations import app

    return app.current_environment(session.app, chosen=chosen, unset=unset)
