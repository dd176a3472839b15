"""What `validate` says offline is what a real API server says of the same object.

Neither says a thing of the shipped examples: `test_apply_prototypes` and `tests/golden` hold that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.objects.kube_object import Kinds, KubeObject
from mlstack.validate.validate import load_schemas, validate_objects
from tests.generate import crds as generated
from tests.generate.kubernetes_schemas import enums
from tests.support import accepted, dryrun, upstream
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane
from tests.support.mutations import mutations
from tests.support.variants import JOB_VARIANTS, JOBS, MANIFESTS, VARIANTS, Variant

pytestmark = pytest.mark.cluster

SERVED = 36
"""The Kubernetes 1.x of the test clusters."""
UPSTREAM = ("tfjobs", "pytorchjobs", "xgboostjobs", "jaxjobs", "paddlejobs")
ELASTIC = generated.ROOT / "prototypes" / "elastic" / "crds" / "trainingjobs.yaml"
"""Has no definition upstream: EDL's was made by its controller, without a schema."""
OURS = [*sorted(generated.FOLDER.glob("*.yaml")), ELASTIC]

Crds = Sequence[Mapping[str, Any]]


def read(files: Sequence[Path]) -> Crds:
    return [_read(file) for file in files]


@cache
def _read(file: Path) -> Mapping[str, Any]:
    data: Mapping[str, Any] = yaml.load(file.read_text("utf-8"), yaml.CSafeLoader)
    return data


@pytest.fixture(scope="module")
def upstream_files() -> list[Path]:
    return [*(upstream.crd(f"kubeflow.org/{name}.yaml") for name in UPSTREAM), ELASTIC]


@pytest.fixture(scope="module")
def with_ours(control_plane: ControlPlane) -> Iterator[TestCluster]:
    """A cluster with the definitions that mlstack ships."""
    cluster = control_plane.clusters["minikube"]
    dryrun.install(cluster, OURS)
    yield cluster
    dryrun.remove((cluster, OURS))


@pytest.fixture(scope="module")
def with_upstream(control_plane: ControlPlane, upstream_files: list[Path]) -> Iterator[TestCluster]:
    """A cluster with the definitions of the training operator 1.9.4."""
    cluster = control_plane.clusters["gke"]
    dryrun.install(cluster, upstream_files)
    yield cluster
    dryrun.remove((cluster, upstream_files))


def faults(data: Mapping[str, Any], crds: Crds = ()) -> list[str]:
    faults_of_all = validate_objects([KubeObject(data=data)], load_schemas(f"1.{SERVED}"), crds=crds).faults
    return [f"{fault.path}: {fault.message}" for fault in faults_of_all if fault.severity == "error"]


def check(variant: Variant, data: Mapping[str, Any], refusal: str | None, crds: Crds = ()) -> None:
    offline = faults(data, crds)
    assert (refusal is not None) == variant.refused, refusal
    assert bool(offline) == variant.refused, f"server: {refusal}, offline: {offline}"


@pytest.mark.parametrize("name", sorted(MANIFESTS))
def test_sound_objects_are_taken(name: str, minikube: TestCluster) -> None:
    assert dryrun.refusal(minikube, MANIFESTS[name], Kinds.builtin()) is None
    assert faults(MANIFESTS[name]) == []


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.id)
def test_variants_get_the_same_verdict(variant: Variant, minikube: TestCluster) -> None:
    data = variant.build()
    check(variant, data, dryrun.refusal(minikube, data, Kinds.builtin()))


@pytest.mark.parametrize("name", sorted(JOBS))
def test_sound_jobs_are_taken(name: str, with_ours: TestCluster) -> None:
    crds = read(OURS)
    assert dryrun.refusal(with_ours, JOBS[name], Kinds.builtin().with_crds(crds)) is None
    assert faults(JOBS[name], crds) == []


@pytest.mark.parametrize("variant", JOB_VARIANTS, ids=lambda variant: variant.id)
def test_jobs_get_the_same_verdict(variant: Variant, with_ours: TestCluster) -> None:
    crds, data = read(OURS), variant.build(JOBS)
    check(variant, data, dryrun.refusal(with_ours, data, Kinds.builtin().with_crds(crds)), crds)


