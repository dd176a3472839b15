"""Container images in registries: names, digests, platforms, copies; and whether nodes can pull them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from mlstack.dataclass import Record
from mlstack.disk_cache import from_json
from mlstack.errors import ForbiddenError, MlstackError, NotFoundError, RegistryError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.references import PodTemplate
from mlstack.objects.resources import NodePlace, is_eligible, node_place
from mlstack.readiness.capacity import pods_of
from mlstack.registries.distribution import (
    DIGEST,
    MANIFEST,
    SCHEME,
    ArtifactManifest,
    Credentials,
    Distribution,
    UnauthorizedError,
    canonical_json,
    digest_of,
    of_pull_secret,
)

_DOCKER = "application/vnd.docker.distribution.manifest"
_INDEX = "application/vnd.oci.image.index.v1+json"
_INDEXES = (_INDEX, f"{_DOCKER}.list.v2+json")
_IMAGES = ", ".join((*_INDEXES, MANIFEST, f"{_DOCKER}.v2+json"))
_NAME = re.compile(
    r"([\w.-]+(?::[0-9]+(?=/))?(?:/[\w.-]+)*?)(?::([A-Za-z0-9_][\w.-]{0,127}))?(?:@([a-z0-9]+:[0-9a-f]+))?",
    re.A,
)
_BESIDE = (".sig", ".att", "")
"""What follows the tag of what is attached to an image: cosign's signatures and attestations, referrers."""


