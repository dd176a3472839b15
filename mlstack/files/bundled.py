"""Find the folders that come with mlstack: `prototypes`, `registry` and `environments`."""

from pathlib import Path

from mlstack.errors import MlstackError

NAMES = ("prototypes", "registry", "environments")


def folder(name: str) -> Path:
    """Give a bundled folder: in the installed package first, in the checkout beside it second.

    Raises:
        MlstackError: it is in neither, so the installation is broken.
    """
    package = Path(__file__).parent.parent
    for base in (package / "_bundled", package.parent):
        if (base / name).is_dir():
            return base / name
    raise MlstackError(
        f"the folder `{name}` that comes with mlstack is missing", hint="install mlstack again"
    )


def presets() -> tuple[str, ...]:
    """Give the names of the environment presets, sorted."""
    root = folder("environments")
    return tuple(sorted(file.parent.name for file in root.glob("*/environment.yaml")))


def preset(name: str) -> Path | None:
    """Give the folder of an environment preset, or nothing when there is none of that very name."""
    return folder("environments") / name if name in presets() else None
