"""Create an app directory."""

from dataclasses import dataclass
from pathlib import Path

from mlstack.files import layout
from mlstack.files.appdir import AppDir
from mlstack.files.editing import app_lock
from mlstack.model.app import RegistryRef

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
