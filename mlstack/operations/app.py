"""Create an app directory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mlstack.app import files, layout, schema
from mlstack.app.app import ClusterScoped, Component, Environment, RegistryRef
from mlstack.app.app_dir import AppDir
from mlstack.app.app_files import EnvironmentFiles, read_preset
from mlstack.app.edit import app_lock
from mlstack.app.files import read_folder
from mlstack.app.params import Layer, merge
from mlstack.errors import ConfigError, MlstackError, NotFoundError, UsageError
from mlstack.kube.kubeconfig import Context, Kubeconfig
from mlstack.names import check_environment_name, check_namespace, nearest
from mlstack.objects import masking
from mlstack.objects.masking import MASK
from mlstack.validate.validate import check_version

# --- Create an app directory ---

DEFAULT_REGISTRY = RegistryRef(name="kubeflow", address="bundled", protocol="directory")


@dataclass(frozen=True, kw_only=True)
class Initialised:
    """A new app.

    Attributes:
        app: its name.
        folder: where it lies, as given.
        registries: the registries it starts with.
    """

    app: str
    folder: str
    registries: tuple[str, ...]


def init(folder: Path, name: str, *, default_registry: bool = True) -> Initialised:
    """Create an app directory that renders at once.

    Raises:
        UsageError: the name cannot be an app's.
        ConfigError: there is an app already, or the folder cannot be written.
    """
    registries = (DEFAULT_REGISTRY,) if default_registry else ()
    AppDir.check_new(folder, name)
    with app_lock(folder):
        AppDir.create(folder, name, registries=registries)
        for empty in (layout.COMPONENTS, layout.ENVIRONMENTS):
            (folder / empty).mkdir(exist_ok=True)
    return Initialised(app=name, folder=str(folder), registries=tuple(ref.name for ref in registries))


# --- Environments of an app: add, list, describe, change, remove, choose ---


@dataclass(frozen=True, kw_only=True)
class EnvironmentAdded:
    """A new environment.

    Attributes:
        name: its name.
        context: the kubectl context it goes to.
        namespace: the namespace it deploys to.
        preset: the preset its values come from, None without one.
        extends: the environment whose values lie below.
        file: its file below the app directory.
    """

    name: str
    context: str
    namespace: str
    preset: str | None
    extends: str | None
    file: str


@dataclass(frozen=True, kw_only=True)
class EnvironmentRow:
    """One environment in a list; `current` marks the one that commands take when they name none."""

    name: str
    current: bool
    context: str
    namespace: str
    kubernetes_version: str
    extends: str | None
    protected: bool


@dataclass(frozen=True, kw_only=True)
class EnvironmentList:
    """The environments of an app, by name."""

    environments: tuple[EnvironmentRow, ...]


@dataclass(frozen=True, kw_only=True)
class EnvironmentDescription:
    """One environment with everything it inherits.

    Attributes:
        globals: parameters for all components that declare them.
        components: parameters by component.
    """

    name: str
    file: str
    context: str
    namespace: str
    kubernetes_version: str
    extends: str | None
    targets: tuple[str, ...]
    protected: bool
    allowed_namespaces: tuple[str, ...]
    cluster_scoped: ClusterScoped
    wait_for_load_balancer: bool
    cluster: Mapping[str, str | None] | None
    globals: Mapping[str, Any]
    components: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings:
    """What to change about an environment; None leaves a thing as it is."""

    name: str | None = None
    context: str | None = None
    namespace: str | None = None
    kubernetes_version: str | None = None
    targets: tuple[str, ...] | None = None
    protected: bool | None = None
    allowed_namespaces: tuple[str, ...] | None = None
    cluster_scoped: ClusterScoped | None = None
    wait_for_load_balancer: bool | None = None
    forget_cluster: bool = False


@dataclass(frozen=True, kw_only=True)
class EnvironmentChanged:
    """What was changed about an environment.

    Attributes:
        name: its name, the new one after a renaming.
        changes: new values by the key of its file.
        cluster_forgotten: whether the next contact binds it to the cluster it meets.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    cluster_forgotten: bool = False


@dataclass(frozen=True, kw_only=True)
class EnvironmentRemoved:
    """An environment that is gone from the app; the cluster was not touched."""

    name: str


@dataclass(frozen=True, kw_only=True)
class CurrentEnvironment:
    """The environment that commands take when they name none."""

    name: str | None


def add_environment(
    app: AppDir,
    name: str,
    *,
    kubeconfig: Kubeconfig,
    context: str | None = None,
    namespace: str | None = None,
    extends: str | None = None,
    use_preset: bool = True,
) -> EnvironmentAdded:
    """Add an environment; the cluster is not contacted.

    Args:
        app: the app directory.
        name: parts joined by `/` nest.
        kubeconfig: where contexts are known.
        context: the context; None is the current one, or the one of `extends`.
        namespace: None takes the preset's, then the context's.
        extends: the environment whose values lie below.
        use_preset: start from the preset of that name, if there is one.

    Raises:
        UsageError: a name is taken or unfit, or there is no context.
        NotFoundError: no such context, or no such environment to extend.
    """
    check_environment_name(name)
    if namespace is not None:
        check_namespace(namespace)
    with app.locked():
        return _add(app, name, kubeconfig, context, namespace, extends, use_preset=use_preset)


