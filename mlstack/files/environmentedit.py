"""Add, change, rename and remove environments of an app."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mlstack.errors import ConfigError, UsageError
from mlstack.files import layout
from mlstack.files.editing import Editing
from mlstack.model.app import ClusterIdentity, Environment
from mlstack.model.names import check_environment_name, check_new_name

if TYPE_CHECKING:
    from mlstack.files.edited import EditedFile


class EnvironmentEdits(Editing):
    """Changes of environments; `AppDir` is the class to use."""

    def add_environment(self, environment: Environment, *, seed: Mapping[str, bytes] | None = None) -> str:
        """Write a new environment's files and give the name of the first.

        Args:
            environment: what its file has to say.
            seed: files to begin with, by name in its folder; their comments and order stay.

        Raises:
            UsageError: the name cannot be an environment's, or it is taken.
        """
        name = check_environment_name(environment.name)
        if name in self.files.environment_names:
            raise UsageError(f"there is an environment `{name}` already", hint=f"mlstack env describe {name}")
        check_new_name(name, self.files.environment_names, "an environment")
        file = layout.environment_file(name)
        files: dict[str, bytes | str] = {
            f"{layout.ENVIRONMENTS}/{name}/{path}": data for path, data in (seed or {}).items()
        }
        edited = self._begun(file, files.pop(file, None))
        for key, value in _settings(environment).items():
            edited.set((key,), value)
        self.write({**files, file: edited.content})
        with suppress(ConfigError):  # the next command finds it checked, or says what is wrong
            self.files.document(file, "Environment")
        return file

    def _begun(self, file: str, seed: bytes | str | None) -> EditedFile:
        from mlstack.files.edited import EditedFile

        return EditedFile.of(file, seed) if isinstance(seed, bytes) else self.edited(file, "Environment")

    def edit_environment(self, name: str, changes: Mapping[str, Any]) -> tuple[str, bool]:
        """Change fields of an environment's own file.

        Args:
            name: the environment.
            changes: new values by the key of the file (`kubernetesVersion`); None removes the field.

        Returns:
            The file, and whether it changed.

        Raises:
            NotFoundError: no such environment.
        """
        self.files.environment_chain(name)
        edited = self.edited(layout.environment_file(name), "Environment")
        for key, value in changes.items():
            if value is None:
                edited.unset((key,))
            else:
                edited.set((key,), value)
        return edited.file, self.save(edited)

    def pin_identity(self, name: str, identity: ClusterIdentity) -> None:
        """Bind an environment to a cluster, in its own file.

        Raises:
            NotFoundError: no such environment.
        """
        known = {"uid": identity.uid, "ca": identity.ca, "server": identity.server}
        with self.locked():
            file, _ = self.edit_environment(
                name, {"cluster": {key: value for key, value in known.items() if value is not None}}
            )
            self.files.note_sound(file, "Environment")

    def rename_environment(self, name: str, new: str) -> None:
        """Give an environment another name; those that extend it follow.

        Raises:
            NotFoundError: no such environment.
            UsageError: the new name cannot be an environment's, or it is taken.
        """
        self.files.environment_chain(name)
        check_environment_name(new)
        if new in self.files.environment_names:
            raise UsageError(f"there is an environment `{new}` already", hint=f"mlstack env describe {new}")
        check_new_name(new, [each for each in self.files.environment_names if each != name], "an environment")
        old_folder, new_folder = (f"{layout.ENVIRONMENTS}/{each}" for each in (name, new))
        own = self._own_files(name)
        written = {
            f"{new_folder}{file.removeprefix(old_folder)}": (self.root / file).read_bytes() for file in own
        }
        follow = {edited.file: edited.content for edited in self._following(name, new)}
        current = self._current(name, f"{new}\n")
        self.write({**written, **follow, **current}, own)

    def _following(self, name: str, new: str) -> list[EditedFile]:
        found = []
        for environment in self.files.environment_names:
            edited = self.edited(layout.environment_file(environment), "Environment")
            if environment != name and edited.at(("extends",)) == name:
                edited.set(("extends",), new)
                found.append(edited)
        return found

    def remove_environment(self, name: str) -> None:
        """Remove an environment's files; the cluster is not touched.

        Raises:
            NotFoundError: no such environment.
            UsageError: another environment extends it.
        """
        self.files.environment_chain(name)
        heirs = [
            each for each in self.files.environment_names if self._extends(each) == name and each != name
        ]
        if heirs:
            listed = ", ".join(f"`{heir}`" for heir in heirs)
            raise UsageError(f"`{name}` is extended by {listed}", hint="change or remove those first")
        current = self._current(name, "")
        self.write({}, [*self._own_files(name), *current])

    def _extends(self, name: str) -> str | None:
        return self.files.environment_chain(name)[-1].environment.extends

    def _own_files(self, name: str) -> list[str]:
        """Give the files of an environment, not those of environments nested in its folder.

        Last the one that makes it an environment: after a power cut the command can be repeated.
        """
        folder = self.root / layout.ENVIRONMENTS / name
        nested = [each for each in self.files.environment_names if each.startswith(f"{name}/")]
        inside = sorted(folder.rglob("*"), key=lambda path: (path == folder / layout.ENVIRONMENT, path))
        found = [path.relative_to(self.root).as_posix() for path in inside if path.is_file()]
        return [
            file
            for file in found
            if not any(file.startswith(f"{layout.ENVIRONMENTS}/{each}/") for each in nested)
        ]

    def _current(self, name: str, content: str) -> dict[str, bytes | str]:
        """Give the file of the current environment with new content, when that environment is `name`."""
        data = self.files.bytes(layout.CURRENT_ENVIRONMENT) or b""
        return {layout.CURRENT_ENVIRONMENT: content} if data.decode(errors="replace").strip() == name else {}

    def set_current_environment(self, name: str | None) -> None:
        """Choose the environment that commands take when none is named; None takes the choice back.

        Raises:
            NotFoundError: no such environment.
        """
        if name is None:
            self.write({}, [layout.CURRENT_ENVIRONMENT])
            return
        self.files.environment_chain(name)
        self.write({layout.CURRENT_ENVIRONMENT: f"{name}\n"})


def _settings(environment: Environment) -> dict[str, Any]:
    """Give the fields of an environment's file; what is as when left out is left out."""
    plain = Environment(name=environment.name)
    context = {"context": environment.context} if environment.context else {}
    namespace = (
        {}
        if environment.extends and environment.namespace == plain.namespace
        else {"namespace": environment.namespace}
    )
    rest = {
        key: getattr(environment, name)
        for key, name in _SETTINGS.items()
        if getattr(environment, name) != getattr(plain, name)
    }
    if environment.targets:
        rest["targets"] = list(environment.targets)
    if environment.allowed_namespaces:
        rest["allowedNamespaces"] = list(environment.allowed_namespaces)
    return {**context, **namespace, **rest}


_SETTINGS = {
    "kubernetesVersion": "kubernetes_version",
    "extends": "extends",
    "protected": "protected",
    "clusterScoped": "cluster_scoped",
    "waitForLoadBalancer": "wait_for_load_balancer",
}
