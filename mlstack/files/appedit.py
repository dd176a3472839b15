"""Make an app, and change the registries it names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlstack.errors import NotFoundError, UsageError
from mlstack.files import atomic, layout, lockfile
from mlstack.files.editing import Editing
from mlstack.model import emit
from mlstack.model.app import API_VERSION, Lock, RegistryRef
from mlstack.model.names import check_app_name, check_new_name, check_registry_name

_GITIGNORE = """\
# Which environment commands take when none is named; everybody's own.
/.mlstack/
"""


class AppEdits(Editing):
    """Changes of `app.yaml`; `AppDir` is the class to use."""

    def add_registry(self, registry: RegistryRef) -> None:
        """Enter a registry in `app.yaml`.

        Raises:
            UsageError: the name is taken, or cannot be a registry's.
        """
        check_registry_name(registry.name)
        if any(known.name == registry.name for known in self.app().registries):
            raise UsageError(
                f"there is a registry `{registry.name}` already",
                hint=f"mlstack registry describe {registry.name}",
            )
        check_new_name(registry.name, [known.name for known in self.app().registries], "a registry")
        edited = self.edited(layout.APP_FILE, "App")
        edited.append(("registries",), _registry_map(registry))
        self.save(edited)

    def remove_registry(self, name: str) -> None:
        """Take a registry out of `app.yaml` and the lock.

        Raises:
            NotFoundError: no such registry.
            UsageError: packages of it are installed.
        """
        if all(known.name != name for known in self.app().registries):
            raise NotFoundError(f"no registry `{name}`", hint="mlstack registry list")
        needed = [str(package) for package in self.app().packages if package.registry == name]
        if needed:
            raise UsageError(
                f"packages of `{name}` are installed: {', '.join(needed)}", hint=f"mlstack pkg rm {needed[0]}"
            )
        edited = self.edited(layout.APP_FILE, "App")
        edited.remove(("registries",), [known.name for known in self.app().registries].index(name))
        self.save(edited)

    @classmethod
    def check_new(cls, root: Path, name: str) -> None:
        """Refuse what cannot be a new app.

        Raises:
            UsageError: the name cannot be an app's, or there is an app already.
        """
        check_app_name(name)
        if (root / layout.APP_FILE).exists():
            raise UsageError(f"there is an app at `{root}` already", hint="choose another folder")

    @classmethod
    def write_new(cls, root: Path, name: str, *, registries: Sequence[RegistryRef] = ()) -> None:
        """Write the files of a new app directory.

        Raises:
            UsageError: the name cannot be an app's, or there is an app already.
        """
        cls.check_new(root, name)
        content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": "App", "name": name}
        if registries:
            content["registries"] = [_registry_map(registry) for registry in registries]
        ignored = root / ".gitignore"
        files: dict[Path, bytes | str] = {root / layout.LOCK_FILE: lockfile.write_lock(Lock())}
        if not ignored.exists():
            files[ignored] = _GITIGNORE
        # Last what makes the folder an app: after a power cut the command can be repeated.
        atomic.write_files({**files, root / layout.APP_FILE: emit.to_yaml(content)})


def _registry_map(registry: RegistryRef) -> dict[str, str]:
    return {"name": registry.name, "address": registry.address, "protocol": registry.protocol}
