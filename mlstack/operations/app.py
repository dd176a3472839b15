"""The app directory itself: `init`, its environments, and the JSON Schemas of what is read and printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mlstack.app import files, layout, schema
from mlstack.app.app import App, Component
from mlstack.app.app_dir import AppDir
from mlstack.app.document import keys_of, split_path
from mlstack.app.edit import app_lock
from mlstack.app.environment import Environment, PersonalEnvironment
from mlstack.app.params import Layer, merge
from mlstack.app.prototype import Param, map_references, secret_literals, shown_secret
from mlstack.app.reader import read_preset
from mlstack.app.schema import check_value
from mlstack.clock import Clock, timestamp
from mlstack.dataclass import Record, row
from mlstack.errors import ConfigError, MlstackError, NotFoundError, UsageError
from mlstack.kube.kubeconfig import IN_CLUSTER
from mlstack.names import check_environment_name, check_namespace, not_found
from mlstack.objects import masking

if TYPE_CHECKING:
    from mlstack.kube.kubeconfig import Context, Kubeconfig


class Initialised(Record):
    """A new app, with the registries it starts with."""

    app: str
    folder: str  # as given
    registries: tuple[str, ...]
    environment: str | None = None  # the first one, which commands take when they name none
    context: str = ""  # its kubectl context; empty if there is none yet


def init(
    folder: Path,
    name: str,
    *,
    default_registry: bool = True,
    environment: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    kubeconfig: Kubeconfig | None = None,
) -> Initialised:
    """Create an app directory that renders at once, with a first environment if one is named.

    That takes the context that is named, else the current one of `kubeconfig`, else none.
    """
    from mlstack.registries.registry import DEFAULT_REGISTRY

    registries, chosen = (DEFAULT_REGISTRY,) if default_registry else (), ""
    AppDir.check_new(folder, name)
    if environment is not None:
        if kubeconfig is None or not (context or (kubeconfig.exists and kubeconfig.current_context)):
            chosen = context or ""
        else:
            chosen = (kubeconfig.context(context) if context else kubeconfig.current()).name
        check_environment_name(environment)
        check_namespace(namespace or "default")
    with app_lock(folder):
        app = AppDir.create(folder, name, registries=registries)
        (folder / layout.COMPONENTS).mkdir(exist_ok=True)
        (folder / layout.ENVIRONMENTS).mkdir(exist_ok=True)
    if environment is not None:
        where = Place(context=chosen, namespace=namespace, is_known=bool(chosen))
        add_environment(app, environment, kubeconfig=kubeconfig, place=where)
        current_environment(app, chosen=environment)
    names = tuple(ref.name for ref in registries)
    place = {"folder": str(folder), "context": chosen}
    return Initialised(app=name, registries=names, environment=environment, **place)


# --- environments ---


class EnvironmentAdded(Record):
    """A new environment."""

    name: str
    context: str
    namespace: str
    preset: str | None  # the preset its values come from
    extends: str | None  # the environment whose values lie below
    file: str  # below the app directory
    notes: tuple[str, ...] = ()


class EnvironmentRow(Record):
    """One environment in a list; `current` marks the one that commands take when they name none."""

    name: str
    current: bool
    context: str
    namespace: str
    kubernetes_version: str
    extends: str | None
    protected: bool
    overridden: bool = False  # whoever works here has something otherwise, in `.mlstack/overrides.yaml`
    expires: str = ""  # when it is over, in UTC; empty if it has no end


class EnvironmentList(Record):
    """The environments of an app, by name."""

    environments: tuple[EnvironmentRow, ...]


class ExpiredEnvironments(Record):
    """The environments that are over, the oldest first."""

    environments: tuple[EnvironmentRow, ...]


class EnvironmentDescription(Record):
    """One environment with everything it inherits; `globals` are for all components that declare them."""

    environment: Environment
    globals: Mapping[str, Any]
    components: Mapping[str, Mapping[str, Any]]
    overrides: tuple[str, ...] = ()  # what whoever works here has otherwise, by its key

    def to_dict(self) -> dict[str, Any]:
        """Give the keys of its file, then the parameters."""
        settings = {key.name: getattr(self.environment, key.field) for key in keys_of(Environment)}
        settings["packages"] = [ref.entry for ref in self.environment.packages]
        own = {"overrides": self.overrides, "globals": self.globals, "components": self.components}
        return {"name": self.environment.name, "file": self.environment.file, **settings, **own}


class EnvironmentChanged(Record):
    """What was changed about an environment."""

    name: str  # the new one after a renaming
    changes: Mapping[str, Any] = field(default_factory=dict)  # new values by the key of its file
    cluster_forgotten: bool = False  # the next contact binds it to the cluster it meets
    overridden: bool = False  # the changes are those of whoever works here alone
    notes: tuple[str, ...] = ()


class AppChanged(Record):
    """What was changed about an app."""

    name: str
    changes: Mapping[str, Any]  # new values by the key of `app.yaml`, null for what is gone


class EnvironmentRemoved(Record):
    """An environment, or what is personal about it, that is gone; the cluster was not touched."""

    name: str
    override: bool = False  # only what whoever works here had otherwise
    notes: tuple[str, ...] = ()


class EnvironmentTargets(Record):
    """What an environment deploys."""

    name: str
    targets: tuple[str, ...]  # components and modules; none means all components


class CurrentEnvironment(Record):
    """The environment that commands take when they name none."""

    name: str | None


class Place(Record):
    """Where a new environment is to be deployed, as far as it is said."""

    context: str | None = None
    namespace: str | None = None
    server: str | None = None  # address of an API server: finds the context that leads there
    is_known: bool = True  # whether this machine has to know the context


_ANYWHERE = Place()


def add_environment(
    app: AppDir,
    name: str,
    *,
    kubeconfig: Kubeconfig | None,
    place: Place = _ANYWHERE,
    extends: str | None = None,
    use_preset: bool = True,
    protected: bool = False,
    expires: str = "",
) -> EnvironmentAdded:
    """Add an environment; the cluster is not contacted.

    Without a context it takes the one of `extends`, else the current one of `kubeconfig`; without a namespace
    that of the preset of its name (unless there is none, or `use_preset` is off), then the context's.
    """
    check_environment_name(name)
    if (namespace := place.namespace) is not None:
        check_namespace(namespace)
    with app.locked():
        chosen = _chosen_context(place, app.environment(extends) if extends is not None else None, kubeconfig)
        folder = files.preset(name) if use_preset else None
        preset = read_preset(folder) if folder is not None else None
        usual = chosen.namespace if chosen is not None else "default"  # leaves it to what is extended
        if preset is not None and "namespace" in preset.given:
            usual = preset.environment.namespace
        environment = replace(
            preset.environment if preset is not None else Environment(name=name),
            context=chosen.name if chosen is not None else (place.context or ""),
            namespace=namespace or usual,
            extends=extends,
            protected=protected,
            expires=expires,
        )
        file = app.add_environment(environment, preset=folder)
        whole = app.environment(name)
    return row(EnvironmentAdded, whole, preset=preset and name, extends=extends, file=file)


def _chosen_context(
    place: Place, parent: Environment | None, kubeconfig: Kubeconfig | None
) -> Context | None:
    """Give the context that is asked for; None where it is the parent's, or is not to be looked up."""
    if kubeconfig is None or not place.is_known or place.context == IN_CLUSTER:
        return None
    try:
        if place.server is not None:
            return kubeconfig.of_server(place.server)
        if place.context is not None:
            return kubeconfig.context(place.context)
        return kubeconfig.current() if parent is None or not parent.context else None
    except NotFoundError as error:
        error.hint = f"{error.hint}\n      --offline asks no kubeconfig: for a context of another machine"
        raise


