"""Make what mlstack ships about the built-in kinds of Kubernetes, from the package `kubernetes-validate`.

    python -m tests.generate.kubernetes_schemas

writes `mlstack/objects/kinds.txt` (which kinds each Kubernetes version serves) and
`mlstack/validate/kubernetes.tsv.gz` (their schemas). The schemas of that package are the ones that
Kubernetes publishes, one folder a version, 5 MB each; kept here are the definitions without descriptions,
each once however many versions share it: a line of name, versions and JSON.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEFINITIONS = ROOT / "mlstack" / "validate" / "kubernetes.tsv.gz"
ENUMS = Path(__file__).with_name("enums.txt")
KINDS_TABLE = ROOT / "mlstack" / "objects" / "kinds.txt"
MINORS = range(30, 38)

# The published schemas do not say which kinds stand outside namespaces; a cluster test compares this list
# with what the API server says of itself.
CLUSTER_SCOPED = """
    APIService CSIDriver CSINode CertificateSigningRequest ClusterRole ClusterRoleBinding
    ClusterTrustBundle ComponentStatus CustomResourceDefinition DeviceClass DeviceTaintRule FlowSchema
    IPAddress IngressClass MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
    MutatingWebhookConfiguration Namespace Node PersistentVolume PriorityClass
    PriorityLevelConfiguration ResourceClass ResourcePoolStatusRequest ResourceSlice RuntimeClass
    ServiceCIDR StorageClass StorageVersion StorageVersionMigration ValidatingAdmissionPolicy
    ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration VolumeAttachment
    VolumeAttributesClass
"""
KEPT = (
    "type",
    "format",
    "required",
    "enum",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-map-type",
)
APIEXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"
# Types whose JSON form the published schemas describe loosely or not at all.
SPECIAL: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"format": "quantity"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": {"type": "string", "format": "date-time"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": {"type": "string", "format": "date-time"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {},
    f"{APIEXTENSIONS}.JSON": {},
    f"{APIEXTENSIONS}.JSONSchemaPropsOrArray": {"$ref": f"{APIEXTENSIONS}.JSONSchemaProps"},
    f"{APIEXTENSIONS}.JSONSchemaPropsOrBool": {"$ref": f"{APIEXTENSIONS}.JSONSchemaProps", "or": "boolean"},
}

# Fields that are marked as required and may be left out all the same: the empty value is one of theirs.
NOT_REQUIRED = {f"{APIEXTENSIONS}.CustomResourceDefinitionVersion": {"served", "storage"}}

Definitions = Mapping[str, Mapping[str, Any]]


def source_folder() -> Path | None:
    """Find the installed `kubernetes-validate`, None where it is not installed."""
    spec = importlib.util.find_spec("kubernetes_validate")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "kubernetes-json-schema"


def read_definitions(folder: Path, minor: int) -> Definitions:
    """Read the strict definitions of Kubernetes 1.`minor`."""
    text = (folder / f"v1.{minor}.0-local-strict" / "_definitions.json").read_text("utf-8")
    definitions: Definitions = json.loads(text)["$defs"]
    return definitions


def root_kinds(definitions: Definitions) -> dict[tuple[str, str, str], str]:
    """Map (group, version, kind) to definition for the kinds that can be created and listed."""
    named = {
        (gvk["group"], gvk["version"], gvk["kind"]): name
        for name, schema in definitions.items()
        if len(schema.get("x-kubernetes-group-version-kind", ())) == 1
        for gvk in schema["x-kubernetes-group-version-kind"]
    }
    return {
        (group, version, kind): name
        for (group, version, kind), name in named.items()
        if (group, version, f"{kind}List") in named and "metadata" in definitions[name]["properties"]
    }


def kinds_table(folder: Path) -> str:
    """Write the rows of `mlstack/objects/kinds.txt`."""
    minors: dict[tuple[str, str, str], list[int]] = {}
    for minor in MINORS:
        for key in root_kinds(read_definitions(folder, minor)):
            minors.setdefault(key, []).append(minor)
    rows: dict[str, list[str]] = {}
    for (group, version, kind), served in sorted(minors.items()):
        if served != list(range(served[0], served[-1] + 1)):
            raise ValueError(f"{group}/{version} {kind} went and came back: {served}")
        scope = "c" if kind in CLUSTER_SCOPED.split() else "n"
        head = f"{group}/{version}".lstrip("/") + f" {scope} {served[0]}-{served[-1]}"
        rows.setdefault(head, []).append(kind)
    return _TABLE_HEAD + "".join(f"{head} {' '.join(kinds)}\n" for head, kinds in rows.items())


_TABLE_HEAD = """\
# API version, `n` (in namespaces) or `c` (of the cluster), first and last minor version of Kubernetes that
# serve the kinds; by tests/generate/kubernetes_schemas.py
"""


@cache
def enums() -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """Read `enums.txt`: definition, field, value and the first minor version that knows it (0: all)."""
    minors: dict[str, dict[str, dict[str, int]]] = {}
    for line in ENUMS.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            definition, field, *values = line.split()
            pairs = (value.partition("@") for value in values)
            since = {value: int(minor or 0) for value, _, minor in pairs}
            minors.setdefault(f"io.k8s.api.{definition}", {})[field] = since
    return minors


def compact(name: str, schema: Mapping[str, Any], minor: int) -> dict[str, Any]:
    """Reduce a definition to what a check needs; references keep the definition's name alone."""
    if name in SPECIAL:
        return dict(SPECIAL[name])
    reduced = _reduced(schema)
    if name in NOT_REQUIRED:
        reduced["required"] = [field for field in reduced["required"] if field not in NOT_REQUIRED[name]]
    gvks = schema.get("x-kubernetes-group-version-kind", ())
    if len(gvks) == 1:
        reduced["gvk"] = [gvks[0]["group"], gvks[0]["version"], gvks[0]["kind"]]
    for field, values in enums().get(name, {}).items():
        described = reduced["properties"].get(field, {})
        described = described.get("items", described)
        described["enum"] = [value for value, since in values.items() if since <= minor]
    return reduced


