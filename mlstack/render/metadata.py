"""What objects get beside their templates' content: labels and annotations of app and environment, hashes.

What an object says itself stays: it is more specific, and on pods it may be what a selector asks for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from mlstack.app.app import App
from mlstack.app.environment import Environment
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.objects.masking import is_secret
from mlstack.objects.references import is_pod_spec, read_by_pods

RESTART = "mlstack.dev/restart-on-config"
CONFIG_HASH = "mlstack.dev/config-hash"
# Those whose controllers replace pods by themselves when the template changes. Jobs and training jobs cannot
# change in place: a new run of them is nobody's wish when a setting changes.
_ROLLING = frozenset(("Deployment", "StatefulSet", "DaemonSet"))
_SECRET_WORK = 2**12  # scrypt's cost: 10 ms for each guess
_SECRET_BYTES = 3


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """What is added to every object, and to the template of every pod."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    pod_annotations: Mapping[str, str] = field(default_factory=dict)


def added(app: App, environment: Environment) -> Metadata:
    """Give what app and environment add; the environment wins, null takes the app's away."""

    def laid(name: str) -> dict[str, str]:
        both = {**getattr(app, name), **getattr(environment, name)}
        return {key: value for key, value in both.items() if value is not None}

    names = ("labels", "annotations", "pod_labels", "pod_annotations")
    return Metadata(**{name: laid(name) for name in names})


def with_added(data: Mapping[str, Any], more: Metadata) -> Mapping[str, Any]:
    """Give an object with what is added to it and to its pods; selectors stay as they are."""
    if more.pod_labels or more.pod_annotations:
        if data.get("kind") == "Pod" and data.get("apiVersion") == "v1":
            data = _with_metadata(data, more.pod_labels, more.pod_annotations)
        else:
            data = {key: _with_pods(value, more) for key, value in data.items()}
    return _with_metadata(data, more.labels, more.annotations)


def _with_metadata(
    data: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    metadata = dict(data.get("metadata") or {})
    for name, values in (("labels", labels), ("annotations", annotations)):
        if values:
            metadata[name] = {**values, **(metadata.get(name) or {})}
    return {**data, "metadata": metadata} if labels or annotations else dict(data)


def _with_pods(value: Any, more: Metadata) -> Any:
    """Give a part of an object in which every pod template, of whatever kind, has what is added to pods."""
    if isinstance(value, list):
        return [_with_pods(item, more) for item in value]
    if not isinstance(value, Mapping):
        return value
    changed = {key: _with_pods(inner, more) for key, inner in value.items()}
    if is_pod_spec(value.get("spec")):
        return _with_metadata(changed, more.pod_labels, more.pod_annotations)
    return changed


# --- a changed configuration restarts what reads it ----------------------------------------------------


def unknown_configs(objects: Sequence[KubeObject]) -> bool:
    """Tell whether a workload reads a ConfigMap or Secret that is not among the objects."""
    known = {obj.identity for obj in objects}
    return any(not known.issuperset(read_by_pods(obj)) for obj in objects if _restarts(obj))


def with_config_hashes(
    objects: Sequence[KubeObject], others: Iterable[KubeObject] = (), *, salt: str
) -> list[KubeObject]:
    """Give the objects, each workload with a hash of the ConfigMaps and Secrets that its pods read.

    A Secret counts by three bytes of a salted scrypt: enough to see that it is another, and too little and
    too costly to find out what it holds.

    Args:
        objects: of this render.
        others: more that workloads may read, as those of components that were not asked for.
        salt: the same for all renders of an environment.
    """
    configs = {obj.identity: obj for obj in (*others, *objects) if obj.kind in ("ConfigMap", "Secret")}
    digests: dict[Identity, str] = {}
    result = []
    for obj in objects:
        names = sorted(configs.keys() & set(read_by_pods(obj))) if configs and _restarts(obj) else []
        for name in names:
            digests[name] = digests.get(name) or _digest(configs[name], f"{salt}/{name}")
        hashes = [(str(name), digests[name]) for name in names]
        result.append(obj.with_data(_with_hash(obj.data, hashes)) if hashes else obj)
    return result


def _restarts(obj: KubeObject) -> bool:
    """Tell whether an object's pods are replaced when a setting changes.

    Raises:
        ConfigError: its annotation says neither yes nor no.
    """
    if obj.group != "apps" or obj.kind not in _ROLLING:
        return False
    wish = obj.annotations.get(RESTART, "true")
    if wish not in ("true", "false"):
        message = f'`{obj.identity}`: annotation `{RESTART}` must be "true" or "false", got "{wish}"'
        raise ConfigError(message, where=str(obj.source) if obj.source else None)
    return wish == "true"


def _digest(config: KubeObject, salt: str) -> str:
    content = {
        name: config.data[name] for name in ("data", "binaryData", "stringData") if name in config.data
    }
    text = json.dumps(content, sort_keys=True).encode()
    if not is_secret(config.data):
        return hashlib.sha256(text).hexdigest()
    return hashlib.scrypt(text, salt=salt.encode(), n=_SECRET_WORK, r=8, p=1, dklen=_SECRET_BYTES).hex()


def _with_hash(data: Mapping[str, Any], digests: Collection[tuple[str, str]]) -> Mapping[str, Any]:
    template = data["spec"].get("template") if digests else None
    if not isinstance(template, Mapping):
        return data
    value = hashlib.sha256(json.dumps(sorted(digests)).encode()).hexdigest()[:16]
    metadata = dict(template.get("metadata") or {})
    metadata["annotations"] = {**(metadata.get("annotations") or {}), CONFIG_HASH: value}
    return {**data, "spec": {**data["spec"], "template": {**template, "metadata": metadata}}}
