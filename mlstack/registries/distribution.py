"""The API of the distribution specification, which every OCI registry speaks: manifests, blobs, tags, tokens.

`oras` was tried and falls short: it checks no digest of what it downloads, knows limits neither of size nor
of time, runs credential helpers itself, and brings a second HTTP library. What is left is small.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mlstack import clock, programs
from mlstack.addresses import address, joined, quote
from mlstack.dataclass import Record, dataclass
from mlstack.disk_cache import from_json
from mlstack.errors import RegistryError, YamlError
from mlstack.objects import masking
from mlstack.programs import ProgramError
from mlstack.yaml.read import read_document

if TYPE_CHECKING:
    from mlstack.web import Answer, Web

SCHEME = "oci://"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_MOST_PAGES, _MOST_REPOSITORIES = 100, 1000
MOST_MANIFEST_BYTES = 4 << 20  # the limit that the specification names
TIMEOUT_S = 300.0  # for one answer: an archive over a slow line
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REFERENCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_HUB_API = "registry-1.docker.io"


def digest_of(data: bytes) -> str:
    """Give `sha256:…` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def split_address(address: str) -> tuple[str, str]:
    """Give host and path of `oci://HOST[:PORT]/PATH`."""
    host, _, path = address.removeprefix(SCHEME).rstrip("/").partition("/")
    if not address.startswith(SCHEME) or "@" in host:
        raise RegistryError(f"`{address}` is no OCI address", hint="write oci://HOST/PATH; docker login HOST")
    return host, path


def repository_of(path: str, name: str) -> str:
    """Give where something lies below a path: `PATH/NAME`, or the path where that ends in the name."""
    return path if path.rpartition("/")[2] == name else f"{path}/{name}".removeprefix("/")


class UnauthorizedError(RegistryError):
    """Raised when a registry does not let us in; some answer so for what is not there."""


