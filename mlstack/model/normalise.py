"""Write an object the way the API server keeps it, so that what is rendered is what is applied.

Where a form would make server-side apply misbehave, it is replaced by an equal one: `stringData` (a key
dropped from it would stay in the Secret for ever), empty maps (they would own the whole map), fields
that only the server sets (a manifest exported by `kubectl get -o yaml` carries them).
"""

import base64
from collections.abc import Mapping
from typing import Any

_SERVER_METADATA = frozenset(
    {"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"}
)
_EMPTY_IS_ABSENT = frozenset(
    {"annotations", "args", "binaryData", "command", "data", "env", "envFrom", "finalizers"}
    | {"imagePullSecrets", "initContainers", "labels", "limits", "nodeSelector", "ownerReferences"}
    | {"requests", "tolerations", "volumeMounts", "volumes"}
)
_TEXT_MAPS = frozenset({"data", "stringData", "binaryData"})


def normalised(data: Mapping[str, Any], *, built_in: bool) -> dict[str, Any]:
    """Give an equal object in the form the server keeps.

    Args:
        data: the object as it was rendered or read.
        built_in: whether Kubernetes itself serves the kind. In custom resources a null or an empty
            map may mean something to their controller, so only their metadata is touched.
    """
    result = dict(data)
    if "metadata" in result:
        result["metadata"] = _metadata(result["metadata"])
    kind = data.get("kind")
    if not built_in:
        return {key: _without_null_times(value) for key, value in result.items()}
    result.pop("status", None)
    if kind == "CustomResourceDefinition":
        return result
    if kind in ("Secret", "ConfigMap"):
        return _text_maps(result)
    result = dict(_pruned(result))
    if kind == "ClusterRole" and result.get("aggregationRule") is not None:
        # The aggregating controller owns the rules; an empty list of ours would fight with it for ever.
        result.pop("rules", None)
    if kind == "NetworkPolicy" and isinstance(result.get("spec"), dict):
        result["spec"] = _network_policy(result["spec"])
    return result


def _metadata(metadata: Any) -> Any:
    if not isinstance(metadata, Mapping):
        return metadata
    kept = {key: value for key, value in metadata.items() if key not in _SERVER_METADATA}
    return {key: value for key, value in kept.items() if value not in (None, {}, [])}


def _without_null_times(value: Any) -> Any:
    """Drop `creationTimestamp: null`, which Go programs write into pod templates and no CRD declares."""
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if not (k == "creationTimestamp" and v is None)}
        return {key: _without_null_times(item) for key, item in kept.items()}
    if isinstance(value, list):
        return [_without_null_times(item) for item in value]
    return value


def _text_maps(data: dict[str, Any]) -> dict[str, Any]:
    """Fold `stringData` into `data`; a null value is the empty text, as the API server reads it."""
    result = {key: value for key, value in data.items() if value is not None}
    for name in _TEXT_MAPS & result.keys():
        if isinstance(result[name], Mapping):
            result[name] = {key: "" if value is None else value for key, value in result[name].items()}
    strings, texts = result.get("stringData"), result.get("data", {})
    # Where either is no map, both stay as they are for validation to speak of.
    if data.get("kind") == "Secret" and isinstance(strings, Mapping) and isinstance(texts, Mapping):
        del result["stringData"]
        result["data"] = {**texts, **{key: _encoded(value) for key, value in strings.items()}}
    return {key: value for key, value in result.items() if key not in _TEXT_MAPS or value != {}}


def _encoded(value: Any) -> Any:
    return base64.b64encode(value.encode()).decode() if isinstance(value, str) else value


def _pruned(value: Any) -> Any:
    """Drop nulls, and the empty maps and lists that mean the same as none."""
    if isinstance(value, dict):
        inner = {key: _pruned(item) for key, item in value.items() if item is not None}
        return {k: v for k, v in inner.items() if v or k not in _EMPTY_IS_ABSENT or v not in ({}, [])}
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value


def _network_policy(spec: dict[str, Any]) -> dict[str, Any]:
    """Drop empty peers and ports; an empty rule list means "deny all" and goes only if the type says it."""
    types = spec.get("policyTypes") or []
    result = dict(spec)
    for name, peer, policy_type in (("ingress", "from", "Ingress"), ("egress", "to", "Egress")):
        rules = result.get(name)
        if rules == [] and policy_type in types:
            del result[name]
        elif isinstance(rules, list):
            result[name] = [_rule(rule, peer) for rule in rules]
    return result


def _rule(rule: Any, peer: str) -> Any:
    if not isinstance(rule, Mapping):
        return rule
    return {key: value for key, value in rule.items() if not (key in (peer, "ports") and value == [])}
