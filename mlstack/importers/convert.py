"""What is imported as it is written today: served versions, no fields of servers, prototypes that are there.

The rules are those of the deprecation guide of Kubernetes and, for training jobs, of the training operator.
What an old default meant is kept where it can be written (selectors, path types); each rule that was used is
named once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from mlstack.app.components import typed_values
from mlstack.app.prototype import Prototype
from mlstack.errors import MlstackError
from mlstack.importers.jsonnet import text_of, tokens
from mlstack.importers.plan import generated_name, generated_name_note
from mlstack.objects.kube_object import SERVER_METADATA, Data, Kinds, group_of
from mlstack.render.component import unpacked
from mlstack.yaml import edit, read, write
from mlstack.yaml.read import KeyPath

_Change = Callable[[dict[str, Any]], None]


def converted(data: Data) -> tuple[Data, str]:
    """Give an object in a version that is served, and what was done; nothing is said of one that stays."""
    before, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
    rule = _RULES.get((before, kind))
    if rule is None:
        return data, ""
    after, change = rule
    result = deepcopy(dict(data)) | {"apiVersion": after}
    if change is not None:
        try:
            change(result)
        except (AttributeError, KeyError, TypeError, ValueError):  # no object of that kind: validation says
            return data, ""
    return result, f"{before} {kind} is {after} now"


def is_served(data: Data) -> bool:
    """Tell whether a server of today serves the version of an object; of unknown groups that is assumed."""
    version, kind = str(data.get("apiVersion", "")), str(data.get("kind", ""))
    kinds = Kinds.builtin()
    if (version, kind) in _RULES or group_of(version) == "extensions":
        return False
    return kinds.lookup(version, kind) is not None or not kinds.of_group(group_of(version))


def unserved_notes(objects: Iterable[Data], *, has_converted: bool) -> list[str]:
    """Name the versions that no server serves, with what to do; each once."""
    counts = Counter(f"{data['apiVersion']} {data['kind']}" for data in objects if not is_served(data))
    advice = "nothing takes its place: remove it" if has_converted else "--convert rewrites what can be"
    return [f"no server serves {name} any more ({count}): {advice}" for name, count in sorted(counts.items())]


# --- workloads ---

_WORKLOADS = ("Deployment", "DaemonSet", "ReplicaSet", "StatefulSet")


def _spec(data: dict[str, Any]) -> dict[str, Any]:
    spec = data.get("spec")
    return spec if isinstance(spec, dict) else {}


def _workload(data: dict[str, Any]) -> None:
    """Write the selector that the old versions took from the labels of the pods."""
    spec = _spec(data)
    for gone in ("rollbackTo", "templateGeneration"):
        spec.pop(gone, None)
    template = spec.get("template")
    if not isinstance(template, dict):
        return
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        metadata = template["metadata"] = {}
    labels = metadata.get("labels") or {"app": (data.get("metadata") or {}).get("name", "")}
    metadata["labels"] = labels
    if not spec.get("selector"):
        spec["selector"] = {"matchLabels": dict(labels)}


# --- networks ---


def _ingress(data: dict[str, Any]) -> None:
    spec = _spec(data)
    if isinstance(backend := spec.pop("backend", None), Mapping):
        spec["defaultBackend"] = _backend(backend)
    annotations = (data.get("metadata") or {}).get("annotations") or {}
    if isinstance(name := annotations.get("kubernetes.io/ingress.class"), str) and name:
        spec.setdefault("ingressClassName", name)
        del annotations["kubernetes.io/ingress.class"]  # both at once are refused
    for rule in spec.get("rules") or ():
        for path in ((rule or {}).get("http") or {}).get("paths") or ():
            path.setdefault("pathType", "ImplementationSpecific")
            if isinstance(path.get("backend"), Mapping):
                path["backend"] = _backend(path["backend"])


def _backend(backend: Mapping[str, Any]) -> dict[str, Any]:
    if "serviceName" not in backend:
        return dict(backend)
    port = backend.get("servicePort")
    number = int(port) if isinstance(port, str) and port.isdigit() else port
    named = {"number": number} if isinstance(number, int) else {"name": number}
    rest = {key: value for key, value in backend.items() if key not in ("serviceName", "servicePort")}
    return {**rest, "service": {"name": backend["serviceName"], "port": named}}


# --- definitions, webhooks, rights, scaling ---


def _definition(data: dict[str, Any]) -> None:
    """Give each version its schema, columns and subresources; without a schema anything is kept."""
    spec = _spec(data)
    versions = spec.get("versions") or [{"name": spec.get("version"), "served": True, "storage": True}]
    spec.pop("version", None)
    keeps = spec.pop("preserveUnknownFields", True)
    validation, columns = spec.pop("validation", None), spec.pop("additionalPrinterColumns", None)
    subresources = spec.pop("subresources", None)
    for version in versions:
        schema = version.setdefault("schema", deepcopy(validation) or {"openAPIV3Schema": {}})
        top = schema.setdefault("openAPIV3Schema", {})
        top.setdefault("type", "object")
        _typed(top)
        if keeps:
            top["x-kubernetes-preserve-unknown-fields"] = True
        if columns and "additionalPrinterColumns" not in version:
            version["additionalPrinterColumns"] = deepcopy(columns)
        for column in version.get("additionalPrinterColumns") or ():
            if "JSONPath" in column:
                column["jsonPath"] = column.pop("JSONPath")
        if subresources and "subresources" not in version:
            version["subresources"] = deepcopy(subresources)
    spec["versions"] = versions
    spec.setdefault("scope", "Cluster")
    names = spec.get("names") or {}
    if names.get("kind"):
        names.setdefault("singular", str(names["kind"]).lower())
    if isinstance(conversion := spec.get("conversion"), dict) and "webhookClientConfig" in conversion:
        reviews = conversion.pop("conversionReviewVersions", ["v1beta1"])
        client = conversion.pop("webhookClientConfig")
        conversion["webhook"] = {"clientConfig": client, "conversionReviewVersions": reviews}


def _typed(schema: dict[str, Any]) -> None:
    """Write the types that the structural schemas of v1 want where old ones left them out."""
    if "properties" in schema:
        schema.setdefault("type", "object")
    if "items" in schema:
        schema.setdefault("type", "array")
    for inner in (schema.get("properties") or {}).values():
        if isinstance(inner, dict):
            _typed(inner)
            if "type" not in inner and "x-kubernetes-int-or-string" not in inner and "$ref" not in inner:
                inner["x-kubernetes-preserve-unknown-fields"] = True
    if isinstance(schema.get("items"), dict):
        _typed(schema["items"])


def _webhooks(data: dict[str, Any]) -> None:
    for webhook in data.get("webhooks") or ():
        webhook.setdefault("admissionReviewVersions", ["v1beta1"])
        if webhook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            webhook["sideEffects"] = "None"
        webhook.setdefault("failurePolicy", "Ignore")  # the old default
        webhook.setdefault("matchPolicy", "Exact")


def _binding(data: dict[str, Any]) -> None:
    role = data.get("roleRef")
    if isinstance(role, dict):
        role["apiGroup"] = "rbac.authorization.k8s.io"
    for subject in data.get("subjects") or ():
        subject.pop("apiVersion", None)
        if subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = "rbac.authorization.k8s.io"


def _scaler(data: dict[str, Any]) -> None:
    """Write the targets of `autoscaling/v2beta1` as maps, and scale what is served."""
    scaled = _spec(data).get("scaleTargetRef")
    if isinstance(scaled, dict) and scaled.get("kind") in _WORKLOADS:
        scaled["apiVersion"] = "apps/v1"
    for metric in _spec(data).get("metrics") or ():
        source = metric.get(str(metric.get("type", "")).lower())
        if not isinstance(source, dict) or isinstance(source.get("target"), dict):
            continue
        for old, kind, new in (
            ("targetAverageUtilization", "Utilization", "averageUtilization"),
            ("targetAverageValue", "AverageValue", "averageValue"),
            ("targetValue", "Value", "value"),
        ):
            if old in source:
                source["target"] = {"type": kind, new: source.pop(old)}
        if "metricName" in source:
            source["metric"] = {"name": source.pop("metricName")}
            if "selector" in source:
                source["metric"]["selector"] = source.pop("selector")


# --- training jobs ---

_ROLES = {"MASTER": "Chief", "WORKER": "Worker", "PS": "PS", "EVALUATOR": "Evaluator"}


def _training_job(field: str, container: str, roles: Mapping[str, str]) -> _Change:
    def change(data: dict[str, Any]) -> None:
        """Name the replicas by role, and put what concerns the run under `runPolicy`."""
        spec = _spec(data)
        if isinstance(listed := spec.pop("replicaSpecs", None), list):
            spec[field] = {}
            for replica in listed:
                given = [replica.pop(key, "") for key in ("tfReplicaType", "replicaType")]
                role = str(next(filter(None, given), "MASTER")).upper()
                replica.pop("tfPort", None)
                replica.pop("masterPort", None)
                spec[field][roles.get(role, role.capitalize())] = replica
        for gone in ("terminationPolicy", "tfImage", "runtimeId", "RuntimeId"):
            spec.pop(gone, None)
        policy = {
            name: spec.pop(name)
            for name in ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
            if name in spec
        }
        if policy:
            spec["runPolicy"] = policy | dict(spec.get("runPolicy") or {})
        for replica in (spec.get(field) or {}).values():
            pod = ((replica or {}).get("template") or {}).get("spec") or {}
            containers = pod.get("containers") or []
            if containers and all(entry.get("name") != container for entry in containers):
                containers[0]["name"] = container
            if pod.get("restartPolicy") and "restartPolicy" not in replica:
                replica["restartPolicy"] = pod.pop("restartPolicy")

    return change


_KUBEFLOW = " ".join(f"kubeflow.org/{version}" for version in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2"))
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_ROLE_KINDS = "Role ClusterRole RoleBinding ClusterRoleBinding"
_WEBHOOK_KINDS = "MutatingWebhookConfiguration ValidatingWebhookConfiguration"
_PYTORCH = _training_job("pytorchReplicaSpecs", "pytorch", {**_ROLES, "MASTER": "Master"})

# Versions of old, kinds, the version of today, and what else changes.
_ROWS: tuple[tuple[str, str, str, _Change | None], ...] = (
    ("extensions/v1beta1 apps/v1beta1 apps/v1beta2", " ".join(_WORKLOADS), "apps/v1", _workload),
    ("extensions/v1beta1 networking.k8s.io/v1beta1", "Ingress", "networking.k8s.io/v1", _ingress),
    ("extensions/v1beta1", "NetworkPolicy", "networking.k8s.io/v1", None),
    ("networking.k8s.io/v1beta1", "IngressClass", "networking.k8s.io/v1", None),
    ("policy/v1beta1", "PodDisruptionBudget", "policy/v1", None),
    (f"{_RBAC}/v1alpha1 {_RBAC}/v1beta1", _ROLE_KINDS, f"{_RBAC}/v1", _binding),
    ("batch/v1beta1 batch/v2alpha1", "CronJob", "batch/v1", None),
    ("autoscaling/v2beta1 autoscaling/v2beta2", "HorizontalPodAutoscaler", "autoscaling/v2", _scaler),
    ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", "apiextensions.k8s.io/v1", _definition),
    (f"{_ADMISSION}/v1beta1", _WEBHOOK_KINDS, f"{_ADMISSION}/v1", _webhooks),
    ("apiregistration.k8s.io/v1beta1", "APIService", "apiregistration.k8s.io/v1", None),
    ("storage.k8s.io/v1beta1", "StorageClass", "storage.k8s.io/v1", None),
    ("scheduling.k8s.io/v1alpha1 scheduling.k8s.io/v1beta1", "PriorityClass", "scheduling.k8s.io/v1", None),
    ("coordination.k8s.io/v1beta1", "Lease", "coordination.k8s.io/v1", None),
    (_KUBEFLOW, "TFJob", "kubeflow.org/v1", _training_job("tfReplicaSpecs", "tensorflow", _ROLES)),
    (_KUBEFLOW, "PyTorchJob", "kubeflow.org/v1", _PYTORCH),
)
_RULES = {
    (version, kind): (after, change)
    for versions, kinds, after, change in _ROWS
    for version in versions.split()
    for kind in kinds.split()
}


# --- manifests that came out of a cluster: what the server and kubectl wrote into them is left out ---


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
_UNCLEAN = re.compile(
    r"\b(uid|resourceVersion|managedFields|selfLink|last-applied-configuration|generateName|null)\b|-\s*~?\s*$",
    re.MULTILINE,
)
"""What stands in every text that is not taken as it is."""


def cleaned(text: str, *, source: str) -> tuple[str, list[str]]:
    """Give a text as a person would have written it, and tell what was changed.

    What a server had set and items of a List that are null are left out, an object with `generateName` gets a
    name. Comments stay; a List of objects is written anew, any other text changes in those places alone.
    """
    if not _UNCLEAN.search(text):
        return text, []
    parts: list[str] = []
    notes: list[str] = []
    left_out: dict[str, None] = {}
    for part in document_texts(text, source):
        for document in read.read_documents(part, source=source, with_positions=True):
            items = [*unpacked(document.value)]
            gone: list[KeyPath] = []
            for path, data in reversed(items):  # a change leaves the places before it
                if name := generated_name(data):
                    part = _renamed(part, document, path, name, source)
                    notes.append(f"{source}: {generated_name_note(data)}")
            for path, data in items:
                if data is None and path:
                    gone.append(path)
                    notes.append(f"{source}: an item of a List is null; it was left out")
                own = [*server_fields(data)]
                left_out |= dict.fromkeys(map(_field_name, own))
                gone += ((*path, *field) for field in own)
            part = _without(part, gone, source)
        parts.append(part)
    if left_out:
        notes.insert(0, f"{source}: left out what the server had set: {', '.join(left_out)}")
    return "".join(parts), notes


def document_texts(text: str, source: str) -> list[str]:
    """Part a text into its documents, comments and `---` included; joined they are the text."""
    starts = [mark.start for mark in read.read_marks(text, source=source) if mark.kind == "document"]
    return [text[start:end] for start, end in pairwise([0, *starts[1:], len(text)])]


def _field_name(path: KeyPath) -> str:
    names = [part for part in path if isinstance(part, str) and part != "items"]
    return ".".join(names[:2] if "annotations" in names else names)


def _renamed(text: str, document: read.Document, path: KeyPath, name: str, source: str) -> str:
    """Write `name: …` in the place of `generateName: …`."""
    key = (*path, "metadata", "generateName")
    text = edit.set_value(text, key, name, source=source)
    at = document.position(key)
    lines = text.splitlines(keepends=True)
    start = sum(map(len, lines[: at.line - 1])) + at.column - 1
    return text[:start] + text[start:].replace("generateName", "name", 1)


def _without(text: str, paths: Sequence[KeyPath], source: str) -> str:
    if not any("items" in path[:1] for path in paths):
        for path in reversed(paths):
            text = edit.unset_value(text, path, source=source)
        return text
    try:
        document, is_json = json.loads(text), True
    except ValueError:
        [document], is_json = write.load_commented(text, source=source), False
    for path in reversed(paths):  # later items of a list first
        inner = document
        for step in path[:-1]:
            inner = inner[step]
        del inner[path[-1]]
    start = "---\n" if text.startswith("---") else ""
    return write.to_json(document) if is_json else start + write.dump_commented(document)


def server_fields(data: Any) -> Iterator[KeyPath]:
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


def _keys(values: Mapping[str, Any], names: frozenset[str], path: KeyPath) -> Iterator[KeyPath]:
    """Give those of a map's keys; the map itself where it has no other."""
    if values and values.keys() <= names:
        yield path
    else:
        yield from ((*path, name) for name in values if name in names)


