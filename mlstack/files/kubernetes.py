"""Read the schemas of the built-in kinds that mlstack ships."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

from mlstack.errors import ConfigError
from mlstack.model.schemas import Schemas

FIRST_MINOR = 30
LAST_MINOR = 37
_DEFINITIONS = Path(__file__).with_name("kubernetes.tsv.gz")


def load_schemas(version: str) -> Schemas:
    """Give the schemas of one Kubernetes version.

    Args:
        version: `1.30` to `1.37`; `v1.36.3` is read as 1.36.

    Raises:
        ConfigError: mlstack has no schemas of that version.
    """
    return _schemas(int(check_version(version).removeprefix("1.")))


def check_version(version: str, *, where: str | None = None, environment: str = "ENV") -> str:
    """Give a Kubernetes version as `1.36`.

    Args:
        version: `1.30` to `1.37`; `v1.36.3` is read as 1.36.
        where: its place, for messages.
        environment: whose version it is, for messages.

    Raises:
        ConfigError: mlstack has no schemas of that version.
    """
    major, _, rest = version.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    if major != "1" or not minor.isdecimal() or not FIRST_MINOR <= int(minor) <= LAST_MINOR:
        raise ConfigError(
            f"`kubernetesVersion` must be 1.{FIRST_MINOR} to 1.{LAST_MINOR}, got `{version}`",
            where=where,
            hint=f"mlstack env set {environment} --kubernetes-version 1.36",
        )
    return f"1.{int(minor)}"


@cache
def _schemas(minor: int) -> Schemas:
    return Schemas(gzip.decompress(_DEFINITIONS.read_bytes()).decode(), minor=minor)
