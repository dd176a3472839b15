"""Retired names: what an app's registries say of prototypes that people know from elsewhere."""

from collections.abc import Iterator

from mlstack.errors import MlstackError, NotFoundError
from mlstack.files.appdir import AppDir
from mlstack.model.app import RegistryRef, Retired
from mlstack.model.prototype import Prototype
from mlstack.registries.base import refuse_retired
from mlstack.registries.catalog import is_local, open_registry


def find_prototype(app: AppDir, name: str) -> Prototype:
    """Find an installed prototype; what is installed comes before what is retired.

    Args:
        app: the app directory.
        name: full name, alias or unique end, as typed.

    Raises:
        NotFoundError: none, or several; of a retired name the reason and what to do instead.
    """
    try:
        return app.prototype(name)
    except NotFoundError:
        refuse_if_retired(app, name)
        raise


def refuse_if_retired(app: AppDir, name: str) -> None:
    """Raise if a registry of the app calls a name retired; no network is used.

    Raises:
        NotFoundError: with the reason, and what to do instead.
    """
    short = name.removeprefix("io.ksonnet.pkg.").rpartition("/")[2]
    for registry, retired in _known(app):
        refuse_retired(short, retired, registry=registry)


def _known(app: AppDir) -> Iterator[tuple[str, tuple[Retired, ...]]]:
    """Give the retired names by registry: asked now of those on this machine, else as they were locked."""
    locked = {each.name: each.retired for each in app.lock().registries}
    for ref in app.app().registries:
        try:
            yield ref.name, _asked(app, ref) if is_local(ref) else locked.get(ref.name, ())
        except MlstackError:  # the name was not found: that error is the one to show
            continue


def _asked(app: AppDir, ref: RegistryRef) -> tuple[Retired, ...]:
    return open_registry(ref, root=app.root).index().retired
