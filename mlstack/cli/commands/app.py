"""`init`, and `env` with its commands."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlstack import disk_cache
from mlstack.app.document import FileKey, join_path, keys_of
from mlstack.app.environment import Environment
from mlstack.cli.main import Family
from mlstack.cli.options import ENV, NAMES, components, duration, environments, offered, option, word
from mlstack.cli.options import packages as offer_packages
from mlstack.cli.ports import Session, operations
from mlstack.errors import NotFoundError, UsageError

top = Family()
application = Family("app", "The app itself.")
env = Family("env", "Environments: kubectl contexts and namespaces that components are deployed to.")

SERVER = option("--server URL", "Take the context that leads to this API server.")
NEW_FOLDER = option("--dir DIR", "The folder to make. Default: NAME, here.")


@top.command(
    takes="kubeconfig output",
    examples=[
        "my-kubeflow && cd my-kubeflow",
        "my-kubeflow --env dev --context minikube -n kubeflow",
        "my-jobs --stack training",
    ],
)
def init(
    session: Session,
    name: str = word("NAME", "The app's name, and that of its new folder; `.` is the one you are in."),
    folder: Path | None = NEW_FOLDER,
    stack: str | None = option(
        "--stack NAME",
        f"Begin with the components and environments of a stack{NAMES}.",
        offered("app.files.stacks"),
    ),
    environment: str | None = option("--env ENV", "Make a first environment of this name and choose it."),
    context: str | None = option("--context NAME", "Its kubectl context. Default: the current one, if any."),
    server: str | None = SERVER,
    namespace: str | None = option("--namespace -n NAME", "Its namespace. Default: that of the context."),
    skip_default_registries: bool = option(
        "--skip-default-registries", "Name no registry, not even the bundled one."
    ),
) -> object:
    """Create an app directory; needs no network and no cluster."""
    place = folder or (session.folder or Path()) / name
    name = place.resolve().name if name == "." or "/" in name else name  # a folder, as `git init` takes one
    if stack is not None:
        if environment or context or server or namespace or skip_default_registries:
            hint = f"mlstack init {name} --stack {stack}"
            raise UsageError("`--stack` brings registry and environments of its own", hint=hint)
        return operations.components.init_stack(place, name, stack)
    if context and server:
        raise UsageError("`--context` and `--server` exclude each other", hint="leave out --server")
    if environment is None and (context or server or namespace):
        environment = "default"
    kubeconfig = session.ports.kubeconfig(session.options.kubeconfig) if environment else None
    if server is not None and kubeconfig is not None:
        context = kubeconfig.of_server(server).name
    default = not skip_default_registries
    chosen = {"environment": environment, "context": context, "kubeconfig": kubeconfig}
    return session.call(operations.app.init, folder=place, name=name, default_registry=default, **chosen)


def _place(session: Session, *, offline: bool) -> dict[str, Any]:
    """Give where an environment is to be deployed, with the kubeconfig if it is to be asked."""
    from mlstack.kube.kubeconfig import IN_CLUSTER

    context, server, in_cluster = (session.arguments[name] for name in ("context", "server", "in_cluster"))
    named = {"--context": context, "--server": server, "--in-cluster": in_cluster or None}
    chosen = [name for name, value in named.items() if value is not None]
    if len(chosen) > 1:
        raise UsageError(f"`{chosen[0]}` and `{chosen[1]}` exclude each other", hint=f"leave out {chosen[1]}")
    if server is not None and offline:
        raise UsageError("`--server` looks into the kubeconfig, `--offline` does not", hint="use --context")
    context = IN_CLUSTER if in_cluster else context
    is_known = not (offline or in_cluster)
    kubeconfig = session.ports.kubeconfig(session.options.kubeconfig) if is_known else None
    place = session.filled(operations.app.Place, context=context, is_known=is_known)
    return {"place": place, "kubeconfig": kubeconfig}


def _end(session: Session, ttl: float | None) -> str:
    """Give the time at which so many seconds are over, empty without."""
    from mlstack.clock import timestamp

    return "" if ttl is None else timestamp(session.ports.clock.now_s() + ttl)


def _lifetime(text: str) -> float:
    """Read a time as `duration` does; a number alone would mean seconds, and is not what was meant."""
    if text.isdigit():
        raise UsageError(f"`--ttl {text}` has no unit", hint=f"--ttl {text}h")
    return duration(text)


OFFLINE = option("--offline", "Ask no kubeconfig: for a context of another machine, or none (GitOps).")
IN_POD = option("--in-cluster", "Use the account of the pod in which mlstack runs.")
TTL = option(
    "--ttl DURATION", "How long it is for (48h): then it is expired.", parser=_lifetime, show_default=False
)


@env.command(
    takes="kubeconfig folder output",
    examples=[
        "minikube",
        "staging --context gke-staging -n ml",
        "pr-12 --extends staging -n pr-12 --ttl 48h",
        "prod --context prod --offline",
    ],
)
def add(
    session: Session,
    name: str = word("ENV", f"Its name, and that of a preset{NAMES}.", offered("app.files.presets")),
    context: str | None = option("--context NAME", "The kubectl context. Default: the current one."),
    namespace: str | None = option("--namespace -n NAME", "The namespace to deploy to."),
    server: str | None = SERVER,
    extends: str | None = option("--extends ENV", "The environment whose values lie below.", environments),
    no_preset: bool = option("--no-preset", "Take no values from the preset of that name."),
    protected: bool = option("--protected", "Every change wants the environment's name."),
    offline: bool = OFFLINE,
    in_cluster: bool = IN_POD,
    ttl: float | None = TTL,
) -> object:
    """Add an environment from a kubectl context; the cluster is not contacted."""
    more = {"use_preset": not no_preset, "expires": _end(session, ttl)}
    return session.call(operations.app.add_environment, **_place(session, offline=offline), **more)


@env.command(
    takes="kubeconfig folder output",
    examples=["staging prod --context gke-prod", "dev pr-7 -n pr-7 --ttl 48h"],
)
def copy(
    session: Session,
    name: str = ENV,
    new: str = word("NEW", "Name of the new environment."),
    context: str | None = option("--context NAME", "Another kubectl context."),
    namespace: str | None = option("--namespace -n NAME", "Another namespace."),
    server: str | None = SERVER,
    offline: bool = OFFLINE,
    in_cluster: bool = IN_POD,
    ttl: float | None = TTL,
) -> object:
    """Make an environment like another one, with its parameters and patches."""
    is_same = context is None and server is None
    place = _place(session, offline=offline or is_same)
    return session.call(operations.app.copy_environment, **place, expires=_end(session, ttl))


@env.command(examples=["staging us-west/staging"])
def rename(session: Session, name: str = ENV, new: str = word("NEW", "Its new name.")) -> object:
    """Give an environment another name; what extends it follows."""
    return operations.app.change_environment(session.app, name, {}, new_name=new)


@env.command(examples=["gke", "gke kubeflow-core serving", "gke --all"])
def targets(
    session: Session,
    name: str = ENV,
    targets: Sequence[str] = word("[NAME]...", "Components and modules.", components),
    every: bool = option("--all", "Deploy all components."),
) -> object:
    """Show or choose the components and modules that an environment deploys."""
    if targets and every:
        raise UsageError("`--all` and names exclude each other", hint="leave one of them out")
    return operations.app.environment_targets(session.app, name, () if every else targets or None)


@env.command(takes="components folder output", examples=["", "dev prod -c cnn", "--approve 'sizes'"])
def matrix(
    session: Session,
    names: Sequence[str] = word(
        "[ENV]...", "The environments, by names or patterns. Default: all.", environments
    ),
    same: bool = option("--same", "Show also what is the same everywhere."),
    approve: str | None = option(
        "--approve REASON", "Enter these differences in environments/approved-differences.yaml."
    ),
) -> object:
    """Compare parameters, images, replicas and GPUs; exits with 1 for differences nobody approved."""
    chosen = session.environments(names) if names else list(session.app.environment_names)
    return session.call(operations.render.compare_all, environments=names if chosen is None else chosen)


@env.command(takes="kubeconfig folder output", examples=["gke", "gke --check"])
def snapshot(
    session: Session,
    name: str = ENV,
    check: bool = option("--check", "Write nothing; exit 1 if the file is not what the cluster is now."),
) -> object:
    """Keep what a cluster serves and has room for in one file, for validate and charts."""
    return session.call(operations.capacity.take_snapshot, target=session.target(name))


@env.command(examples=["", "-o name"])
def expired(session: Session) -> object:
    """List the environments that are over; `mlstack delete --expired` empties them."""
    return session.call(operations.app.expired_environments)


@env.command("list", examples=["-o json"])
def list_(session: Session) -> object:
    """List the environments of the app."""
    return operations.app.list_environments(session.app)


@env.command(examples=["gke"])
def describe(session: Session, name: str = ENV) -> object:
    """Show one environment, with what it inherits and the parameters it sets."""
    return operations.app.describe_environment(session.app, name)


# Options of `env set` that are spelled otherwise than the key of environment.yaml that they set.
_SPELLED = {
    "context": "--context NAME",
    "namespace": "--namespace -n NAME",
    "kubernetes_version": "--kubernetes-version X.Y",
    "extends": "--extends ENV",
    "targets": "--target NAME",
    "protected": "--protected/--unprotected",
    "allowed_namespaces": "--allow-namespace NAME",
}
_OFFERED = {"targets": components, "extends": environments}
_SETTABLE = [
    key
    for key in keys_of(Environment)
    if key.name not in ("expires", "cluster", "packages") and key.schema.get("type") != "object"
]
# Option -> section of the files, and whom it is of; selectors get none of them.
_ADDED = {
    "label": ("labels", "A label of every object"),
    "annotation": ("annotations", "An annotation of every object"),
    "pod_label": ("podLabels", "A label of every pod"),
    "pod_annotation": ("podAnnotations", "An annotation of every pod"),
}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _emptied(key: FileKey) -> str:
    return f"all_{key.field.rpartition('_')[2]}"


def _setting_options() -> dict[str, tuple[Any, Any]]:
    """Give options for the keys of an environment: flags, texts, and lists with an option to empty them."""
    options: dict[str, tuple[Any, Any]] = {}
    for key in _SETTABLE:
        flag, kind, ending = _flag(key.field), key.schema.get("type"), " TEXT"
        settable: Any = str | None
        if kind == "array":
            settable, ending = Sequence[str], " NAME"
        elif kind == "boolean" or "enum" in key.schema:
            settable, ending = bool | None, f"/--no-{flag[2:]}"
        spelled = _SPELLED.get(key.field, flag + ending)
        declared = option(spelled, key.schema["description"], _OFFERED.get(key.field))
        options[key.field] = (settable, declared)
        if kind == "array":
            options[_emptied(key)] = (bool, option(_flag(_emptied(key)), f"Empty `{key.name}`."))
    return options


_ADDED_OPTIONS = {
    name: (Sequence[str], option(f"{_flag(name)} KEY=VALUE", f"{text}; `KEY-` takes it away."))
    for name, (_, text) in _ADDED.items()
}
_SETTINGS = {**_setting_options(), **_ADDED_OPTIONS}


def _added(settings: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """Give the changes of labels and annotations, by `labels.KEY`; None takes one away."""
    changes: dict[str, str | None] = {}
    for name, (section, _) in _ADDED.items():
        for text in settings[name]:
            label, equals, value = text.partition("=")
            if not equals and not text.endswith("-"):
                flag = _flag(name)
                hint = f"{flag} {text}=VALUE sets it, {flag} {text}- takes it away"
                raise UsageError(f"`{flag} {text}` is not KEY=VALUE", hint=hint)
            changes[join_path((section, label if equals else text[:-1]))] = value if equals else None
    return changes


@application.command(
    "set",
    shared=_ADDED_OPTIONS,
    examples=["--label team=vision --pod-annotation 'prometheus.io/scrape=true'"],
)
def set_app(session: Session, **added: Sequence[str]) -> object:
    """Change labels and annotations that every object of the app gets, or every pod; never selectors."""
    changes = _added(added)
    if not changes:
        raise UsageError("what is to be set?", hint="mlstack app set --label KEY=VALUE")
    return operations.app.change_app(session.app, changes)


@env.command(
    "set",
    takes=f"name {' '.join(_SETTINGS)} server packages no_packages no_extends ttl override"
    " forget_cluster new_name kubeconfig folder output",
    shared=_SETTINGS,
    examples=[
        "gke --namespace kubeflow",
        "gke --target kubeflow-core --protected",
        "gke --label cost=prod --label team-",
        "gke --override --context my-kind",
        "gke --package kubeflow/core@0.1.0",
    ],
)
def set_(
    session: Session,
    name: str = ENV,
    server: str | None = SERVER,
    packages: Sequence[str] = option(
        "--package R/P@V", "Has this version of a package, which is installed.", offer_packages
    ),
    no_packages: Sequence[str] = option(
        "--no-package R/P", "Has the app's version of a package again.", offer_packages
    ),
    no_extends: bool = option("--no-extends", "Extend no environment any more."),
    ttl: str | None = option("--ttl DURATION", "How long it is for from now (48h); `never` takes that back."),
    override: bool = option("--override", "For you alone: context and namespace that git does not see."),
    forget_cluster: bool = option("--forget-cluster", "Bind the context to the cluster met next."),
    new_name: str | None = option("--name NAME", "Rename the environment."),
    **settings: Any,
) -> object:
    """Change an environment."""
    changes = dict[str, Any](_added(settings))
    for key in _SETTABLE:
        value = settings[key.field]
        if "enum" in key.schema and value is not None:
            value = key.schema["enum"][0 if value else 1]
        elif key.schema.get("type") == "array":
            value = () if settings[_emptied(key)] else tuple(value) or None
        if value is not None:
            changes[key.name] = value
    is_asked = "context" in changes or server is not None
    kubeconfig = session.ports.kubeconfig(session.options.kubeconfig) if is_asked else None
    if server is not None and kubeconfig is not None:
        changes["context"] = kubeconfig.of_server(server).name
    if ttl is not None:
        changes["expires"] = None if ttl == "never" else _end(session, _lifetime(ttl))
    if no_extends:
        changes["extends"] = None
    if override:
        if forget_cluster or new_name or packages or no_packages:
            raise UsageError("`--override` is about context and namespace alone", hint="leave out the rest")
        return operations.app.override_environment(session.app, name, changes, kubeconfig=kubeconfig)
    return session.call(operations.app.change_environment, changes=changes, kubeconfig=kubeconfig)


@env.command(takes="folder output yes_i_mean", examples=["staging", "gke --override"])
def rm(
    session: Session,
    name: str = ENV,
    override: bool = option("--override", "Only what you alone have otherwise."),
) -> object:
    """Remove an environment from the app; the cluster is not touched."""
    from mlstack.cli import run_reporter

    if not run_reporter.is_meant(name, session) and not override and session.app.environment(name).protected:
        action = "remove it from the app"
        if not run_reporter.name_typed(name, session, f"`env rm` would {action}", action):
            return 1
    return operations.app.remove_environment(session.app, name, override=override)


@env.command(examples=["--set gke", "--unset"])
def current(
    session: Session,
    chosen: str | None = option("--set ENV", "Take this one when a command names none.", environments),
    unset: bool = option("--unset", "Choose none."),
) -> object:
    """Print or choose the environment that commands take when they name none."""
    return operations.app.current_environment(session.app, chosen=chosen, unset=unset)


@top.command(takes="env kubeconfig folder output", examples=["", "gke"])
def doctor(session: Session) -> object:
    """Check app, lock, cache, kubeconfig and programs; with ENV its cluster; exits with 1 for what fails."""
    options = session.options
    around = operations.doctor.DoctorContext(
        cache=disk_cache.of_user(os.environ),
        kubeconfig=lambda: session.ports.kubeconfig(options.kubeconfig),
        opener=session.opener(),
        clock=session.ports.clock,
    )
    try:
        app = session.app
    except NotFoundError:
        if options.env:
            raise
        return operations.doctor.examine(None, None, around)
    if options.env:
        app.environment(options.env)
    return operations.doctor.examine(app, session.target(options.env) if options.env else None, around)
