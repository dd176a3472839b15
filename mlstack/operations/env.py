"""Environments of an app: add, list, describe, change, remove, choose."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mlstack.errors import ConfigError, MlstackError, UsageError
from mlstack.files import bundled
from mlstack.files.appdir import AppDir
from mlstack.files.environments import EnvironmentFiles
from mlstack.files.folders import read_folder
from mlstack.files.kubeconfig import Context, Kubeconfig
from mlstack.files.kubernetes import check_version
from mlstack.files.presets import read_preset
from mlstack.model import masking
from mlstack.model.app import ClusterScoped, Component, Environment
from mlstack.model.masking import MASK
from mlstack.model.names import check_environment_name, check_namespace
from mlstack.model.params import Layer
from mlstack.model.values import merge


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
class Settings:
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


def add(
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
    folder = bundled.preset(name) if use_preset else None
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


def list_all(app: AppDir) -> EnvironmentList:
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


def describe(app: AppDir, name: str) -> EnvironmentDescription:
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


def change(
    app: AppDir, name: str, wanted: Settings, *, kubeconfig: Kubeconfig | None = None
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


def _change(app: AppDir, name: str, wanted: Settings, kubeconfig: Kubeconfig | None) -> EnvironmentChanged:
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


def _changes(wanted: Settings) -> dict[str, Any]:
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


def remove(app: AppDir, name: str) -> EnvironmentRemoved:
    """Remove an environment from the app; the cluster is not touched.

    Raises:
        NotFoundError: no such environment; carries the nearest one.
        UsageError: another environment extends it.
    """
    with app.locked():
        app.remove_environment(name)
    return EnvironmentRemoved(name=name)


def current(app: AppDir, *, chosen: str | None = None, unset: bool = False) -> CurrentEnvironment:
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