def list_environments(app: AppDir) -> EnvironmentList:
    """List the environments of an app, by name."""
    return EnvironmentList(environments=tuple(_environment_row(app, place) for place in app.environments()))


def _environment_row(app: AppDir, place: Environment) -> EnvironmentRow:
    is_mine = app.personal.environment(place.name) is not None
    return row(EnvironmentRow, place, current=place.name == app.current_environment(), overridden=is_mine)


def expired_environments(app: AppDir, *, clock: Clock) -> ExpiredEnvironments:
    """List the environments that are over, the oldest first; nothing is deleted."""
    now = timestamp(clock.now_s())
    over = [place for place in app.environments() if place.expires and place.expires <= now]
    over.sort(key=lambda place: (place.expires, place.name))
    return ExpiredEnvironments(environments=tuple(_environment_row(app, place) for place in over))


def describe_environment(app: AppDir, name: str) -> EnvironmentDescription:
    """Describe one environment, with what it inherits."""
    environment = app.environment(name)
    chain = app.environment_chain(name)
    sections = {name for layer in chain for name in (*layer.components, *layer.encrypted_components)}
    return EnvironmentDescription(
        environment=environment,
        overrides=tuple(_own_keys(app.personal.environment(name))),
        globals=_shown(app, name, [layer for files in chain for layer in files.for_all]),
        components={
            component: _shown(
                app, name, [layer for files in chain for layer in files.for_component(component)], component
            )
            for component in sorted(sections)
        },
    )


