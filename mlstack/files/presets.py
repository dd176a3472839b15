"""Read the environments that come with mlstack: `env add` makes those of the same name from them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlstack.files import bundled
from mlstack.files.appread import AppFiles
from mlstack.files.environments import EnvironmentFiles


def read_preset(folder: Path) -> EnvironmentFiles:
    """Read one preset, as an environment of the folder that comes with mlstack."""
    (found,) = AppFiles(folder.parent.parent, None).environment_chain(folder.name)
    return found


def preset_globals() -> tuple[Mapping[str, Any], ...]:
    """Give what each preset sets for all components.

    Raises:
        MlstackError: the installation is broken.
    """
    root = bundled.folder("environments")
    return tuple(read_preset(root / name).globals.values for name in bundled.presets())
