"""API versions and fields that Kubernetes has deprecated, or serves no more in the version after.

Sources: the life cycles of API versions in k8s.io/api (`zz_generated.prerelease-lifecycle.go`, v0.37), what
the API server warns of (kubernetes/kubernetes `pkg/api/*/warnings.go` and `util.go`, 1.36), KEP-5707 and
KEP-3015, and of custom resources what their definitions say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from mlstack.objects.kube_object import Kind, Kinds, KubeObject, plural_of
from mlstack.objects.references import PodTemplate, templates
from mlstack.objects.resources import Amounts, amount, amounts, is_host_port, limits, requests, written
from mlstack.validate.formats import Fault, Field, fault_of

_OTHER_KINDS = {"Endpoints": "EndpointSlice of `discovery.k8s.io/v1`"}


class _Row(NamedTuple):
    """A field that is deprecated."""

    of: str  # `pod`, its `template` (with metadata), or a kind
    path: str  # as of `Field.all`
    key: str  # pattern of the keys of the map on the path that are meant
    value: str  # the value that is meant; any where empty
    since: int
    gone: int | None  # the first minor version in which it does nothing
    use: str


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LABEL_PATHS = (
    "nodeSelector[{}]",
    "topologySpreadConstraints[].topologyKey={}",
    f"affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[].matchExpressions[].key={{}}",
    f"affinity.podAntiAffinity|podAffinity.{_REQUIRED}[].topologyKey={{}}",
)


_SINCE: dict[tuple[str, str], int] = {}
_FIELDS: list[_Row] = []


def _read(line: str) -> None:
    what, *words = line.split(" ", 4)
    if what == "version":
        _SINCE.update({(words[0], kind): int(words[2]) for kind in words[1].split(",")})
    elif what == "label":
        for path in _LABEL_PATHS:
            _read(f"field pod {path.format(words[0])} {words[1]} {words[2]}")
    elif what == "field":
        of, place, versions, use = words
        path, _, value = place.partition("=")
        match = re.fullmatch(r"(.*)\[(.+)\]", path)
        path, key = match.groups() if match else (path, "")
        since, _, gone = versions.partition("-")
        _FIELDS.append(_Row(of, path, key, value, int(since), int(gone) if gone else None, use))


for _line in Path(__file__).with_name("deprecations.txt").read_text("utf-8").splitlines():
    _read(_line)


def deprecations(
    objects: Iterable[KubeObject],
    minor: int,
    *,
    definitions: Sequence[Mapping[str, Any]] = (),
    is_live: bool = False,
) -> Iterator[Fault]:
    """Warn of what Kubernetes 1.`minor` has deprecated, and of what the version after it has no more.

    Args:
        objects: what is rendered, or was applied.
        minor: of the version.
        definitions: CustomResourceDefinitions, which say of their versions whether they are deprecated.
        is_live: whether the objects are in a cluster already: then what this version does not serve is told
            of too, which is an error of what is rendered.
    """
    custom = dict(_deprecated_versions(definitions))
    for obj in objects:
        for field, message in (
            *_api_version(obj, minor, custom, is_live=is_live),
            *(told for row in _FIELDS for told in _fields(obj, row, minor)),
        ):
            yield fault_of(obj, field.keys, message)


def _api_version(
    obj: KubeObject, minor: int, custom: Mapping[tuple[str, str], str], *, is_live: bool
) -> Iterator[tuple[Field, str]]:
    field = Field(obj.api_version, ("apiVersion",))
    if (obj.api_version, obj.kind) in custom:
        yield field, custom[obj.api_version, obj.kind]
        return
    kind = Kinds.builtin().lookup(obj.api_version, obj.kind)
    if kind is None or (not kind.is_served_by(minor) and not is_live):
        return
    use = _replacement(kind, minor)
    newest = max(known.last_minor for known in Kinds.builtin())
    since = _SINCE.get((obj.api_version, obj.kind), minor + 1)
    if kind.last_minor < min(minor + 1, newest):
        when = _when(kind.last_minor + 1, minor)
        yield field, f"{kind.kind} of `{obj.api_version}` is not served {when}{use}"
    elif since <= minor + 1 and (obj.api_version, obj.kind) in _SINCE:
        yield field, f"{kind.kind} of `{obj.api_version}` is deprecated {_when(since, minor)}{use}"


def _replacement(kind: Kind, minor: int) -> str:
    if kind.kind in _OTHER_KINDS:
        return f": use {_OTHER_KINDS[kind.kind]}"
    others = [
        other.api_version
        for other in Kinds.builtin().of_group(kind.group)
        if other.kind == kind.kind and other.last_minor > kind.last_minor and other.first_minor <= minor + 1
    ] or [
        other.api_version
        for other in Kinds.builtin().of_group(kind.group)
        if other.kind == kind.kind and other.version == "v1" != kind.version
    ]
    return f": use `{others[0]}`" if others else ""


def _when(since: int, minor: int) -> str:
    return (
        f"from Kubernetes 1.{since} on" if since > minor else f"since Kubernetes 1.{since}" if since else ""
    )


def _fields(obj: KubeObject, row: _Row, minor: int) -> Iterator[tuple[Field, str]]:
    if row.since > minor + 1 or (row.of[0].isupper() and row.of != obj.kind):
        return
    roots = [Field(obj.data)]
    if row.of in ("pod", "template"):
        up = 1 if row.of == "template" else 0
        roots = [_at(obj, template.keys[: len(template.keys) - up]) for template in templates(obj)]
    for root in roots:
        for field in root.all(row.path):
            places = (
                [inner for name, inner in field.entries if fnmatchcase(name, row.key)] if row.key else [field]
            )
            for place in places:
                if place and row.value in ("", place.value):
                    yield place, f"{_told(row, minor)}: use {row.use}"


def _told(row: _Row, minor: int) -> str:
    if row.gone is not None and row.gone <= minor + 1:
        return f"does nothing {_when(row.gone, minor)}"
    return f"is deprecated {_when(row.since, minor)}".strip()


def _at(obj: KubeObject, keys: Sequence[str | int]) -> Field:
    value: Any = obj.data
    for key in keys:
        value = value[key]
    return Field(value, tuple(keys))


def _deprecated_versions(definitions: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, str], str]]:
    """Give what definitions say of their deprecated versions, by API version and kind."""
    for definition in definitions:
        spec = Field(definition).at("spec")
        kind, group = spec.at("names", "kind").text, spec.at("group").text
        for version in spec.at("versions").items:
            if version.at("deprecated").value is True:
                api_version = f"{group}/{version.at('name').text}"
                said = version.at("deprecationWarning").text or f"{kind} of `{api_version}` is deprecated"
                yield (api_version, kind), said


# --- whether nodes and quotas of a cluster have room for what is rendered, as a snapshot of it says ---


_REQUESTS = ("cpu", "memory", "ephemeral-storage")  # as quotas may say `requests.cpu`, and so on


def too_large(objects: Sequence[KubeObject], nodes: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Warn of pods that no node has room for, even an empty one; `nodes` are what each shape can give."""
    if not nodes:
        return
    shapes = [amounts(node) for node in nodes]
    for obj in objects:
        for template in templates(obj):
            asked = _asked(template)
            if any(_fits(asked, shape) for shape in shapes):
                continue
            for resource, value in sorted(asked.items()):
                most = max(shape.get(resource, 0) for shape in shapes)
                if value > most:
                    more, less = written(resource, value), written(resource, most)
                    text = f"a pod asks for {more} {resource}, no node has more than {less}"
                    yield _warning(obj, template, text)
                    break
            else:
                what = ", ".join(f"{written(name, value)} {name}" for name, value in sorted(asked.items()))
                yield _warning(obj, template, f"a pod asks for {what}, which no node has together")