def _service(spec: Mapping[str, Any], last_applied: str) -> Iterator[KeyPath]:
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


def _job(labels: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[KeyPath]:
    """Give the selector of a Job that has none of its own, and the labels that it goes by."""
    yield from _keys(labels, _OF_JOBS, ("metadata", "labels"))
    if "selector" in spec:
        yield "spec", "selector"
    pod = (spec.get("template") or {}).get("metadata") or {}
    yield from _keys(pod.get("labels") or {}, _OF_JOBS, ("spec", "template", "metadata", "labels"))


# --- components of ksonnet that only call a known prototype: which it was, and its parameters ---


_NAME = re.compile(r"^// @name (?:io\.ksonnet\.pkg\.)?([\w.-]+)", re.MULTILINE)
_IMPORT = re.compile(r"""import\s*\(?\s*["'][\w.-]+/([\w.-]+)/([\w.-]+)\.libsonnet""")


_FRAMES = (
    ("local", "env", "=", "std", "extVar", "__ksonnet/environments"),
    ("local", "params", "=", "std", "extVar", "__ksonnet/params", "components"),
)


def fingerprint(code: str) -> str:
    """Give what is the same for all components that ks made of a prototype, and of the prototype itself.

    It is a digest of the tokens without what differs: quotes, commas and brackets as ks printed them, the
    name of the component, and the lines by which it reads its parameters.
    """
    words: list[str] = []
    for token in tokens(code):
        text = token.text
        if token.kind == "string":
            with suppress(ValueError):
                text = text_of(token)
        if text.startswith("param://") and words[-1:] == ["import"]:
            words[-1:] = ["params", text.removeprefix("param://")]
        elif text not in ",()[].;":
            words.append(text)
    read = [at for at in range(len(words)) if tuple(words[at - 6 : at + 1]) == _FRAMES[1]]
    for at in reversed(read):
        del words[at + 1 : at + 2]  # the name of the component
    for frame in _FRAMES:
        for at in range(len(words)):
            if tuple(words[at : at + len(frame)]) == frame:
                del words[at : at + len(frame)]
                break
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:10]


