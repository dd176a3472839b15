"""Manifests that came out of a cluster: what the server and kubectl wrote into them is left out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from mlstack.objects.kube_object import SERVER_METADATA
from mlstack.render.render import unpacked
from mlstack.yaml import edit, read, rewrite, write
from mlstack.yaml.read import Path

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_BOUND = "pv.kubernetes.io/bound-by-controller"
_ANNOTATIONS = frozenset(
    {_LAST_APPLIED, _BOUND, "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/provisioned-by"}
    | {"volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"}
    | {"volume.kubernetes.io/selected-node", "deployment.kubernetes.io/revision"}
    | {"batch.kubernetes.io/job-tracking", "batch.kubernetes.io/cronjob-scheduled-timestamp"}
)
_OF_JOBS = frozenset(
    {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
)
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
SIGNS = re.compile(r"\b(uid|resourceVersion|managedFields|selfLink|last-applied-configuration)\b")
"""What stands in every text that a server had a hand in."""


def without_server_fields(text: str, *, source: str) -> tuple[str, list[str]]:
    """Take out of a document what the server had set, and give the names of those fields.

    Comments stay; a List of objects is written anew, and any other text changes in those places alone.
    """
    paths = [
        (*path, *own)
        for document in read.read_documents(text, source=source)
        for path, data in unpacked(document.value)
        for own in server_fields(data)
    ]
    if any("items" in path[:1] for path in paths):
        is_json = False
        with suppress(ValueError):
            commented, is_json = json.loads(text), True
        if not is_json:
            [commented] = rewrite.load(text, source=source)
        for path in reversed(paths):  # later items of a list first
            inner = commented
            for part in path[:-1]:
                inner = inner[part]
            del inner[path[-1]]
        start = "---\n" if text.startswith("---") else ""
        text = write.to_json(commented) if is_json else start + rewrite.dump(commented)
    else:
        for path in reversed(paths):
            text = edit.unset_value(text, path, source=source)
    names = ([part for part in path if isinstance(part, str) and part != "items"] for path in paths)
    return text, [".".join(name[:2] if "annotations" in name else name) for name in names]


def server_fields(data: Any) -> Iterator[Path]:
    """Give the paths of what the API server, its controllers and kubectl set in an object that they kept."""
    metadata = data.get("metadata") if isinstance(data, Mapping) else None
    if not isinstance(metadata, Mapping):
        return
    annotations = metadata.get("annotations") or {}
    if not ({"uid", "resourceVersion", "managedFields", "selfLink"} & metadata.keys()) and (
        _LAST_APPLIED not in annotations
    ):
        return
    yield from (("metadata", name) for name in metadata if name in SERVER_METADATA)
    yield from _keys(annotations, _ANNOTATIONS, ("metadata", "annotations"))
    kind, spec = data.get("kind"), data.get("spec")
    labels = metadata.get("labels") or {}
    if kind == "Namespace":
        yield from _keys(labels, frozenset((_NAMESPACE_LABEL,)), ("metadata", "labels"))
    if isinstance(spec, Mapping):
        if kind == "Service":
            yield from _service(spec, str(annotations.get(_LAST_APPLIED)))
        elif kind == "Job" and spec.get("manualSelector") is not True:
            yield from _job(labels, spec)
        elif kind == "PersistentVolumeClaim" and _BOUND in annotations and "volumeName" in spec:
            yield "spec", "volumeName"
        elif kind == "Namespace" and spec.get("finalizers") == ["kubernetes"]:
            yield ("spec",)
        elif kind == "Pod" and "nodeName" in spec:
            yield "spec", "nodeName"
    if "status" in data:
        yield ("status",)


def _keys(values: Mapping[str, Any], names: frozenset[str], path: Path) -> Iterator[Path]:
    """Give those of a map's keys; the map itself where it has no other."""
    if values and values.keys() <= names:
        yield path
    else:
        yield from ((*path, name) for name in values if name in names)


def _service(spec: Mapping[str, Any], last_applied: str) -> Iterator[Path]:
    """Give the addresses and ports that were allotted; ports that a person asked for stay."""
    headless = spec.get("clusterIP") == "None"
    given: Any = {}
    with suppress(ValueError):
        given = json.loads(last_applied) or {}
    own = given.get("spec") or {} if isinstance(given, Mapping) else {}
    allotted = [*([] if headless else ["clusterIP"]), "clusterIPs", "ipFamilies", "healthCheckNodePort"]
    allotted += ["ipFamilyPolicy"] if spec.get("ipFamilyPolicy") == "SingleStack" else []
    yield from (("spec", name) for name in allotted if name in spec and name not in own)
    asked = {port.get("port"): port.get("nodePort") for port in own.get("ports") or ()}
    for index, port in enumerate(spec.get("ports") or ()):
        if "nodePort" in port and asked.get(port.get("port")) != port["nodePort"]:
            yield "spec", "ports", index, "nodePort"


def _job(labels: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[Path]:
    """Give the selector of a Job that has none of its own, and the labels that it goes by."""
    yield from _keys(labels, _OF_JOBS, ("metadata", "labels"))
    if "selector" in spec:
        yield "spec", "selector"
    pod = (spec.get("template") or {}).get("metadata") or {}
    yield from _keys(pod.get("labels") or {}, _OF_JOBS, ("spec", "template", "metadata", "labels"))