def canonical_json(value: Mapping[str, Any]) -> bytes:
    """Write a manifest so that the same content has the same digest."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


@dataclass(frozen=True)
class ArtifactManifest:
    """A manifest whose bytes have the digest."""

    digest: str
    data: bytes
    value: Mapping[str, Any]
    media_type: str = MANIFEST

    @property
    def layers(self) -> list[Mapping[str, Any]]:
        """Give the descriptors of the layers."""
        layers = self.value.get("layers")
        return [layer for layer in layers if isinstance(layer, Mapping)] if isinstance(layers, list) else []


class Distribution:
    """One registry server. Names of repositories are those below it."""

    def __init__(self, host: str, *, logins: Mapping[str, Credentials] | None = None) -> None:
        from mlstack.web import Web

        try:
            parts = address(f"https://{host}")
        except ValueError:
            raise RegistryError(f"`{host}` is no host of a registry", hint="write oci://HOST/PATH") from None
        self.host = host
        is_hub = parts.host in ("docker.io", "index.docker.io")
        self._base = f"{'http' if parts.is_here else 'https'}://{_HUB_API if is_hub else host}/v2"
        self._web = Web()
        self._proofs: dict[str, str] = {}  # scope → header
        self._logins = logins

    # --- reading ---

    def manifest(self, name: str, reference: str, *, accept: str = MANIFEST) -> ArtifactManifest | None:
        """Give a manifest by tag or digest, of a type that `accept` names; None when it is not there."""
        _check(name, reference)
        answer = self._send("GET", f"{name}/manifests/{reference}", name, headers={"Accept": accept})
        if answer.status == 404:
            return None
        self._refuse(answer, 200)
        if len(answer.data) > MOST_MANIFEST_BYTES:
            raise self._fault(f"its manifest of `{name}` is larger than {MOST_MANIFEST_BYTES >> 20} MiB")
        digest = digest_of(answer.data)
        if DIGEST.fullmatch(reference) and digest != reference:
            raise self._lie(f"{name}@{reference}", digest)
        value = from_json(answer.data, dict)
        if value is None or value.get("schemaVersion") != 2:
            raise self._fault(f"its answer for `{name}:{reference}` is no manifest")
        media_type = value.get("mediaType") or (answer.headers.get("Content-Type") or "").partition(";")[0]
        return ArtifactManifest(digest, answer.data, value, str(media_type or MANIFEST))

    def tags(self, name: str) -> list[str] | None:
        """Give all tags of a repository, None where there is no such."""
        _check(name, "latest")
        tags = self._listed(f"{name}/tags/list?n=1000", name, "tags")
        return tags and [tag for tag in tags if _REFERENCE.fullmatch(tag)]

    def repositories(self, path: str) -> list[str] | None:
        """Give the names right below a path; None where there is no list, as few give it to everybody."""
        try:
            names = self._listed("_catalog?n=1000", "", "repositories")
        except RegistryError:
            return None
        below = f"{path}/" if path else ""
        inside = [name.removeprefix(below) for name in names or () if name.startswith(below)]
        names_below = [name for name in inside if _NAME.fullmatch(name) and "/" not in name]
        return None if names is None else names_below[:_MOST_REPOSITORIES]

    def referrers(self, name: str, digest: str) -> list[Mapping[str, Any]] | None:
        """Give the descriptors of what says that it belongs to a manifest; None from registries without that.

        See https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-referrers.
        """
        _check(name, digest)
        try:
            entries = self._listed(f"{name}/referrers/{digest}", name, "manifests", kind=Mapping)
        except UnauthorizedError:
            raise
        except RegistryError:
            return None
        return entries and [entry for entry in entries if DIGEST.fullmatch(str(entry.get("digest")))]

    def _listed(self, path: str, name: str, key: str, *, kind: type = str) -> list[Any] | None:
        """Give all of a list that may come page by page, None where it is not there."""
        entries: list[Any] = []
        for _ in range(_MOST_PAGES):
            answer = self._send("GET", path, name)
            if answer.status == 404:
                return None
            self._refuse(answer, 200)
            if (listed := from_json(answer.data, dict)) is None:
                raise self._fault(f"its list of {key} of `{name}` cannot be read")
            entries += [entry for entry in listed.get(key) or () if isinstance(entry, kind)]
            more = re.match(r'<([^>]+)>\s*;\s*rel="?next', answer.headers.get("Link") or "")
            if more is None:
                break
            path = joined(answer.url, more[1])
        return entries

    def blob(self, name: str, digest: str) -> bytes:
        """Give a blob, its digest checked."""
        answer = self._blob(name, digest, whole=True)
        if digest_of(answer.data) != digest:
            raise self._lie(f"{name}@{digest}", digest_of(answer.data))
        return answer.data

    def blob_pieces(self, name: str, digest: str) -> Iterator[bytes]:
        """Give a blob as it comes, however large it is; its digest is checked before its end is told."""
        content = hashlib.sha256()
        for piece in self._blob(name, digest, whole=False).pieces():
            content.update(piece)
            yield piece
        if (actual := f"sha256:{content.hexdigest()}") != digest:
            raise self._lie(f"{name}@{digest}", actual)

    def _blob(self, name: str, digest: str, *, whole: bool) -> Answer:
        _check(name, digest)
        answer = self._send("GET", f"{name}/blobs/{digest}", name, whole=whole)
        self._refuse(answer, 200)
        return answer

    # --- writing ---

    def has_blob(self, name: str, digest: str) -> bool:
        """Tell whether a blob is there; a registry that does not say will say when it is sent."""
        _check(name, digest)
        return self._send("HEAD", f"{name}/blobs/{digest}", name, push=True).status == 200

    def receive_blob(self, name: str, digest: str, size: int, source: Distribution, source_name: str) -> None:
        """Take a blob over from another registry as it comes, or from another repository of the same one."""
        mount = f"?mount={digest}&from={source_name}" if source.host == self.host else ""
        pieces = _Blob(source, source_name, digest)
        self._upload(name, digest, pieces, mount=mount, headers={"Content-Length": str(size)})

    def push_blob(self, name: str, data: bytes) -> str:
        """Upload a blob that is not there yet, and give its digest."""
        digest = digest_of(data)
        if not self.has_blob(name, digest):
            self._upload(name, digest, data)
        return digest

    def _upload(
        self,
        name: str,
        digest: str,
        body: bytes | Iterable[bytes],
        *,
        mount: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        started = self._send("POST", f"{name}/blobs/uploads/{mount}", name, push=True, body=b"")
        if mount and started.status == 201:
            return
        self._refuse(started, 202)
        if not (location := started.headers.get("Location")):
            raise self._fault("it names no place to upload to")
        place = joined(started.url, location)
        place += f"{'&' if '?' in place else '?'}digest={digest}"
        headers = {"Content-Type": "application/octet-stream", **(headers or {})}
        answer = self._send("PUT", place, name, push=True, headers=headers, body=body)
        self._refuse_other(answer, name, digest)

    def push_manifest(self, name: str, reference: str, data: bytes, *, media_type: str = MANIFEST) -> str:
        """Upload a manifest as it is written under a tag or digest, and give its digest."""
        _check(name, reference)
        headers = {"Content-Type": media_type}
        path = f"{name}/manifests/{reference}"
        answer = self._send("PUT", path, name, push=True, headers=headers, body=data)
        digest = digest_of(data)
        self._refuse_other(answer, name, digest)
        return digest

    # --- requests, and who sends them ---

    def _send(
        self,
        method: str,
        path: str,
        name: str,
        *,
        push: bool = False,
        headers: Mapping[str, str] | None = None,
        body: bytes | Iterable[bytes] | None = None,
        whole: bool = True,
    ) -> Answer:
        """Send a request; one that is refused goes again with what the refusal asks for."""
        url = path if "://" in path else f"{self._base}/{path}"
        scope = f"repository:{name}:{'pull,push' if push else 'pull'}"
        is_ours = url.startswith(self._base.removesuffix("v2"))
        for is_again in (False, True):
            proof = {"Authorization": self._proofs[scope]} if is_ours and scope in self._proofs else {}
            sent = {**(headers or {}), **proof}
            answer = self._web.send(method, url, headers=sent, body=body, timeout_s=TIMEOUT_S, whole=whole)
            if answer.status != 401 or is_again or not is_ours:
                break
            asked = answer.headers.get("WWW-Authenticate") or ""
            if (proven := self._proof(asked, scope, name)) is None:
                break
            self._proofs[scope] = proven
        return answer

    def _proof(self, asked: str, scope: str, name: str) -> str | None:
        """Give the header that a refusal asks for: a token, or name and password; None without."""
        if self._logins is None:
            self._logins = credentials(self.host)
        places = [str(place) for place in (PurePosixPath(name), *PurePosixPath(name).parents)]
        login = next((self._logins[place] for place in places if place in self._logins), self._logins.get(""))
        scheme, _, rest = asked.partition(" ")
        if scheme.lower() == "basic":
            return login.basic if login and login.password else None
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        if scheme.lower() != "bearer" or "realm" not in fields:
            return None
        return self._token(fields, scope, login)

    def _token(self, fields: Mapping[str, str], scope: str, login: Credentials | None) -> str | None:
        """Get a token where the registry sends us, anonymously without credentials."""
        named = {"service": fields["service"]} if fields.get("service") else {}
        query = {**named, "scope": fields.get("scope") or scope}
        form = "&".join(f"{key}={quote(value)}" for key, value in query.items())
        if login and login.identity_token:
            form += f"&grant_type=refresh_token&client_id=mlstack&refresh_token={quote(login.identity_token)}"
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            answer = self._web.send("POST", fields["realm"], headers=headers, body=form.encode())
        else:
            headers = {"Authorization": login.basic} if login else {}
            mark = "&" if "?" in fields["realm"] else "?"
            answer = self._web.get(f"{fields['realm']}{mark}{form}", headers)
        if answer.status in (401, 403):
            return None
        value = from_json(answer.data, dict) or {}
        token = value.get("token") or value.get("access_token")
        if answer.status != 200 or not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise self._fault(f"the place that it sends us to for a token gives none (HTTP {answer.status})")
        masking.note(token)
        return f"Bearer {token}"

    # --- faults ---

    def _refuse(self, answer: Answer, expected: int) -> None:
        if answer.status == expected:
            return
        from mlstack.http import retry_after_s

        if answer.status in (401, 403):
            has = "does not let us in" if answer.status == 401 else "does not allow that"
            message = f"the registry at `{self.host}` fails: it {has}"
            raise UnauthorizedError(message, hint=f"docker login {self.host}")
        try:  # as the specification writes errors
            code = json.loads(answer.data)["errors"][0]["code"]
        except (ValueError, LookupError, TypeError, RecursionError):
            code = ""
        text = "it has no such thing" if answer.status == 404 else f"HTTP {answer.status}"
        text += f" ({code})" if isinstance(code, str) and re.fullmatch("[A-Z_]{1,40}", code) else ""
        hint = "check the address"
        if answer.status == 429 or answer.status >= 500:
            asked_s = retry_after_s(answer.headers)
            hint = f"try again {'later' if asked_s is None else f'in {clock.words(asked_s)}'}"
        raise self._fault(text, hint=hint)

    def _refuse_other(self, answer: Answer, name: str, digest: str) -> None:
        """Raise unless something was made, with the digest that was sent as far as the answer names one."""
        self._refuse(answer, 201)
        named = answer.headers.get("Docker-Content-Digest") or digest
        if named != digest:
            raise self._lie(f"{name}@{digest}", named)

    def _fault(self, text: str, *, hint: str = "check the address") -> RegistryError:
        return RegistryError(f"the registry at `{self.host}` fails: {text}", hint=hint)

    def _lie(self, what: str, digest: str) -> RegistryError:
        hint = "nothing was changed; something between you and it changes what it says"
        return self._fault(f"what it gives for `{what}` has the digest {digest}", hint=hint)


class _Blob:
    """A blob of a registry, fetched anew each time it is read."""

    def __init__(self, registry: Distribution, name: str, digest: str) -> None:
        self._place = registry, name, digest

    def __iter__(self) -> Iterator[bytes]:
        registry, name, digest = self._place
        return registry.blob_pieces(name, digest)


def _check(name: str, reference: str) -> None:
    if not _NAME.fullmatch(name):
        hint = "names of OCI registries are lower-case letters and digits with `-`, `_`, `.` and `/` between"
        raise RegistryError(f"`{name}` cannot be the name of a repository", hint=hint)
    if not (DIGEST.fullmatch(reference) or _REFERENCE.fullmatch(reference)):
        hint = "write NAME:TAG or NAME@sha256:…"
        raise RegistryError(f"`{reference}` is neither a tag nor a digest", hint=hint)


# --- who we are: what `docker login`, `podman login` and helm left behind, or a helper keeps ---

_HELPER_TIMEOUT_S = 30.0


class Credentials(Record):
    """A name and a password; or a token that is exchanged for others."""

    user: str = ""
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """Give the header that shows name and password."""
        from mlstack.http import basic

        return basic(self.user, self.password)


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
    is_hub = host.endswith("docker.io")
    for key in ("https://index.docker.io/v1/", "docker.io") if is_hub else (host, f"https://{host}"):
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
    if not re.fullmatch(r"[\w.-]+", helper):
        raise RegistryError(f"the logins name a helper that cannot be one: {helper!a}")
    program = f"docker-credential-{helper}"
    try:
        answer = programs.run([program, "get"], stdin=key.encode(), timeout_s=_HELPER_TIMEOUT_S).stdout
        value = json.loads(answer)
        user, secret = str(value["Username"]), str(value["Secret"])
    except ProgramError as error:
        if error.status is not None:  # it ran, and has nothing
            return None
        hint = error.hint or "check `credHelpers` and `credsStore` of ~/.docker/config.json"
        raise RegistryError(f"the credentials of `{key}` cannot be had: {error}", hint=hint) from error
    except (ValueError, KeyError, TypeError):
        message = f"`{program}` gives no credentials that can be read"
        raise RegistryError(message, hint="log in anew") from None
    return _noted("", "", secret) if user == "<token>" else _noted(user, secret, "")


def _noted(user: str, password: str, token: str) -> Credentials | None:
    masking.note(*filter(None, (password, token)))
    login = Credentials(user=user, password=password, identity_token=token)
    return login if token or (user and password) else None


def _helm_file(variable: str, name: str) -> Path:
    """Give where helm keeps a file of its configuration: https://helm.sh/docs/helm/helm."""
    if place := os.environ.get(variable):
        return Path(place)
    usual = "~/Library/Preferences" if sys.platform == "darwin" else "~/.config"
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser(usual)  # noqa: PTH111 # may have no home
    return Path(os.environ.get("HELM_CONFIG_HOME") or f"{base}/helm") / name


