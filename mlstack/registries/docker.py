"""Who we are for an OCI registry: what `docker login` left behind, or the helper that keeps it."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlstack import programs
from mlstack.errors import RegistryError
from mlstack.objects import masking
from mlstack.programs import ProgramError

_HELPER = re.compile(r"[\w.-]+")
_TIMEOUT_S = 30.0
_DOCKER_HUB = "https://index.docker.io/v1/"


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A name and a password; or a token that is exchanged for others."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


def credentials(host: str) -> Credentials | None:
    """Give the credentials for a registry's host, as docker and its helpers have them; None without.

    Raises:
        RegistryError: docker's configuration is no JSON, or a helper fails.
    """
    folder = os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker")  # noqa: PTH111 # may have no home
    file = Path(folder) / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except OSError:
        return None
    except ValueError as error:
        raise RegistryError(
            f"docker's configuration `{file}` is no JSON", hint="mend or remove it"
        ) from error
    if not isinstance(config, Mapping):
        return None
    keys = (_DOCKER_HUB, "docker.io") if host.endswith("docker.io") else (host, f"https://{host}")
    helpers, auths = _map(config, "credHelpers"), _map(config, "auths")
    for key in keys:
        helper = helpers.get(key) or config.get("credsStore")
        if isinstance(helper, str) and (answer := _ask(helper, key)):
            return answer
    known = {key.rstrip("/").removesuffix("/v1").removesuffix("/v2"): entry for key, entry in auths.items()}
    for key in keys:
        entry = auths.get(key) or known.get(key.rstrip("/").removesuffix("/v1"))
        if isinstance(entry, Mapping) and (found := _entry(entry)):
            return found
    return None


def _map(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def _entry(entry: Mapping[str, Any]) -> Credentials | None:
    """Read what `docker login` writes where no helper is."""
    token = entry.get("identitytoken")
    try:
        text = base64.b64decode(str(entry.get("auth") or ""), validate=True).decode()
    except ValueError:
        text = ""
    user, _, password = text.partition(":")
    user, password = user or str(entry.get("username") or ""), password or str(entry.get("password") or "")
    return _noted(user, password.rstrip("\0"), token if isinstance(token, str) else "")


def _ask(helper: str, key: str) -> Credentials | None:
    """Ask the helper that docker would ask; one that knows nothing of the host is no fault."""
    if not _HELPER.fullmatch(helper):
        raise RegistryError(f"docker's configuration names a helper that cannot be one: {helper!a}")
    program = f"docker-credential-{helper}"
    try:
        answer = programs.run([program, "get"], stdin=key.encode(), timeout_s=_TIMEOUT_S).stdout
    except ProgramError as error:
        if error.status is not None:  # it ran, and has nothing
            return None
        hint = error.hint or "check `credHelpers` and `credsStore` of docker's configuration"
        raise RegistryError(f"the credentials of `{key}` cannot be had: {error}", hint=hint) from error
    try:
        value = json.loads(answer)
        user, secret = str(value["Username"]), str(value["Secret"])
    except (ValueError, KeyError, TypeError):
        raise RegistryError(
            f"`{program}` gives no credentials that can be read", hint="log in anew"
        ) from None
    return _noted("", "", secret) if user == "<token>" else _noted(user, secret, "")


def _noted(user: str, password: str, token: str) -> Credentials | None:
    masking.note(*filter(None, (password, token)))
    if not (token or (user and password)):
        return None
    return Credentials(user=user, password=password, identity_token=token)