def _own_keys(personal: PersonalEnvironment | None) -> Iterator[str]:
    """Give the keys of what one person has otherwise about an environment."""
    if personal is None:
        return
    yield from (key for key in ("context", "namespace") if getattr(personal, key))
    yield from (f"globals.{key}" for key in personal.globals)
    for component, values in personal.components.items():
        yield from (f"components.{component}.{key}" for key in values or ())


def _secret_names(app: AppDir, environment: str, component: str | None) -> frozenset[str] | None:
    """Give the spellings of secret parameters, of a component or of all; None if a prototype is unknown."""
    try:
        if component is None:
            prototypes = app.vendor.prototypes()
        else:
            owner = app.component(component)
            prototypes = (app.prototype_of(owner, environment),) if isinstance(owner, Component) else ()
    except MlstackError:  # a package that is not installed, a component that is gone
        return None
    secret = [param for prototype in prototypes for param in prototype.params.values() if param.secret]
    return frozenset(spelling for param in secret for spelling in (param.name, *param.aliases))


def _shown(
    app: AppDir, environment: str, layers: Sequence[Layer], component: str | None = None
) -> dict[str, Any]:
    """Lay values over those they inherit; masked are secret ones, and all where nothing tells which are."""
    values: dict[str, Any] = reduce(merge, (layer.values for layer in layers), {})
    secret = _secret_names(app, environment, component)
    hidden = {name: value for name, value in values.items() if secret is None or name in secret}
    masking.note(*map(secret_literals, hidden.values()))
    return {
        name: shown_secret(value)
        if name in hidden and value is not None
        else map_references(value, lambda reference: reference.shown)
        for name, value in values.items()
    }


def change_environment(
    app: AppDir,
    name: str,
    changes: Mapping[str, Any],
    *,
    new_name: str | None = None,
    forget_cluster: bool = False,
    kubeconfig: Kubeconfig | None = None,
    packages: Sequence[str] = (),
    no_packages: Sequence[str] = (),
) -> EnvironmentChanged:
    """Change an environment; another context, or `forget_cluster`, takes the binding to a cluster away.

    `changes` are new values by the key of its file (`labels.team` is in a map); an empty list, and None,
    remove the key. A new context must be known to `kubeconfig`, if there is one. `packages` are those that it
    has in a version of its own, which are installed; of `no_packages` it has the app's version again.
    """
    environment = app.environment_files(name).environment
    _checked(app, name, changes)
    notes = _moved_packages(app, name, packages, no_packages)
    with app.locked():
        changes = _checked(app, name, changes, kubeconfig)
        forget = forget_cluster or changes.get("context") not in (None, environment.context)
        if changes or forget:
            forgotten = {"cluster": None} if forget else {}
            app.edit(layout.environment_file(name), "Environment", {**changes, **forgotten})
            notes += tuple(_inherited(app, name, changes))
        if new_name is not None and new_name != name:
            app.rename_environment(name, new_name)
            changes["name"] = new_name
            if environment.cluster is not None:
                taking = f"`mlstack apply {new_name} --adopt` takes it over"
                notes += (f"what was applied as `{name}` keeps that name in its cluster until {taking}",)
    if packages or no_packages:
        changes["packages"] = [str(ref) for ref in app.environment(new_name or name).packages]
    unbound = forget and environment.cluster is not None
    return EnvironmentChanged(name=new_name or name, changes=changes, cluster_forgotten=unbound, notes=notes)


def change_app(app: AppDir, changes: Mapping[str, Any]) -> AppChanged:
    """Change labels and annotations that every object gets; keys and None are as for an environment."""
    with app.locked():
        _check_added(changes, app.app)
        app.edit(layout.APP_FILE, "App", changes)
    return AppChanged(name=app.app.name, changes=changes)