def chart_login(url: str, *, repository: str) -> dict[str, str]:
    """Give the header that shows who we are at an address of a chart repository, as helm would send it.

    It goes to the repository's own server alone, unless its user has said `--pass-credentials`.
    """
    for entry in chart_repositories(repository):
        login = Credentials(user=str(entry.get("username") or ""), password=str(entry.get("password") or ""))
        is_for_all = entry.get("pass_credentials_all") is True
        if (login.user or login.password) and (is_for_all or _server(url) == _server(repository)):
            return {"Authorization": login.basic}
    return {}


def chart_web(repository: str) -> Web:
    """Give what asks a chart repository: its server is trusted, and told who we are, as helm would.

    That is what `--ca-file`, `--cert-file`, `--key-file` and `--insecure-skip-tls-verify` of `helm repo add`
    have left; it holds for no other server.
    """
    from mlstack.web import Trust, Web

    for entry in chart_repositories(repository):
        trust = Trust(
            server=repository,
            authorities=str(entry.get("caFile") or ""),
            certificate=str(entry.get("certFile") or ""),
            key=str(entry.get("keyFile") or ""),
            verify=entry.get("insecure_skip_tls_verify") is not True,
        )
        if trust != Trust(server=repository):
            return Web(trust)
    return Web()


def chart_repositories(address: str = "") -> list[Mapping[str, Any]]:
    """Give what `helm repo add` keeps: of one address, or all."""
    file = _helm_file("HELM_REPOSITORY_CONFIG", "repositories.yaml")
    try:
        content = read_document(file.read_text("utf-8"), source=str(file), with_positions=False).value
    except OSError:
        return []
    except (YamlError, UnicodeDecodeError) as error:
        message = f"helm's list of repositories cannot be read: {error}"
        raise RegistryError(message, where=str(file)) from error
    listed = content.get("repositories") if isinstance(content, Mapping) else None
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    place = address.rstrip("/")
    return [entry for entry in entries if not place or str(entry.get("url")).rstrip("/") == place]


def _server(url: str) -> tuple[str, str, int] | None:
    try:
        parts = address(url.partition("?")[0])
    except ValueError:
        return None
    return parts.scheme, parts.host, parts.port