class ImageName(Record):
    """The name of an image, read as Kubernetes reads it."""

    host: str  # of the registry: `docker.io` where the image names none
    name: str  # of the repository
    tag: str = ""
    digest: str = ""
    written: str = ""  # as it was read, without tag and digest

    @property
    def reference(self) -> str:
        """Give what the registry is asked for."""
        return self.digest or self.tag or "latest"

    @property
    def ending(self) -> str:
        """Give `:TAG@DIGEST`, what there is of it."""
        return (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")

    def __str__(self) -> str:
        return f"{self.host}/{self.name}{self.ending}"


def image_name(image: str) -> ImageName:
    """Read the name of an image.

    Raises:
        RegistryError: it is none.
    """
    parts = _NAME.fullmatch(image)
    if parts is None:
        raise RegistryError(f"`{image}` is no name of an image", hint="write HOST/NAME:TAG")
    place, tag, digest = parts[1], parts[2] or "", parts[3] or ""
    host, slash, name = place.partition("/")
    if not slash or not (host == "localhost" or "." in host or ":" in host):
        host, name = "docker.io", place if slash else f"library/{place}"
    return ImageName(host=host, name=name, tag=tag, digest=digest, written=place)


def copy_place(address: str) -> str:
    """Read where images are copied to: `HOST[:PORT][/PATH]`, with or without `oci://`.

    Raises:
        RegistryError: it is none.
    """
    place = address.removeprefix(SCHEME).rstrip("/")
    name = image_name(f"{place}/x") if place else None
    if name is None or name.tag or name.digest or not place.startswith(name.host):
        raise RegistryError(f"`{address}` is no registry", hint="write HOST[:PORT][/PATH]")
    return place


class Copied(Record):
    """What became of an image that was to be copied."""

    target: str  # its name there, with its digest; empty if it lies below that place itself
    state: Literal["copied", "there", "missing"]  # `missing`: a dry run would copy it
    sent_bytes: int = 0  # of what was not there
    note: str = ""


class Images:
    """The images of all registries; connections and logins are kept for the next one.

    Args:
        logins: who we are, by host; else what `docker login` and its like have left here.
    """

    def __init__(self, logins: Mapping[str, Mapping[str, Credentials]] | None = None) -> None:
        self._logins = logins
        self._registries: dict[str, Distribution] = {}

    def registry(self, host: str) -> Distribution:
        """Give the registry of a host."""
        if host not in self._registries:
            logins = None if self._logins is None else self._logins.get(host, {})
            self._registries[host] = Distribution(host, logins=logins)
        return self._registries[host]

    def manifest(self, image: ImageName, reference: str = "") -> ArtifactManifest | None:
        """Give what a registry has for an image: the list of its platforms where there is one."""
        return self.registry(image.host).manifest(image.name, reference or image.reference, accept=_IMAGES)

    def found(self, image: ImageName) -> ArtifactManifest:
        """Give what a registry has for an image; a NotFoundError where that is nothing."""
        manifest = self.manifest(image)
        if manifest is None:
            message = f"{image.host} has no image `{image.name}{image.ending or ':latest'}`"
            raise NotFoundError(message, hint="check its name and tag")
        return manifest

    def platforms(self, image: ImageName, manifest: ArtifactManifest) -> list[str]:
        """Give the platforms of an image as `linux/arm64`; of what is for no platform none."""
        if is_index(manifest):
            return [text for entry in _entries(manifest) if (text := _platform(entry.get("platform")))]
        config = manifest.value.get("config")
        digest = str(config.get("digest")) if isinstance(config, Mapping) else ""
        if not DIGEST.fullmatch(digest):
            return []
        text = _platform(from_json(self.registry(image.host).blob(image.name, digest), dict))
        return [text] if text else []

    def chosen(
        self, image: ImageName, manifest: ArtifactManifest, platforms: Sequence[str]
    ) -> ArtifactManifest:
        """Give of an image what is for some platforms: of one its own manifest, of several a list of them."""
        if not platforms:
            return manifest
        own = self.platforms(image, manifest)
        for platform in platforms:
            if not any(runs_on(offered, platform) for offered in own):
                has = f"it has {', '.join(own)}" if own else "it says none"
                raise NotFoundError(f"`{image}` is not there for {platform}", hint=has)
        if not is_index(manifest):
            return manifest
        listed = [(entry, _platform(entry.get("platform"))) for entry in _entries(manifest)]
        entries = [entry for entry, own in listed if any(runs_on(own, platform) for platform in platforms)]
        if len(entries) == 1:
            return self.found(replace(image, digest=str(entries[0]["digest"])))
        return _written({**manifest.value, "manifests": entries}, manifest.media_type)

    # --- copying ---

    def copied_below(
        self, place: str, image: ImageName, platforms: Sequence[str] = (), *, dry_run: bool = False
    ) -> Copied:
        """Copy an image below a place, under its own registry's name, unless it is there.

        Where its registry does not answer, what was copied before is taken.

        Raises:
            NotFoundError: there is no such image, or not for one of the platforms.
            RegistryError: as `copy`.
        """
        host, _, path = place.partition("/")
        if f"{image.host}/{image.name}".startswith(f"{place}/"):
            return Copied(target="", state="there")
        # No `:` may stand in the name of a repository, and no upper case.
        origin = f"{image.host.replace(':', '-')}/{image.name}".lower()
        tag = image.tag or ("" if image.digest else "latest")
        target_name = replace(image, host=host, name=f"{path}/{origin}".removeprefix("/"), tag=tag)
        note = ""
        try:
            try:
                manifest = self.chosen(image, self.found(image), platforms)
            except NotFoundError:
                raise
            except RegistryError as error:
                if (copied := self.manifest(target_name, image.digest or target_name.tag)) is None:
                    raise
                manifest, note = copied, f"`{image}` is taken as it was copied before: {error.message}"
            is_there = self.manifest(target_name, manifest.digest) is not None
            sent = 0 if dry_run or note else self.copy(image, manifest, target_name)
        except MlstackError as error:
            error.message = f"`{image}` cannot be copied: {error.message}"
            raise
        target = str(replace(target_name, digest=manifest.digest))
        state: Literal["there", "missing", "copied"] = "missing" if dry_run else "copied"
        return Copied(target=target, state="there" if is_there else state, sent_bytes=sent, note=note)

    def copy(self, image: ImageName, manifest: ArtifactManifest, to: ImageName) -> int:
        """Copy an image with all that is in it and attached to it; gives how many bytes of blobs went.

        What is there is not sent again, so that a copy that broke off goes on where it was. The name comes
        last: whoever pulls by it gets all or nothing.
        """
        sent = 0
        if self.manifest(to, manifest.digest) is None:
            sent = self._copy_parts(image, manifest, to)
            self._push(manifest, to, manifest.digest)
        sent += self._copy_attached(image, manifest.digest, to)
        if to.tag and not self._has(to, to.tag, manifest):
            self._push(manifest, to, to.tag)
        return sent

    def _copy_attached(self, image: ImageName, digest: str, to: ImageName) -> int:
        """Copy what belongs to a manifest, as signatures and attestations do, and what belongs to that.

        It lies under tags that are called after the digest, or says itself what it belongs to.
        """
        sent, source, target = 0, self.registry(image.host), self.registry(to.host)
        references = [f"{digest.replace(':', '-')}{ending}" for ending in _BESIDE]
        entries = source.referrers(image.name, digest) or []
        for reference in (*references, *(str(entry["digest"]) for entry in entries)):
            attached = self.manifest(image, reference)
            if attached is not None and not self._has(to, reference, attached):
                sent += self._copy_parts(image, attached, to)
                self._push(attached, to, reference)
                if DIGEST.fullmatch(reference):
                    sent += self._copy_attached(image, attached.digest, to)
        if entries and target.referrers(to.name, digest) is None:  # it keeps no account of them itself
            index = _written({"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}, _INDEX)
            if not self._has(to, references[-1], index):
                self._push(index, to, references[-1])
        return sent

    def _copy_parts(self, image: ImageName, manifest: ArtifactManifest, to: ImageName) -> int:
        sent, source, target = 0, self.registry(image.host), self.registry(to.host)
        for entry in _entries(manifest) if is_index(manifest) else ():
            if self.manifest(to, str(entry["digest"])) is None:
                part = self.found(replace(image, digest=str(entry["digest"])))
                sent += self._copy_parts(image, part, to)
                self._push(part, to, part.digest)
        for blob in _blobs(manifest):
            digest, size = str(blob["digest"]), int(blob.get("size") or 0)
            if not target.has_blob(to.name, digest):
                target.receive_blob(to.name, digest, size, source, image.name)
                sent += size
        return sent

    def _has(self, to: ImageName, reference: str, manifest: ArtifactManifest) -> bool:
        existing = self.manifest(to, reference)
        return existing is not None and existing.digest == manifest.digest

    def _push(self, manifest: ArtifactManifest, to: ImageName, reference: str) -> None:
        target = self.registry(to.host)
        target.push_manifest(to.name, reference, manifest.data, media_type=manifest.media_type)


def _written(value: Mapping[str, Any], media_type: str) -> ArtifactManifest:
    data = canonical_json(value)
    return ArtifactManifest(digest_of(data), data, value, media_type)


def is_index(manifest: ArtifactManifest) -> bool:
    """Tell whether a manifest is the list of an image's platforms."""
    return manifest.media_type in _INDEXES or isinstance(manifest.value.get("manifests"), list)


def _entries(manifest: ArtifactManifest) -> list[Mapping[str, Any]]:
    return _descriptors(manifest.value.get("manifests"))


def _descriptors(listed: Any) -> list[Mapping[str, Any]]:
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    return [entry for entry in entries if DIGEST.fullmatch(str(entry.get("digest")))]


def _blobs(manifest: ArtifactManifest) -> Iterator[Mapping[str, Any]]:
    """Give the blobs of a manifest, but for those that other servers keep."""
    if not is_index(manifest):
        yield from _descriptors([manifest.value.get("config")])
    for layer in _descriptors(manifest.value.get("layers")):
        if not re.search("foreign|nondistributable", str(layer.get("mediaType"))):
            yield layer


def _platform(about: Any) -> str:
    if not isinstance(about, Mapping) or about.get("os") in (None, "", "unknown"):
        return ""
    parts = (about.get("os"), about.get("architecture"), about.get("variant"))
    return "/".join(str(part) for part in parts if part)


def runs_on(own: str, platform: str) -> bool:
    """Tell whether what is for one platform runs on another: `linux/arm64/v8` is for `linux/arm64`."""
    return own == platform or own.startswith(f"{platform}/")


def pinned(image: str) -> str:
    """Give an image with the digest that its tag has now: `nginx:1` as `nginx:1@sha256:…`.

    What is read is the list of an image's platforms where there is one; an image with a digest stays.

    Raises:
        NotFoundError: its registry has no such image.
        RegistryError: it is no name of an image, no answer, or refused.
    """
    if "@" in image:
        return image
    name = image_name(image)
    return f"{name.written}:{name.tag or 'latest'}@{Images().found(name).digest}"


# --- whether the nodes of a cluster can pull images: asked of their registries as kubelets do ---
# Asked from here and with the pods' own credentials. Mirrors, proxies and helpers that are set up on nodes
# are not known, and neither is what nodes hold already.


_UNREAD = " may not be read"
_OF_THE_MOMENT = "node.kubernetes.io/"  # not ready, cordoned: it may take pods soon


class ImageFault(Record):
    """An image that nodes may not get."""

    image: str  # as it is written
    object: str  # the first one that runs it, with its component in front
    problem: Literal["missing", "forbidden", "platform", "unchecked"]  # `unchecked`: nobody could tell
    message: str  # what is wrong, in a few words


class _Pull(NamedTuple):
    """An image and what it is pulled for; the same for many pods."""

    image: str
    namespace: str
    secrets: tuple[str, ...]
    platforms: tuple[str, ...]


def check_pulls(objects: Sequence[KubeObject], cluster: Cluster) -> tuple[ImageFault, ...]:
    """Ask the registries for the images of objects, each for the platforms of the nodes its pods may go to.

    Raises:
        ClusterError: the nodes, service accounts or secrets cannot be asked for.
    """
    nodes = _nodes(cluster)
    accounts = _Accounts(objects, cluster)
    users: dict[_Pull, str] = {}
    for obj in objects:
        for template in pods_of(obj):
            secrets = accounts.pull_secrets(obj.namespace, template.spec)
            fitting = {platform for node, platform in nodes if is_eligible(template.spec, node)}
            # Of a pod that may go to no node now, the platforms of all.
            platforms = tuple(sorted(fitting or {platform for _, platform in nodes}))
            for image in _images(template):
                pull = _Pull(image, obj.namespace, secrets, platforms)
                users.setdefault(pull, f"{obj.component}: {obj.identity}")
    logins = {pull: accounts.logins(pull.namespace, pull.secrets) for pull in users}
    rows = [*users.items()]
    faults = parallel.whole(parallel.run(lambda row: tuple(_faults(row[0], row[1], *logins[row[0]])), rows))
    return tuple(dict.fromkeys(fault for listed in faults for fault in listed))


def _images(template: PodTemplate) -> dict[str, None]:
    """Give the images of a pod's containers and volumes."""
    volumes = [row.get("image") for row in template.spec.get("volumes") or () if isinstance(row, Mapping)]
    named = [container.get("image") for container in template.containers]
    named += [volume.get("reference") for volume in volumes if isinstance(volume, Mapping)]
    return {image: None for image in named if isinstance(image, str) and image}


def _faults(
    pull: _Pull, user: str, secrets: Sequence[Mapping[str, Any]], unread: Sequence[str]
) -> Iterator[ImageFault]:
    """Tell what is wrong with one image, with the secrets that could be read and those that could not."""

    def fault(problem: Literal["missing", "forbidden", "platform", "unchecked"], text: str) -> ImageFault:
        return ImageFault(image=pull.image, object=user, problem=problem, message=text)

    names = ", ".join(f"`{name}`" for name in pull.secrets)
    tried = f" with {names}" if names else " without a pull secret"
    try:
        name = image_name(pull.image)
    except RegistryError as error:
        yield fault("missing", error.message)
        return
    logins: dict[str, Credentials] = {}
    for secret in secrets:
        logins = {**of_pull_secret(secret, name.host), **logins}
    registries = Images({name.host: logins})
    try:
        manifest = registries.found(name)
        platforms = registries.platforms(name, manifest) if pull.platforms else []
    except NotFoundError:
        yield fault("missing", "is not there")
    except UnauthorizedError:
        reasons = "".join(f"; {remark}" for remark in unread)
        is_known = not any(remark.endswith(_UNREAD) for remark in unread)
        text = f"{name.host} gives no right to it{tried}, or it is not there{reasons}"
        yield fault("forbidden", text) if is_known else fault("unchecked", f"could not be checked{reasons}")
    except MlstackError as error:
        yield fault("unchecked", f"could not be checked: {error.message}")
    else:
        lacking = [p for p in pull.platforms if platforms and not any(runs_on(own, p) for own in platforms)]
        if lacking:
            text = f"has nothing for {', '.join(lacking)} of the nodes, only {', '.join(platforms)}"
            yield fault("platform", text)


# --- nodes ---


def _nodes(cluster: Cluster) -> list[tuple[NodePlace, str]]:
    """Give the nodes with their platforms; none where we may not list them."""
    try:
        items = cluster.list("v1", "Node").items
    except ForbiddenError:
        return []
    nodes = []
    for node in items:
        place, info = node_place(node), (node.get("status") or {}).get("nodeInfo") or {}
        lasting = (taint for taint in place.taints if not str(taint.get("key")).startswith(_OF_THE_MOMENT))
        place = replace(place, taints=tuple(lasting))
        system = place.labels.get("kubernetes.io/os") or info.get("operatingSystem") or "linux"
        if architecture := place.labels.get("kubernetes.io/arch") or info.get("architecture"):
            nodes.append((place, f"{system}/{architecture}"))
    return nodes


# --- service accounts and their secrets ---


class _Accounts:
    """Service accounts and secrets as they will be: what is applied first, then what the cluster has."""

    def __init__(self, objects: Sequence[KubeObject], cluster: Cluster) -> None:
        self._own = {(obj.kind, obj.namespace, obj.name): obj.data for obj in objects}
        self._cluster = cluster
        self._live: dict[tuple[str, str, str], Mapping[str, Any] | None] = {}

    def pull_secrets(self, namespace: str, spec: Mapping[str, Any]) -> tuple[str, ...]:
        """Name the pull secrets of a pod: its own, else those of its service account."""
        named = spec.get("imagePullSecrets")
        if not named:
            account = str(spec.get("serviceAccountName") or "default")
            try:
                named = (self._get("ServiceAccount", namespace, account) or {}).get("imagePullSecrets")
            except ForbiddenError:
                named = None
        entries = (entry for entry in named or () if isinstance(entry, Mapping))
        return tuple(str(entry["name"]) for entry in entries if entry.get("name"))

    def logins(self, namespace: str, names: Sequence[str]) -> tuple[list[Mapping[str, Any]], list[str]]:
        """Give the content of pull secrets, and a remark on each that has none."""
        contents, remarks = [], []
        for name in names:
            try:
                secret = self._get("Secret", namespace, name)
            except ForbiddenError:
                remarks.append(f"Secret {namespace}/{name}{_UNREAD}")
                continue
            if (content := _content(secret or {})) is not None:
                contents.append(content)
            else:
                what = "no pull secret" if secret is not None else "not there"
                remarks.append(f"Secret {namespace}/{name} is {what}")
        return contents, remarks

    def _get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        key = kind, namespace, name
        if key in self._own:
            return self._own[key]
        if key not in self._live:
            self._live[key] = self._cluster.get(ObjectRef("v1", kind, namespace, name))
        return self._live[key]


def _content(secret: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Read a pull secret, of today's form or of docker's old one; None where it is none."""
    plain, coded = secret.get("stringData") or {}, secret.get("data") or {}
    for key, wrap in ((".dockerconfigjson", False), (".dockercfg", True)):
        try:
            text = plain[key] if key in plain else base64.b64decode(coded[key], validate=True)
            content = json.loads(text)
        except (KeyError, TypeError, ValueError):
            continue
        if isinstance(content, Mapping):
            return {"auths": content} if wrap else content
    return None