def _reduced(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return {"$ref": schema["$ref"].rpartition("/")[2]}
    reduced = {key: schema[key] for key in KEPT if key in schema}
    if isinstance(reduced.get("type"), list):
        (reduced["type"],) = (name for name in reduced["type"] if name != "null")
    if reduced.get("format") == "double":
        del reduced["format"]
    if "properties" in schema:
        reduced["properties"] = {
            name: _reduced(schema["properties"][name]) for name in sorted(schema["properties"])
        }
    if "items" in schema:
        reduced["items"] = _reduced(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        reduced["additionalProperties"] = _reduced(schema["additionalProperties"])
    return reduced


def reachable(definitions: Definitions, minor: int) -> set[str]:
    """Name the definitions that objects of the root kinds can contain."""
    todo = list(root_kinds(definitions).values())
    names: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in names:
            names.add(name)
            todo += references(compact(name, definitions[name], minor))
    return names


def references(schema: Any) -> Iterator[str]:
    """Name the definitions that a compact schema refers to."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)


def definition_lines(folder: Path) -> str:
    """Write every definition once: name, first-last minor versions (comma between runs), compact JSON."""
    minors: dict[tuple[str, str], list[int]] = {}
    for minor in MINORS:
        definitions = read_definitions(folder, minor)
        for name in reachable(definitions, minor):
            text = json.dumps(compact(name, definitions[name], minor), separators=(",", ":"), sort_keys=True)
            minors.setdefault((name, text), []).append(minor)
    return "".join(f"{name}\t{_runs(served)}\t{text}\n" for (name, text), served in sorted(minors.items()))


def _runs(minors: list[int]) -> str:
    runs: list[list[int]] = []
    for minor in minors:
        if runs and runs[-1][1] == minor - 1:
            runs[-1][1] = minor
        else:
            runs.append([minor, minor])
    return ",".join(f"{first}-{last}" for first, last in runs)


def main() -> None:
    """Write both files anew where their content differs."""
    folder = source_folder()
    if folder is None:
        raise SystemExit("kubernetes-validate is not installed: pip install 'mlstack[test]'")
    KINDS_TABLE.write_text(kinds_table(folder), "utf-8")
    text = definition_lines(folder).encode()
    # Another zlib may pack the same text otherwise: the file changes only with its content.
    if not DEFINITIONS.exists() or gzip.decompress(DEFINITIONS.read_bytes()) != text:
        DEFINITIONS.write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main()