def _add(
    app: AppDir,
    name: str,
    kubeconfig: Kubeconfig,
    context: str | None,
    namespace: str | None,
    extends: str | None,
    *,
    use_preset: bool,
) -> EnvironmentAdded:
    parent = app.environment(extends) if extends is not None else None
    chosen = _context(kubeconfig, context, inherits=parent is not None and bool(parent.context))
    folder = files.preset(name) if use_preset else None
    preset = read_preset(folder) if folder is not None else None
    made = replace(
        preset.environment if preset is not None else Environment(name=name),
        context=chosen.name if chosen is not None else "",
        namespace=namespace or _namespace(preset, chosen),
        extends=extends,
    )
    file = app.add_environment(made, seed=_seed(folder) if folder is not None else None)
    whole = app.environment(name)
    return EnvironmentAdded(
        name=name,
        context=whole.context,
        namespace=whole.namespace,
        preset=name if preset is not None else None,
        extends=extends,
        file=file,
    )


def _namespace(preset: EnvironmentFiles | None, context: Context | None) -> str:
    """Give the preset's namespace, else the context's; `default` leaves it to what is extended."""
    if preset is not None and "namespace" in preset.given:
        return preset.environment.namespace
    return context.namespace if context is not None else "default"


def _context(kubeconfig: Kubeconfig, wanted: str | None, *, inherits: bool) -> Context | None:
    if wanted is None and inherits:
        return None
    return kubeconfig.context(wanted) if wanted is not None else kubeconfig.current()


def _seed(folder: Path) -> dict[str, bytes]:
    return {str(path): data for path, data in read_folder(folder).items()}


def list_environments(app: AppDir) -> EnvironmentList:
    """List the environments of an app, by name."""
    chosen = app.current_environment()
    rows = tuple(
        EnvironmentRow(
            name=each.name,
            current=each.name == chosen,
            context=each.context,
            namespace=each.namespace,
            kubernetes_version=each.kubernetes_version,
            extends=each.extends,
            protected=each.protected,
        )
        for each in app.environments()
    )
    return EnvironmentList(environments=rows)


def describe_environment(app: AppDir, name: str) -> EnvironmentDescription:
    """Describe one environment, with what it inherits.

    Raises:
        NotFoundError: no such environment; carries the nearest one.
    """
    found = app.environment(name)
    chain = app.files.environment_chain(name)
    components = sorted({component for each in chain for component in each.components})
    return EnvironmentDescription(
        name=name,
        file=found.file,
        context=found.context,
        namespace=found.namespace,
        kubernetes_version=found.kubernetes_version,
        extends=found.extends,
        targets=found.targets,
        protected=found.protected,
        allowed_namespaces=found.allowed_namespaces,
        cluster_scoped=found.cluster_scoped,
        wait_for_load_balancer=found.wait_for_load_balancer,
        cluster=asdict(found.cluster) if found.cluster is not None else None,
        globals=_masked(_together(each.globals for each in chain), _secret_names(app)),
        components={
            component: _masked(
                _together(each.components[component] for each in chain if component in each.components),
                _secret_names(app, component),
            )
            for component in components
        },
    )


def _together(layers: Iterable[Layer]) -> dict[str, Any]:
    """Lay the values of an environment over those it inherits."""
    found: dict[str, Any] = {}
    for layer in layers:
        found = merge(found, layer.values)
    return found


def _secret_names(app: AppDir, component: str | None = None) -> frozenset[str] | None:
    """Give the spellings of secret parameters, of a component or of all; None if a prototype is unknown."""
    try:
        if component is None:
            prototypes = app.prototypes()
        else:
            known = app.component(component)
            prototypes = (app.prototype(known.prototype),) if isinstance(known, Component) else ()
    except MlstackError:  # a package that is not installed, a component that is gone
        return None
    secret = [param for each in prototypes for param in each.params.values() if param.secret]
    return frozenset(spelling for param in secret for spelling in (param.name, *param.aliases))


def _masked(values: Mapping[str, Any], secret: frozenset[str] | None) -> dict[str, Any]:
    """Mask the values of secret parameters, and all where it is not known which are secret."""
    hidden = {name: value for name, value in values.items() if secret is None or name in secret}
    masking.note(*hidden.values())
    return {name: MASK if name in hidden and value is not None else value for name, value in values.items()}


def change_environment(
    app: AppDir, name: str, wanted: EnvironmentSettings, *, kubeconfig: Kubeconfig | None = None
) -> EnvironmentChanged:
    """Change an environment; what is None stays as it is.

    Another context, or `forget_cluster`, takes the binding to a cluster away.

    Args:
        app: the app directory.
        name: the environment.
        wanted: what to change.
        kubeconfig: where a new context must be known.

    Raises:
        NotFoundError: no such environment, context, component or module.
        UsageError: the new name is taken, or a name is unfit.
        ConfigError: mlstack does not know the Kubernetes version.
    """
    with app.locked():
        return _change(app, name, wanted, kubeconfig)