@pytest.mark.parametrize(
    "name", ["Deployment", "StatefulSet", "Service", "Ingress", "Autoscaler", "RoleBinding"]
)
def test_objects_spoilt_by_one_step_get_the_same_verdict(name: str, minikube: TestCluster) -> None:
    check_mutations(MANIFESTS[name], minikube, ())


@pytest.mark.parametrize("name", ["TFJob", "Elastic"])
def test_jobs_spoilt_by_one_step_get_the_same_verdict(name: str, with_ours: TestCluster) -> None:
    check_mutations(JOBS[name], with_ours, read(OURS))


def check_mutations(data: Mapping[str, Any], cluster: TestCluster, crds: Crds) -> None:
    kinds, different = Kinds.builtin().with_crds(crds), []
    for step, spoilt in mutations(data):
        refusal, offline = dryrun.refusal(cluster, spoilt, kinds), faults(spoilt, crds)
        if bool(refusal) != bool(offline):
            different.append((step, refusal, offline))
    assert different == []


@pytest.mark.parametrize(
    "variant",
    [variant for variant in JOB_VARIANTS if not variant.refused and variant.path != "status"],
    ids=lambda variant: variant.id,
)
def test_what_ours_take_upstream_takes_too(
    variant: Variant, with_upstream: TestCluster, upstream_files: list[Path]
) -> None:
    crds, data = read(upstream_files), variant.build(JOBS)
    assert dryrun.refusal(with_upstream, data, Kinds.builtin().with_crds(crds)) is None
    assert faults(data, crds) == []


def test_nothing_is_said_of_what_the_server_takes(minikube: TestCluster, tmp_path: Path) -> None:
    cases = {f"n{number}": case for number, case in enumerate(accepted.ACCEPTED.values())}
    crds = [accepted.definition(schema, name) for name, (schema, _) in cases.items()]
    files = [tmp_path / f"{data['metadata']['name']}.yaml" for data in crds]
    for file, data in zip(files, crds, strict=True):
        file.write_text(yaml.safe_dump(data))
    dryrun.install(minikube, files)
    kinds, different = Kinds.builtin().with_crds(crds), []
    for name, (_, value) in cases.items():
        data = accepted.resource(value, name)
        refusal, offline = dryrun.refusal(minikube, data, kinds), faults(data, crds)
        if refusal or offline:
            different.append((value, refusal, offline))
    dryrun.remove((minikube, files))
    assert different == []


def test_kinds_are_those_that_the_server_names(minikube: TestCluster) -> None:
    """Plural and scope of every built-in kind that the server serves by default."""
    expected = {(kind.api_version, kind.kind): kind for kind in Kinds.builtin() if kind.is_served_by(SERVED)}
    groups = minikube.request("GET", "/apis")["groups"]
    versions = ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]
    count = 0
    for version in versions:
        root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        for row in minikube.request("GET", root)["resources"]:
            kind = expected.get((version, row["kind"]))
            if kind is None or "/" in row["name"] or "list" not in row["verbs"]:
                continue
            assert (row["name"], row["namespaced"]) == (kind.plural, kind.namespaced), row
            count += 1
    assert count > 50


def test_enumerations_are_those_that_the_server_names(minikube: TestCluster) -> None:
    """Where the server lists the values of a field, ours are among them."""
    root = minikube.request("GET", "/openapi/v3")["paths"]
    named: dict[str, Any] = {}
    for path, entry in root.items():
        if path.startswith("api"):
            document = minikube.request("GET", entry["serverRelativeURL"])
            named |= document.get("components", {}).get("schemas", {})
    count = 0
    for definition, fields in enums().items():
        for field, values in fields.items():
            described = named.get(definition, {}).get("properties", {}).get(field, {})
            allowed = described.get("items", described).get("enum")
            if allowed:
                ours = {value for value, since in values.items() if since <= SERVED}
                assert ours <= set(allowed), (definition, field)
                count += 1
    assert count > 40
