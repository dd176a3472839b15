"""Components of an app: generate one from a prototype, list, remove."""

from dataclasses import dataclass

from mlstack.errors import ConfigError
from mlstack.files.appdir import AppDir
from mlstack.files.drafts import Wanted, draft
from mlstack.files.schema import PassedStore
from mlstack.model.app import Component, Manifest
from mlstack.registries.retired import find_prototype


@dataclass(frozen=True, kw_only=True)
class Generated:
    """A component that was made.

    Attributes:
        name: its full name.
        prototype: full name of its prototype.
        file: its file below the app directory.
        replaced: whether there was one of that name before.
        notes: which prototype an alias stood for, deprecated parameters, and what the prototype says
            about its use.
    """

    name: str
    prototype: str
    file: str
    replaced: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ComponentRow:
    """One component in a list.

    Attributes:
        name: its full name.
        type: `prototype` or `manifest`.
        module: its module, empty at the root.
        prototype: full name of its prototype, None for manifests.
        package: package and version of its prototype, None for manifests.
        file: its file below the app directory.
        depends_on: components and modules that have to work before its objects are written.
    """

    name: str
    type: str
    module: str
    prototype: str | None
    package: str | None
    file: str
    depends_on: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ComponentList:
    """The components of an app, by name."""

    components: tuple[ComponentRow, ...]


@dataclass(frozen=True, kw_only=True)
class ComponentRemoved:
    """A component that is gone from the app.

    Attributes:
        name: its full name.
        files: the files that were deleted or changed, below the app directory.
    """

    name: str
    files: tuple[str, ...]


def generate(
    app: AppDir, wanted: Wanted, *, replace: bool = False, store: PassedStore | None = None
) -> Generated:
    """Make a component; only what was given is written, the rest follows the package.

    What an alias sets counts as given, below the options.

    Raises:
        UsageError: no name, an unknown parameter, a required one missing, or the component exists.
        NotFoundError: no such prototype; of a retired name what to do instead.
        ParamError: a value does not fit its parameter.
    """
    with app.locked():
        prototype = find_prototype(app, wanted.prototype)
        found = draft(app, wanted, prototype, passed=store)
        told = (prototype.alias_note(wanted.prototype), *found.resolved.notes, *prototype.notes.splitlines())
        name = found.component.full_name
        exists = name in app.component_names()
        return Generated(
            name=name,
            prototype=found.prototype.full_name,
            file=app.add_component(found.component, replace=replace),
            replaced=exists,
            notes=tuple(line for line in told if line.strip()),
        )


def list_all(app: AppDir) -> ComponentList:
    """List the components of an app, by name."""
    return ComponentList(components=tuple(_row(app, component) for component in app.components()))


def _row(app: AppDir, component: Component | Manifest) -> ComponentRow:
    if not isinstance(component, Component):
        return ComponentRow(
            name=component.full_name,
            type="manifest",
            module=component.module,
            prototype=None,
            package=None,
            file=component.file,
        )
    prototype = app.prototype(component.prototype)
    return ComponentRow(
        name=component.full_name,
        type="prototype",
        module=component.module,
        prototype=prototype.name,
        package=f"{prototype.registry}/{prototype.package}@{prototype.version}",
        file=component.file,
        depends_on=component.depends_on,
    )


def remove(app: AppDir, name: str) -> ComponentRemoved:
    """Remove a component's file and what every environment says about it.

    Raises:
        NotFoundError: no such component.
        ConfigError: another component depends on it.
    """
    with app.locked():
        found = app.component(name).full_name
        for other in app.components():
            if isinstance(other, Component) and found in other.depends_on:
                raise ConfigError(
                    f"component `{other.full_name}` depends on `{found}`",
                    where=app.files.place(other.file, ("dependsOn", other.depends_on.index(found))),
                    hint="take it out of `dependsOn` there first",
                )
        return ComponentRemoved(name=found, files=app.remove_component(found))
