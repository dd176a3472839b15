"""What all changes of an app share: files edited one after the other, then written together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mlstack.files import atomic
from mlstack.model import emit
from mlstack.model.app import API_VERSION, App, Component, Lock, Manifest

if TYPE_CHECKING:
    from mlstack.files.appread import AppFiles
    from mlstack.files.edited import EditedFile
    from mlstack.model.prototype import Param, Prototype


class Editing:
    """The base of the classes that change an app; `AppDir` joins them."""

    root: Path

    if TYPE_CHECKING:  # what the edits need of the reading side

        @property
        def files(self) -> AppFiles:
            """Give the reader of the app's files."""

        def app(self) -> App:
            """Give what `app.yaml` says."""

        def lock(self) -> Lock:
            """Give what `mlstack.lock` says."""

        def component(self, name: str) -> Component | Manifest:
            """Give the component of a full name."""

        def prototype(self, name: str, *, where: str | None = None) -> Prototype:
            """Find a prototype."""

        def declared_params(self) -> Mapping[str, Param]:
            """Give every spelling that an installed prototype declares."""

        def forget(self) -> None:
            """Read every file anew from now on."""

    def write(self, files: Mapping[str, bytes | str], delete: Sequence[str] = ()) -> None:
        """Write and delete files below the app directory, all of them or none.

        Raises:
            ConfigError: the disk is full, the folder read-only …; nothing was changed.
        """
        contents = {self.root / file: content for file, content in files.items()}
        atomic.write_files(contents, delete=[self.root / file for file in delete])
        self.forget()

    def edited(self, file: str, kind: str) -> EditedFile:
        """Begin to edit a file of a kind; one that is not there begins with its kind alone.

        Raises:
            SchemaError: it does not fit its kind.
            YamlError: it is no YAML.
        """
        from mlstack.files.edited import EditedFile

        data = self.files.bytes(file)
        if data is None:
            start = emit.to_yaml({"apiVersion": API_VERSION, "kind": kind})
            return EditedFile(file, start)
        self.files.document(file, kind)
        return EditedFile.of(file, data)

    def save(self, edited: EditedFile) -> bool:
        """Write an edited file when it changed; tell whether it did."""
        if not edited.changed:
            return False
        self.write({edited.file: edited.content})
        return True
