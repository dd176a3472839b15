"""Reads the values of secret parameters where they stand: environment variables, and files through `sops`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlstack import programs
from mlstack.app.secret_values import SOPS, SecretRef
from mlstack.errors import ConfigError, MlstackError, RegistryError


class SecretValues:
    """Reads what references name, each file once.

    Args:
        root: the app's folder.
        environ: the environment variables.
    """

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self._root, self._environ = root, environ
        self._files: dict[str, Any] = {}

    def read(self, reference: SecretRef) -> Any:
        """Give a value.

        Raises:
            ConfigError: the variable is not set, or the file cannot be decrypted.
            RegistryError: there is no program `sops`.
        """
        if reference.variable:
            if not (text := self._environ.get(reference.variable)):
                message = f"the environment variable `{reference.variable}` is not set"
                raise ConfigError(message, hint=f"{reference.variable}=… mlstack …, or export it")
            return text
        if reference.file not in self._files:
            self._files[reference.file] = decrypt(self._root / reference.file, name=reference.file)
        value = self._files[reference.file]
        for part in reference.path:
            value = value[part]
        return value


def decrypt(file: Path, *, name: str, data: bytes = b"") -> Any:
    """Give what a file says that SOPS has encrypted, through the user's `sops` and its keys.

    `data` is its content, where it cannot be opened anew as stdin cannot.

    Raises:
        ConfigError: it cannot be decrypted, as without its key.
        RegistryError: there is no program `sops`.
    """
    options = ["--input-type", "yaml", "--output-type", "json"]
    value = json.loads(
        _sops("--decrypt", *options, "/dev/stdin" if data else str(file), name=name, stdin=data)
    )
    return {key: inner for key, inner in value.items() if key != SOPS}


def _sops(*arguments: str, name: str, stdin: bytes = b"") -> bytes:
    try:
        programs.find("sops")
    except MlstackError as error:
        message = f"`{name}` is encrypted by SOPS, and the program `sops` is not installed"
        raise RegistryError(message, hint="install it: https://getsops.io") from error
    try:
        return programs.run(["sops", *arguments], stdin=stdin).stdout
    except programs.ProgramError as error:
        hint = f"whoever may read it has its key: sops decrypt {name}"
        raise ConfigError(error.message, where=name, hint=hint) from error


def renamed(file: Path, *, name: str, names: Mapping[str, str | None]) -> bytes:
    """Give a file that SOPS has encrypted with other names for components, or without them (None).

    `sops` binds each value to its place, so that what moves is encrypted anew; nothing is ever written
    that is not encrypted.

    Raises:
        ConfigError: it cannot be decrypted, as without its key.
        RegistryError: there is no program `sops`.
    """
    values = decrypt(file, name=name)["components"]
    with TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        copy.write_bytes(file.read_bytes())
        for old, new in names.items():
            if new is not None:
                content = json.dumps(values[old]).encode()
                _sops("set", "--value-stdin", str(copy), f'["components"]["{new}"]', name=name, stdin=content)
            _sops("unset", str(copy), f'["components"]["{old}"]', name=name)
        return copy.read_bytes()