def _check_added(changes: Mapping[str, Any], *levels: App | Environment) -> None:
    """Refuse labels and annotations that are unfit, and to take away what none of the levels has."""
    paths = {split_path(key): value for key, value in changes.items()}
    for key in keys_of(App):
        own = {str(path[1]): value for path, value in paths.items() if path[0] == key.name and path[1:]}
        values = {name: value for name, value in own.items() if value is not None}
        faults = check_value(Param(name=key.name, schema=key.schema), values) if values else []
        if faults:
            hint = "a name is [DOMAIN/]NAME of letters, digits, -, _ and dots; mlstack.dev/ is ours alone"
            raise UsageError("\n".join(faults), hint=hint)
        for name in own.keys() - values.keys():
            sections = [getattr(level, key.field) for level in levels]
            labels = {label for section in sections for label, value in section.items() if value}
            if name not in labels:
                message = f"`{levels[0].name}` has nothing of the name `{name}` in its {key.name}"
                raise not_found(message, name, labels)


def _inherited(app: AppDir, name: str, changes: Mapping[str, Any]) -> Iterator[str]:
    """Tell of labels and annotations that were taken away, and are what lies below says again."""
    from mlstack.render.render import added

    metadata = added(app.app, app.environment(name))
    for key, value in changes.items():
        section, *label = split_path(key)
        fields = {declared.name: declared.field for declared in keys_of(App)}
        counts = getattr(metadata, fields[str(section)]).get(label[0]) if label and value is None else None
        if counts is not None:
            yield f"`{key}` is `{counts}` again, which is inherited; once more takes that away too"


def _moved_packages(
    app: AppDir, name: str, packages: Sequence[str], no_packages: Sequence[str]
) -> tuple[str, ...]:
    """Give an environment versions of its own, and take others back; tell what registries say of them."""
    from mlstack.registries import installation

    notes: tuple[str, ...] = ()
    if packages:
        refs = tuple(installation.full_ref(app, text) for text in packages)
        free = [(name, ref.full_name) for ref in refs]
        notes = installation.change(app, {name: refs}, free=free).notes
    if no_packages:
        with app.locked():
            installation.leave_environment(app, no_packages, name)
    return notes


def override_environment(
    app: AppDir, name: str, changes: Mapping[str, Any], *, kubeconfig: Kubeconfig | None = None
) -> EnvironmentChanged:
    """Set what whoever works here has otherwise about an environment; the shared files stay as they are."""
    others = [key for key in changes if key not in ("context", "namespace")]
    if others or not changes:
        what = f"`{others[0]}` is the same for everybody" if others else "what is to be otherwise?"
        raise UsageError(what, hint=f"mlstack env set {name} --override --context CONTEXT -n NAMESPACE")
    with app.locked():
        values = _checked(app, name, changes, kubeconfig)
        own, context = app.personal.environment(name), changes.get("context")
        forget = context is not None and own is not None and own.context != context
        app.override("environments", name, {**values, **({"cluster": None} if forget else {})})
    return EnvironmentChanged(name=name, changes=values, overridden=True)


def copy_environment(
    app: AppDir,
    name: str,
    new: str,
    *,
    place: Place = _ANYWHERE,
    kubeconfig: Kubeconfig | None = None,
    expires: str = "",
) -> EnvironmentAdded:
    """Make an environment like another one, with its parameters and patches, bound to no cluster yet."""
    if place.namespace is not None:
        check_namespace(place.namespace)
    with app.locked():
        source = app.environment(name)
        chosen = _chosen_context(place, source, kubeconfig)
        context = chosen.name if chosen is not None else place.context
        settings = {"context": context, "namespace": place.namespace, "expires": expires or None}
        changes = {key: value for key, value in settings.items() if value}
        file = app.copy_environment(name, new, changes)
        copy = app.environment(new)
    is_same = (copy.context, copy.namespace) == (source.context, source.namespace)
    hint = f"mlstack env set {new} --namespace NAMESPACE"
    notes = (f"`{name}` deploys to the same context and namespace; another one: {hint}",) if is_same else ()
    return row(EnvironmentAdded, copy, preset=None, file=file, notes=notes)


def environment_targets(app: AppDir, name: str, targets: Sequence[str] | None) -> EnvironmentTargets:
    """Give what an environment deploys, after choosing it; no names at all mean all components."""
    if targets is not None:
        change_environment(app, name, {"targets": tuple(dict.fromkeys(targets))})
    return EnvironmentTargets(name=name, targets=app.environment(name).targets)


