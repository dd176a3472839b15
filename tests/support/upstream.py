"""Find the upstream CRDs that tests install; they are data beside the project, no part of it."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.objects.kube_object import KubeObject, group_of

CRDS = Path(__file__).parents[2].parent / "shared" / "crds"
# The kind has two definitions of one name; ours is of the MPI operator.
_OTHERS = frozenset({"mpijobs.v1.yaml"})


def crd(name: str) -> Path:
    """Give the file of an upstream CRD (`kubeflow.org/tfjobs.yaml`); skip the test where it is absent."""
    path = CRDS / name
    if not path.is_file():
        pytest.skip(f"the upstream schema {name} is not in ../shared/crds")
    return path


def crds_of(objects: Iterable[KubeObject]) -> list[Path]:
    """Give the files of the upstream CRDs of the objects' kinds, as far as there are any."""
    if not CRDS.is_dir():
        pytest.skip("the upstream schemas are not in ../shared/crds")
    kinds = {(group_of(obj.api_version), obj.kind) for obj in objects}
    return sorted({_files()[kind] for kind in kinds if kind in _files()})


def lacking_of(objects: Sequence[KubeObject]) -> list[Path]:
    """Give the files of the upstream CRDs of the objects' kinds, without those that the objects bring."""
    ours = {obj.name.partition(".")[0] for obj in objects if obj.kind == "CustomResourceDefinition"}
    return [file for file in crds_of(objects) if file.stem not in ours]


def definitions_of(objects: Sequence[KubeObject]) -> Iterator[dict[str, Any]]:
    """Give what stands in the files of `lacking_of`."""
    return (yaml.load(file.read_text("utf-8"), yaml.CSafeLoader) for file in lacking_of(objects))


@cache
def _files() -> Mapping[tuple[str, str], Path]:
    files = [file for file in CRDS.glob("*/*.yaml") if file.name not in _OTHERS]
    heads = {file: re.search(r"  names:[^}]*?\bkind: (\w+)", file.read_text("utf-8")) for file in files}
    return {(file.parent.name, head.group(1)): _accepted(file) for file, head in heads.items() if head}


def _accepted(file: Path) -> Path:
    """Give the file, or a copy that API servers of today take.

    Seldon's graph has items without a type; kube-batch was archived before definitions had versions.
    """
    text, untyped = file.read_text("utf-8"), "children: {items: {}, type: array}"
    if untyped in text:
        typed = "children: {items: {type: object, x-kubernetes-preserve-unknown-fields: true}, type: array}"
        return _copy(file, text.replace(untyped, typed))
    if "apiVersion: apiextensions.k8s.io/v1beta1" in text:
        return _copy(file, json.dumps(_of_today(yaml.safe_load(text))))
    return file


def _copy(file: Path, text: str) -> Path:
    copy = Path(tempfile.mkdtemp()) / file.name
    copy.write_text(text, encoding="utf-8")
    return copy


def _of_today(definition: dict[str, Any]) -> dict[str, Any]:
    """Give a definition of `v1beta1` as `v1` has it; one of a group of Kubernetes says who approved it."""
    spec = definition["spec"]
    version = {"name": spec.pop("version"), "served": True, "storage": True}
    version |= {"schema": spec.pop("validation"), "subresources": spec.pop("subresources")}
    approved = {"api-approved.kubernetes.io": "unapproved, archived"}
    metadata = {**definition["metadata"], "annotations": approved}
    spec = {"scope": "Namespaced", **spec, "versions": [version]}
    return {**definition, "apiVersion": "apiextensions.k8s.io/v1", "metadata": metadata, "spec": spec}
