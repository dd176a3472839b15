"""Where the files of an app directory stand, and how its folders are walked."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

TYPE_CHECKING = False  # as in `typing`, which is an import
if TYPE_CHECKING:
    from pathlib import Path

APP_FILE = "app.yaml"
LOCK_FILE = "mlstack.lock"
COMPONENTS = "components"
ENVIRONMENTS = "environments"
VENDOR = "vendor"
MODULE_PARAMS = "params.yaml"
ENVIRONMENT = "environment.yaml"
APPROVED = "environments/approved-differences.yaml"
PRICES = "prices.yaml"  # below environments/, or one environment's folder
SNAPSHOT = "cluster.json"
POLICIES = "policies"
CURRENT_ENVIRONMENT = ".mlstack/current-environment"
OVERRIDES = ".mlstack/overrides.yaml"
APP_LOCK = ".mlstack/lock"
_SUFFIXES = (".yaml", ".yml", ".json")


def find_root(start: Path) -> Path | None:
    """Give the app directory that a folder lies in: the folder itself, or the nearest above it."""
    root = root_of(os.fspath(start.absolute()))
    return None if root is None else type(start)(root)


def root_of(folder: str) -> str | None:
    """Give the app directory that an absolute path lies in; `find_root` for where nothing else is loaded.

    Raises:
        OSError: a folder on the way may not be looked into.
    """
    while not _is_file(f"{folder}/{APP_FILE}"):
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return None
        folder = above
    return folder


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


def module_params_file(module: str) -> str:
    """Give the parameter file of a module."""
    return f"{module_folder(module)}/{MODULE_PARAMS}"


def module_folder(module: str) -> str:
    """Give the folder of a module."""
    return "/".join([COMPONENTS, *module.split(".")])


def enclosing(module: str) -> tuple[str, ...]:
    """Give a module and those it lies in, the outermost first; none for the root."""
    parts = module.split(".") if module else []
    return tuple(".".join(parts[:length]) for length in range(1, len(parts) + 1))


def component_file(module: str, name: str) -> str:
    """Give the file that a new component is written to."""
    return "/".join([COMPONENTS, *(module.split(".") if module else ()), f"{name}.yaml"])


def environment_file(name: str) -> str:
    """Give the file of an environment."""
    return f"{ENVIRONMENTS}/{name}/{ENVIRONMENT}"


def environment_params_file(name: str) -> str:
    """Give the parameter file of an environment."""
    return f"{ENVIRONMENTS}/{name}/params.yaml"


def encrypted_params_file(name: str) -> str:
    """Give the parameter file of an environment that SOPS has encrypted."""
    return f"{ENVIRONMENTS}/{name}/params.sops.yaml"


def patch_file(environment: str, component: str) -> str:
    """Give the file with an environment's patches for a component."""
    return f"{ENVIRONMENTS}/{environment}/patches/{component}.yaml"


def patch_files(root: Path, environment: str) -> dict[str, str]:
    """Give component → file of every YAML file among an environment's patches, in a stable order.

    A file whose name does not end with `.yaml` is no component's.
    """
    folder = f"{ENVIRONMENTS}/{environment}/patches"
    names = sorted(entry.name for entry in (root / folder).glob("*"))
    patches = [name for name in names if name.endswith(_SUFFIXES) and not name.startswith(".")]
    return {name.removesuffix(".yaml"): f"{folder}/{name}" for name in patches}


def policy_files(root: Path) -> Iterator[str]:
    """Give the files of an app's own policies, in a stable order."""
    from pathlib import Path

    for folder, _, files in walk(root / POLICIES):
        for name in files:
            if name.endswith(_SUFFIXES):
                yield (Path(folder) / name).relative_to(root).as_posix()


def component_files(root: Path) -> Iterator[tuple[str, str, str]]:
    """Give (file, module, name) of every file that stands for a component, in a stable order."""
    from pathlib import Path

    base = root / COMPONENTS
    for folder, _, files in walk(base):
        parts = Path(folder).relative_to(base).parts
        for file in files:
            stem, dot, suffix = file.rpartition(".")
            if file in _OF_OTHERS or suffix in ("jsonnet", "libsonnet"):
                _lead_elsewhere("/".join([COMPONENTS, *parts]), file)
            if dot + suffix in _SUFFIXES and not (file == MODULE_PARAMS and parts):
                yield "/".join([COMPONENTS, *parts, file]), ".".join(parts), stem


_OF_OTHERS = {
    "Chart.yaml": (
        "a Helm chart",
        "keep charts in a registry of their own, or: mlstack import helm {folder}",
    ),
    **dict.fromkeys(
        ("kustomization.yaml", "kustomization.yml", "Kustomization"),
        ("a kustomization", "move it elsewhere, then: mlstack import kustomize {folder}"),
    ),
}
_JSONNET = (
    "jsonnet",
    "in an app of ksonnet: mlstack import ksonnet-app DIR; else: jsonnet FILE | mlstack import -",
)


def _lead_elsewhere(folder: str, file: str) -> None:
    """Refuse what another tool takes, with the command that brings it over."""
    from mlstack.errors import ConfigError

    what, hint = _OF_OTHERS.get(file, _JSONNET)
    message = f"`{file}` is no component but {what}"
    raise ConfigError(message, where=f"{folder}/{file}", hint=hint.format(folder=folder))


def walk(base: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk folders in a stable order; hidden folders and files are passed over."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            from mlstack.errors import ConfigError

            message = f"cannot read the folder: {(error.strerror or str(error)).lower()}"
            raise ConfigError(message, where=str(error.filename), hint="check its rights") from error

    for folder, folders, files in os.walk(base, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield folder, folders, sorted(name for name in files if not name.startswith("."))