def _change(
    app: AppDir, name: str, wanted: EnvironmentSettings, kubeconfig: Kubeconfig | None
) -> EnvironmentChanged:
    found = app.environment(name)
    if wanted.namespace is not None:
        check_namespace(wanted.namespace)
    for allowed in wanted.allowed_namespaces or ():
        check_namespace(allowed)
    if wanted.kubernetes_version is not None:
        try:
            version = check_version(wanted.kubernetes_version, environment=name)
        except ConfigError as error:  # it was typed
            raise UsageError(error.message, hint=error.hint) from error
        wanted = replace(wanted, kubernetes_version=version)
    if wanted.context is not None and kubeconfig is not None:
        kubeconfig.context(wanted.context)
    if wanted.targets:
        app.selected(None, wanted.targets)
    changes = _changes(wanted)
    forget = wanted.forget_cluster or (wanted.context is not None and wanted.context != found.context)
    if changes or forget:
        app.edit_environment(name, {**changes, **({"cluster": None} if forget else {})})
    if wanted.name is not None and wanted.name != name:
        app.rename_environment(name, wanted.name)
        changes["name"] = wanted.name
    return EnvironmentChanged(
        name=wanted.name or name, changes=changes, cluster_forgotten=forget and found.cluster is not None
    )


def _changes(wanted: EnvironmentSettings) -> dict[str, Any]:
    """Give the new values by the key of the file; an empty list removes the key."""
    found = {
        "context": wanted.context,
        "namespace": wanted.namespace,
        "kubernetesVersion": wanted.kubernetes_version,
        "protected": wanted.protected,
        "clusterScoped": wanted.cluster_scoped,
        "waitForLoadBalancer": wanted.wait_for_load_balancer,
    }
    changes: dict[str, Any] = {key: value for key, value in found.items() if value is not None}
    if wanted.targets is not None:
        changes["targets"] = list(wanted.targets) or None
    if wanted.allowed_namespaces is not None:
        changes["allowedNamespaces"] = list(wanted.allowed_namespaces) or None
    return changes


def remove_environment(app: AppDir, name: str) -> EnvironmentRemoved:
    """Remove an environment from the app; the cluster is not touched.

    Raises:
        NotFoundError: no such environment; carries the nearest one.
        UsageError: another environment extends it.
    """
    with app.locked():
        app.remove_environment(name)
    return EnvironmentRemoved(name=name)


def current_environment(app: AppDir, *, chosen: str | None = None, unset: bool = False) -> CurrentEnvironment:
    """Give the environment that commands take when they name none, after choosing one or none.

    Raises:
        NotFoundError: no such environment; carries the nearest one.
        UsageError: choose and unset at once.
    """
    if chosen is not None and unset:
        raise UsageError("`--set` and `--unset` exclude each other", hint="leave one of them out")
    if chosen is not None or unset:
        with app.locked():
            app.set_current_environment(app.environment(chosen).name if chosen is not None else None)
    return CurrentEnvironment(name=app.current_environment())


# --- `schema`: the JSON Schemas of files that people write and of results that programs read ---


@dataclass(frozen=True, kw_only=True)
class SchemaRow:
    """One schema.

    Attributes:
        name: the `kind` that it describes.
        describes: a file, or what a command prints with `-o json` and `-o yaml`.
        id: its `$id`, which never changes within a version.
        summary: what the thing is for.
    """

    name: str
    describes: Literal["file", "result"]
    id: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class SchemaList:
    """All schemas, files before results, by name."""

    schemas: tuple[SchemaRow, ...]


@dataclass(frozen=True, kw_only=True)
class Schema:
    """One schema, printed as it is.

    Attributes:
        name: the `kind` that it describes.
        content: the JSON Schema.
    """

    name: str
    content: Mapping[str, Any]

    def to_dict(self) -> Mapping[str, Any]:
        """Give the schema itself."""
        return self.content


def list_schemas() -> SchemaList:
    """List the schemas there are."""
    files = [_row("file", schema.file_schema(kind)) for kind in schema.file_kinds()]
    results = [_row("result", schema.result_schema(kind)) for kind in schema.result_kinds()]
    return SchemaList(schemas=(*files, *results))


def _row(describes: Literal["file", "result"], schema: dict[str, Any]) -> SchemaRow:
    summary = str(schema.get("description", "")).partition(". ")[0].rstrip(".")
    return SchemaRow(name=schema["title"], describes=describes, id=schema["$id"], summary=summary)


def find_schema(name: str) -> Schema:
    """Give the schema of a kind; upper and lower case are the same.

    Raises:
        NotFoundError: there is none; with the nearest known one.
    """
    files, results = schema.file_kinds(), schema.result_kinds()
    by_name = {kind.lower(): kind for kind in (*files, *results)}
    kind = by_name.get(name.lower())
    if kind is None:
        near = nearest(name, by_name.values())
        raise NotFoundError(f"no schema `{name}`", near=near, hint=None if near else "mlstack schema")
    content = schema.file_schema(kind) if kind in files else schema.result_schema(kind)
    return Schema(name=kind, content=content)
