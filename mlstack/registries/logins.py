"""Who we are for a registry: what `docker login`, `podman login` and helm left behind, or a helper keeps."""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack import programs
from mlstack.addresses import address
from mlstack.dataclass import dataclass
from mlstack.errors import RegistryError, YamlError
from mlstack.objects import masking
from mlstack.programs import ProgramError
from mlstack.yaml.read import read_document

if TYPE_CHECKING:
    from mlstack.web import Web

_HELPER = re.compile(r"[\w.-]+")
_TIMEOUT_S = 30.0
_DOCKER_HUB = "https://index.docker.io/v1/"


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A name and a password; or a token that is exchanged for others."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)


def credentials(host: str) -> dict[str, Credentials]:
    """Give the credentials for a registry's host, by the path below it that they are for, empty for all.

    They are looked for where docker, podman and skopeo have them; of several files the first that has some.

    Raises:
        RegistryError: a file is no JSON, or a helper fails.
    """
    logins: dict[str, Credentials] = {}
    for file in _files():
        logins = {**_of_file(file, host), **logins}
        if "" in logins:
            break
    return logins


def _files() -> Iterator[Path]:
    home = os.path.expanduser("~")  # noqa: PTH111 # may have none
    if own := os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(own)
    yield Path(os.environ.get("DOCKER_CONFIG") or f"{home}/.docker", "config.json")
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime, "containers/auth.json")
    yield Path(os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "containers/auth.json")
    yield _helm_file("HELM_REGISTRY_CONFIG", "registry/config.json")


def _of_file(file: Path, host: str) -> dict[str, Credentials]:
    """Give what one file has, or the helpers that it names."""
    try:
        config = json.loads(file.read_bytes())
    except OSError:
        return {}
    except ValueError as error:
        raise RegistryError(f"the logins of `{file}` are no JSON", hint="mend or remove it") from error
    if not isinstance(config, Mapping):
        return {}
    for key in (_DOCKER_HUB, "docker.io") if host.endswith("docker.io") else (host, f"https://{host}"):
        helper = _map(config, "credHelpers").get(key) or config.get("credsStore")
        if isinstance(helper, str) and (login := _ask(helper, key)):
            return {"": login}
    return of_pull_secret(config, host)


def of_pull_secret(config: Mapping[str, Any], host: str) -> dict[str, Credentials]:
    """Give the credentials that stand in a configuration of docker's, as in pull secrets; runs no helper.

    Hosts may have wildcards, as kubelets match them: `*.example.org` is for one more name before the rest.
    """
    logins: dict[str, Credentials] = {}
    for key, entry in sorted(_map(config, "auths").items(), key=lambda item: "*" in item[0]):
        name, _, path = re.sub("^https?://|/(v[12]/?)?$", "", key).partition("/")
        is_meant = _is_for(name, host) or (name.endswith("docker.io") and host.endswith("docker.io"))
        if is_meant and isinstance(entry, Mapping) and (login := _entry(entry)):
            logins.setdefault(path, login)
    return logins


def _is_for(pattern: str, host: str) -> bool:
    """Match a host as kubelets do: name by name, the port to the letter."""
    (names, _, port), (own, _, own_port) = pattern.partition(":"), host.partition(":")
    pairs = names.split("."), own.split(".")
    return (
        port == own_port
        and len(pairs[0]) == len(pairs[1])
        and all(fnmatchcase(name, glob) for glob, name in zip(*pairs, strict=True))
    )


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
        raise RegistryError(f"the logins name a helper that cannot be one: {helper!a}")
    program = f"docker-credential-{helper}"
    try:
        answer = programs.run([program, "get"], stdin=key.encode(), timeout_s=_TIMEOUT_S).stdout
    except ProgramError as error:
        if error.status is not None:  # it ran, and has nothing
            return None
        hint = error.hint or "check `credHelpers` and `credsStore` of ~/.docker/config.json"
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


# --- chart repositories: what `helm repo add` keeps ---


def chart_login(url: str, *, repository: str) -> dict[str, str]:
    """Give the header that shows who we are at an address of a chart repository, as helm would send it.

    It goes to the repository's own server alone, unless its user has said `--pass-credentials`.

    Raises:
        RegistryError: helm's list of repositories cannot be read.
    """
    for entry in _entries_of(repository):
        user, password = str(entry.get("username") or ""), str(entry.get("password") or "")
        if not (user or password):
            continue
        if entry.get("pass_credentials_all") is True or _server(url) == _server(repository):
            from mlstack.http import basic

            return {"Authorization": basic(user, password)}
    return {}


def chart_web(repository: str) -> Web:
    """Give what asks a chart repository: its server is trusted, and told who we are, as helm would.

    That is what `--ca-file`, `--cert-file`, `--key-file` and `--insecure-skip-tls-verify` of `helm repo add`
    have left; it holds for no other server.

    Raises:
        RegistryError: helm's list of repositories cannot be read.
    """
    from mlstack.web import Trust, Web

    for entry in _entries_of(repository):
        files = [str(entry.get(name) or "") for name in ("caFile", "certFile", "keyFile")]
        verify = entry.get("insecure_skip_tls_verify") is not True
        if any(files) or not verify:
            authorities, certificate, key = files
            trust = Trust(
                server=repository, authorities=authorities, certificate=certificate, key=key, verify=verify
            )
            return Web(trust)
    return Web()


def _entries_of(repository: str) -> list[Mapping[str, Any]]:
    """Give what `helm repo add` wrote of an address."""
    place = repository.rstrip("/")
    return [entry for entry in _repositories() if str(entry.get("url")).rstrip("/") == place]


def chart_repository(name: str) -> str:
    """Give the address that `helm repo add` gave a name, or nothing."""
    return next((str(entry.get("url")) for entry in _repositories() if entry.get("name") == name), "")


def _repositories() -> list[Mapping[str, Any]]:
    file = _helm_file("HELM_REPOSITORY_CONFIG", "repositories.yaml")
    try:
        content = read_document(file.read_text("utf-8"), source=str(file), with_positions=False).value
    except OSError:
        return []
    except (YamlError, UnicodeDecodeError) as error:
        raise RegistryError(
            f"helm's list of repositories cannot be read: {error}", where=str(file)
        ) from error
    listed = content.get("repositories") if isinstance(content, Mapping) else None
    return [entry for entry in listed or () if isinstance(entry, Mapping)] if isinstance(listed, list) else []


def _helm_file(variable: str, name: str) -> Path:
    """Give where helm keeps a file of its configuration: https://helm.sh/docs/helm/helm."""
    if place := os.environ.get(variable):
        return Path(place)
    usual = "~/Library/Preferences" if sys.platform == "darwin" else "~/.config"
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser(usual)  # noqa: PTH111 # may have no home
    return Path(os.environ.get("HELM_CONFIG_HOME") or f"{base}/helm") / name


def _server(url: str) -> tuple[str, str, int] | None:
    try:
        there = address(url.partition("?")[0])
    except ValueError:
        return None
    return there.scheme, there.host, there.port
