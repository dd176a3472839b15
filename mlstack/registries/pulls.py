"""Whether the nodes of a cluster can pull the images of objects: asked of their registries as kubelets do.

Asked from here and with the pods' own credentials. Mirrors, proxies and helpers that are set up on nodes are
not known, and neither is what nodes hold already.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from mlstack.dataclass import dataclass
from mlstack.errors import ForbiddenError, MlstackError, NotFoundError, RegistryError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.resources import NodePlace, is_eligible
from mlstack.readiness.capacity import pods_of
from mlstack.registries.distribution import UnauthorizedError
from mlstack.registries.images import Images, image_name, runs_on
from mlstack.registries.logins import Credentials, of_pull_secret

_UNREAD = " may not be read"
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_OF_THE_MOMENT = "node.kubernetes.io/"  # not ready, cordoned: it may take pods soon


@dataclass(frozen=True, kw_only=True)
class ImageFault:
    """An image that nodes may not get."""

    image: str  # as it is written
    object: str  # the first one that runs it, with its component in front
    problem: Literal["missing", "forbidden", "platform", "unchecked"]  # `unchecked`: nobody could tell
    message: str  # what is wrong, in a few words


@dataclass(frozen=True)
class _Wanted:
    """An image and what it is pulled for; the same for many pods."""

    image: str
    namespace: str
    secrets: tuple[str, ...]
    platforms: tuple[str, ...]


def check(objects: Sequence[KubeObject], cluster: Cluster) -> tuple[ImageFault, ...]:
    """Ask the registries for the images of objects, each for the platforms of the nodes its pods may go to.

    Raises:
        ClusterError: the nodes, service accounts or secrets cannot be asked for.
    """
    nodes = _nodes(cluster)
    accounts = _Accounts(objects, cluster)
    users: dict[_Wanted, str] = {}
    for obj in objects:
        for template in pods_of(obj):
            secrets = accounts.pull_secrets(obj.namespace, template.spec)
            platforms = _platforms(nodes, template.spec)
            for image in _images(template.spec):
                wanted = _Wanted(image, obj.namespace, secrets, platforms)
                users.setdefault(wanted, f"{obj.component}: {obj.identity}")
    logins = {wanted: accounts.logins(wanted.namespace, wanted.secrets) for wanted in users}
    rows = [*users.items()]
    faults = parallel.whole(parallel.run(lambda row: tuple(_faults(row[0], row[1], *logins[row[0]])), rows))
    return tuple(dict.fromkeys(fault for listed in faults for fault in listed))


def _images(spec: Mapping[str, Any]) -> dict[str, None]:
    containers = [entry for name in ("initContainers", "containers") for entry in spec.get(name) or ()]
    volumes = [entry.get("image") or {} for entry in spec.get("volumes") or () if isinstance(entry, Mapping)]
    named = [entry.get("image") for entry in containers if isinstance(entry, Mapping)]
    named += [volume.get("reference") for volume in volumes if isinstance(volume, Mapping)]
    return {image: None for image in named if isinstance(image, str) and image}


def _faults(
    wanted: _Wanted, user: str, secrets: Sequence[Mapping[str, Any]], unread: Sequence[str]
) -> Iterator[ImageFault]:
    """Tell what is wrong with one image, with the secrets that could be read and those that could not."""

    def fault(problem: Literal["missing", "forbidden", "platform", "unchecked"], text: str) -> ImageFault:
        return ImageFault(image=wanted.image, object=user, problem=problem, message=text)

    tried = (
        f" with {', '.join(f'`{name}`' for name in wanted.secrets)}"
        if wanted.secrets
        else " without a pull secret"
    )
    try:
        name = image_name(wanted.image)
    except RegistryError as error:
        yield fault("missing", error.message)
        return
    logins: dict[str, Credentials] = {}
    for secret in secrets:
        logins = {**of_pull_secret(secret, name.host), **logins}
    registries = Images({name.host: logins})
    try:
        manifest = registries.found(name)
        known = registries.platforms(name, manifest) if wanted.platforms else []
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
        lacking = [
            wish for wish in wanted.platforms if known and not any(runs_on(own, wish) for own in known)
        ]
        if lacking:
            yield fault(
                "platform", f"has nothing for {', '.join(lacking)} of the nodes, only {', '.join(known)}"
            )


# --- nodes ---


def _nodes(cluster: Cluster) -> list[tuple[NodePlace, str]]:
    """Give the nodes with their platforms; none where we may not list them."""
    try:
        items = cluster.list("v1", "Node").items
    except ForbiddenError:
        return []
    return [(_place(node), platform) for node in items if (platform := _platform(node))]


def _place(node: Mapping[str, Any]) -> NodePlace:
    metadata, taints = node.get("metadata") or {}, (node.get("spec") or {}).get("taints") or ()
    hard = tuple(
        taint
        for taint in taints
        if taint.get("effect") in _KEEPS_AWAY and not str(taint.get("key")).startswith(_OF_THE_MOMENT)
    )
    return NodePlace(str(metadata.get("name")), metadata.get("labels") or {}, hard)


def _platform(node: Mapping[str, Any]) -> str:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    labels = (node.get("metadata") or {}).get("labels") or {}
    system = labels.get("kubernetes.io/os") or info.get("operatingSystem") or "linux"
    architecture = labels.get("kubernetes.io/arch") or info.get("architecture")
    return f"{system}/{architecture}" if architecture else ""


def _platforms(nodes: Sequence[tuple[NodePlace, str]], spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Give the platforms of the nodes that a pod may go to; where it may go to none now, of all."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    pod = {**spec, "required": affinity.get("requiredDuringSchedulingIgnoredDuringExecution")}
    fitting = {platform for place, platform in nodes if is_eligible(pod, place)}
    return tuple(sorted(fitting or {platform for _, platform in nodes}))


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
        return tuple(
            str(entry["name"]) for entry in named or () if isinstance(entry, Mapping) and entry.get("name")
        )

    def logins(self, namespace: str, names: Sequence[str]) -> tuple[list[Mapping[str, Any]], list[str]]:
        """Give the content of pull secrets, and a remark on each that has none."""
        contents, remarks = [], []
        for name in names:
            try:
                secret = self._get("Secret", namespace, name)
            except ForbiddenError:
                remarks.append(f"Secret {namespace}/{name}{_UNREAD}")
                continue
            content = _content(secret) if secret is not None else None
            if content is not None:
                contents.append(content)
            elif secret is None:
                remarks.append(f"Secret {namespace}/{name} is not there")
            else:
                remarks.append(f"Secret {namespace}/{name} is no pull secret")
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