def over_quota(
    objects: Sequence[KubeObject], quotas: Sequence[Mapping[str, Any]], namespace: str
) -> Iterator[Fault]:
    """Warn where all objects of a namespace together are or ask for more than a quota gives.

    Requests and limits of pods, storage (of each class too), and counts of objects, in the words of
    https://kubernetes.io/docs/concepts/policy/resource-quotas/.
    """
    total: Counter[str] = Counter()
    for obj in objects:
        if obj.namespace == namespace:
            total.update(_counts(obj))
    for quota in quotas:
        for name, hard in sorted((quota.get("hard") or {}).items()):
            resource = name.rpartition("requests.")[2].removeprefix("limits.")
            asked = total[f"requests.{name}" if name in _REQUESTS else name]
            if asked > amount(resource, str(hard)):
                verb = "ask for" if f"requests.{resource}" in total or name.startswith("limits.") else "are"
                amount_asked = f"{written(resource, asked)} {resource}"
                yield Fault(
                    component="",
                    object=f"ResourceQuota {namespace}/{quota.get('name')}",
                    path=f"spec.hard.{name}",
                    message=f"all together {verb} {amount_asked}, the quota gives {hard}",
                    severity="warning",
                )


def _counts(obj: KubeObject) -> Counter[str]:
    """Give how much of what quotas count an object is, and asks for with its pods and claims."""
    plural, spec = plural_of(obj.kind), obj.data.get("spec") or {}
    counts = Counter({f"count/{plural}.{obj.group}".rstrip("."): 1})
    pods = templates(obj)
    for template in pods:
        counts["pods"] += template.replicas
        parts = {"requests": _asked(template), "limits": limits(template.spec)}
        for kind, amounts_of_pod in parts.items():
            counts.update(
                {f"{kind}.{name}": value * template.replicas for name, value in amounts_of_pod.items()}
            )
    if not obj.group and obj.kind != "Pod":
        counts[plural] += 1
    if (obj.group, obj.kind) == ("", "Service") and spec.get("type") in ("NodePort", "LoadBalancer"):
        counts["services.loadbalancers"] += spec["type"] == "LoadBalancer"
        counts["services.nodeports"] += len(spec.get("ports") or ())
    claims = [spec] if (obj.group, obj.kind) == ("", "PersistentVolumeClaim") else []
    claims += [claim.get("spec") or {} for claim in spec.get("volumeClaimTemplates") or ()]
    replicas = pods[0].replicas if pods else 1
    for claim in claims:
        asked = amounts((claim.get("resources") or {}).get("requests")).get("storage", 0) * replicas
        of_class = f"{claim.get('storageClassName')}.storageclass.storage.k8s.io/"
        for prefix in ("", of_class):
            counts[f"{prefix}requests.storage"] += asked
            if prefix or obj.kind == "StatefulSet":
                counts[f"{prefix}persistentvolumeclaims"] += replicas
    return counts


def _asked(template: PodTemplate) -> Amounts:
    """Give what a pod asks of its node; every empty node has room for its ports."""
    return {
        name: value
        for name, value in requests(template.spec).items()
        if name != "pods" and not is_host_port(name)
    }


def _fits(asked: Amounts, node: Amounts) -> bool:
    return all(value <= node.get(resource, 0) for resource, value in asked.items())


def _warning(obj: KubeObject, template: PodTemplate, message: str) -> Fault:
    role = f" ({template.role})" if template.role else ""
    return fault_of(obj, (), f"{message}{role}")
