"""Reads the values of secret parameters where they stand: environment variables, and files through `sops`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
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
    command = ["sops", "--decrypt", "--input-type", "yaml", "--output-type", "json"]
    try:
        programs.find("sops")
    except MlstackError as error:
        message = f"`{name}` is encrypted by SOPS, and the program `sops` is not installed"
        raise RegistryError(message, hint="install it: https://getsops.io") from error
    try:
        value = json.loads(programs.run([*command, "/dev/stdin" if data else str(file)], stdin=data).stdout)
    except programs.ProgramError as error:
        hint = f"whoever may read it has its key: sops decrypt {name}"
        raise ConfigError(error.message, where=name, hint=hint) from error
    return {key: inner for key, inner in value.items() if key != SOPS}