def _checked(
    app: AppDir, name: str, changes: Mapping[str, Any], kubeconfig: Kubeconfig | None = None
) -> dict[str, Any]:
    """Refuse new values that are unfit; give them as the file has them, lists last."""
    from mlstack.validate.validate import check_version

    if changes.get("context") not in (None, IN_CLUSTER) and kubeconfig is not None:
        kubeconfig.context(str(changes["context"]))
    _check_added(changes, app.environment(name), app.app)
    values = dict(changes)
    for namespace in (values.get("namespace"), *values.get("allowedNamespaces", ())):
        if namespace is not None:
            check_namespace(namespace)
    if "kubernetesVersion" in values:
        try:
            values["kubernetesVersion"] = check_version(values["kubernetesVersion"], environment=name)
        except ConfigError as error:  # it was typed
            raise UsageError(error.message, hint=error.hint) from error
    if values.get("targets"):
        app.selected(None, values["targets"])
    parent = values.get("extends")
    if parent and name in [files.environment.name for files in app.environment_chain(parent)]:
        message = f"`{parent}` extends `{name}`: they cannot extend each other"
        raise UsageError(message, hint=f"mlstack env describe {parent}")
    lists = {key: list(value) or None for key, value in values.items() if isinstance(value, tuple)}
    written = {key: value for key, value in values.items() if key not in lists} | lists
    fields = [Param(name=key.name, schema=key.schema) for key in keys_of(Environment)]
    if faults := [fault for field in fields for fault in check_value(field, written.get(field.name))]:
        raise UsageError("\n".join(faults), hint="mlstack env set --help")
    return written


def remove_environment(app: AppDir, name: str, *, override: bool = False) -> EnvironmentRemoved:
    """Remove an environment from the app, or only what is personal about it; the cluster is not touched."""
    with app.locked():
        if override:
            app.environment_files(name)
            if not app.take_back("environments", name):
                raise NotFoundError(f"nothing is overridden about `{name}`", hint="mlstack env list")
            return EnvironmentRemoved(name=name, override=True)
        was_met = app.environment_files(name).environment.cluster is not None
        app.remove_environment(name)
    hint = f"to delete it, mlstack delete {name} comes first"
    left = f"what was applied as `{name}` stays in its cluster: {hint}"
    return EnvironmentRemoved(name=name, notes=(left,) if was_met else ())


def current_environment(app: AppDir, *, chosen: str | None = None, unset: bool = False) -> CurrentEnvironment:
    """Give the environment that commands take when they name none, after choosing one or none."""
    if chosen is not None and unset:
        raise UsageError("`--set` and `--unset` exclude each other", hint="leave one of them out")
    if chosen is not None or unset:
        with app.locked():
            app.set_current_environment(app.environment(chosen).name if chosen is not None else None)
    return CurrentEnvironment(name=app.current_environment())


# --- schemas ---


class SchemaRow(Record):
    """One schema: of a file, or of what a command prints with `-o json` and `-o yaml`."""

    name: str  # the `kind` that it describes
    describes: Literal["file", "result"]  # what has this form
    id: str  # its `$id`, which never changes within a version
    summary: str


class SchemaList(Record):
    """All schemas, files before results, by name."""

    schemas: tuple[SchemaRow, ...]


class SchemaResult(Record):
    """One schema, printed as it is."""

    name: str
    content: Mapping[str, Any]

    def to_dict(self) -> Mapping[str, Any]:
        """Give the schema itself."""
        return self.content


def list_schemas() -> SchemaList:
    """List the schemas there are."""
    files = [_schema_row("file", schema.file_schema(kind)) for kind in schema.file_kinds()]
    results = [_schema_row("result", content) for content in schema.result_schemas().values()]
    return SchemaList(schemas=(*files, *results))


def _schema_row(describes: Literal["file", "result"], schema: dict[str, Any]) -> SchemaRow:
    summary = str(schema.get("description", "")).partition(". ")[0].rstrip(".")
    return SchemaRow(name=schema["title"], describes=describes, id=schema["$id"], summary=summary)


def find_schema(name: str) -> SchemaResult:
    """Give the schema of a kind; upper and lower case are the same."""
    files, results = schema.file_kinds(), schema.result_schemas()
    by_name = {kind.lower(): kind for kind in (*files, *results)}
    kind = by_name.get(name.lower())
    if kind is None:
        raise not_found(f"no schema `{name}`", name, by_name.values(), hint="mlstack schema")
    return SchemaResult(name=kind, content=schema.file_schema(kind) if kind in files else results[kind])