@cache
def _known() -> Mapping[str, str]:
    lines = Path(__file__).with_name("fingerprints.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {digest: name for name, *digests in rows for digest in digests}


def old_names(code: str) -> tuple[str, ...]:
    """Give the names that the prototype of a component may have had, the likeliest first.

    It is known by its fingerprint; else, unless it writes objects of its own, by the name that ks wrote above
    it, and by the library that it imports.
    """
    if name := _known().get(fingerprint(code)):
        return (name,)
    if "apiVersion" in code:
        return ()
    names = [match[1] for match in _NAME.finditer(code)]
    for package, library in _IMPORT.findall(code):
        names.append("kubeflow-core" if (package, library) == ("core", "all") else library)
    return tuple(dict.fromkeys(names))


def fitting(
    prototype: Prototype, old_name: str, component: str, values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Give the parameters that the prototype of today takes as they were set, and the names of the others.

    They are spelled as its `old_name` had them; what that sets is among those taken.
    """
    called, own_values = prototype.called(old_name), prototype.alias_params.get(old_name, {})
    taken = dict(own_values)
    others = []
    for name, value in values.items():
        if value in (None, "null", "") or (name == "name" and value == component):
            continue
        try:
            own = typed_values(called, {name: value if isinstance(value, str) else json.dumps(value)})
        except MlstackError:
            others.append(name)
            continue
        others += [name for key in own if called.param(key).deprecated]
        taken |= {
            key: item
            for key, item in own.items()
            if not called.param(key).deprecated and (item != called.param(key).default or key in own_values)
        }
    return taken, others
