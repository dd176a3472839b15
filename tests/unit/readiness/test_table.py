"""The table of readiness rules: every rule has its cases, and reads fields that the kinds really have."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mlstack.readiness.evaluate import assess
from mlstack.readiness.rule import RULES, RUN_TO_AN_END, Facts
from tests.support import upstream

OLD = "2027-01-15T07:00:00Z"
NOW_S = 1_800_000_000.0


class Case(NamedTuple):
    """One look of an object, as `readiness.yaml` has it."""

    state: str
    reason: str = ""
    status: Mapping[str, Any] | None = None
    spec: Mapping[str, Any] = {}
    parts: Mapping[str, Any] = {}
    facts: Mapping[str, Any] = {}


def case_of(row: dict[str, Any]) -> Case:
    """Read a case, with conditions and endpoints as they really are."""
    status, facts = row.get("status"), dict(row.get("facts") or {})
    if status and isinstance(rows := status.get("conditions"), dict):
        full = [(name, [row, "", ""] if isinstance(row, str) else row) for name, row in rows.items()]
        keys = ("type", "status", "reason", "message")
        row = {
            **row,
            "status": {**status, "conditions": [dict(zip(keys, (n, *r), strict=True)) for n, r in full]},
        }
    if "endpoints" in facts:
        facts["endpoints"] = {tuple(key.split("/")): ready for key, ready in facts["endpoints"].items()}
    return Case(**{**row, "facts": facts})


def cases() -> Iterator[tuple[str, tuple[str, list[Case]]]]:
    text = Path(__file__).parents[2].joinpath("support", "data", "readiness.yaml").read_text("utf-8")
    for name, rows in yaml.safe_load(text).items():
        api_version, kind = name.split()
        yield f"{api_version.rpartition('/')[0]}/{kind}".lstrip("/"), (api_version, [*map(case_of, rows)])


CASES = dict(cases())
# Kinds that have no end they cannot come back from.
NEVER_FAIL = (
    *("Service", "Namespace", "batch/CronJob", "ray.io/RayCronJob", "apiregistration.k8s.io/APIService"),
    "admissionregistration.k8s.io/ValidatingWebhookConfiguration",
    "admissionregistration.k8s.io/MutatingWebhookConfiguration",
    *("autoscaling/HorizontalPodAutoscaler", "policy/PodDisruptionBudget", "scheduling.volcano.sh/Queue"),
    *("networking.k8s.io/Ingress", "cert-manager.io/Issuer", "cert-manager.io/ClusterIssuer"),
    "cert-manager.io/Certificate",
)
ALL = [(key, case) for key, (_, cases) in CASES.items() for case in cases]

# Which file of upstream definitions has a kind; the others are of Kubernetes, or have none there.
DEFINITIONS = {
    "argoproj.io/CronWorkflow": "argoproj.io/cronworkflows.yaml",
    "argoproj.io/Workflow": "argoproj.io/workflows.yaml",
    "cert-manager.io/Certificate": "cert-manager.io/certificates.yaml",
    "cert-manager.io/Issuer": "cert-manager.io/issuers.yaml",
    "jobset.x-k8s.io/JobSet": "jobset.x-k8s.io/jobsets.yaml",
    "kubeflow.org/JAXJob": "kubeflow.org/jaxjobs.yaml",
    "kubeflow.org/MPIJob": "kubeflow.org/mpijobs.v2beta1.yaml",
    "kubeflow.org/Notebook": "kubeflow.org/notebooks.yaml",
    "kubeflow.org/PaddleJob": "kubeflow.org/paddlejobs.yaml",
    "kubeflow.org/PyTorchJob": "kubeflow.org/pytorchjobs.yaml",
    "kubeflow.org/TFJob": "kubeflow.org/tfjobs.yaml",
    "kubeflow.org/XGBoostJob": "kubeflow.org/xgboostjobs.yaml",
    "kueue.x-k8s.io/AdmissionCheck": "kueue.x-k8s.io/admissionchecks.yaml",
    "kueue.x-k8s.io/ClusterQueue": "kueue.x-k8s.io/clusterqueues.yaml",
    "kueue.x-k8s.io/LocalQueue": "kueue.x-k8s.io/localqueues.yaml",
    "kueue.x-k8s.io/Workload": "kueue.x-k8s.io/workloads.yaml",
    "leaderworkerset.x-k8s.io/LeaderWorkerSet": "leaderworkerset.x-k8s.io/leaderworkersets.yaml",
    "machinelearning.seldon.io/SeldonDeployment": "machinelearning.seldon.io/seldondeployments.yaml",
    "ray.io/RayCluster": "ray.io/rayclusters.yaml",
    "ray.io/RayJob": "ray.io/rayjobs.yaml",
    "ray.io/RayService": "ray.io/rayservices.yaml",
    "serving.kserve.io/InferenceService": "serving.kserve.io/inferenceservices.yaml",
    "sparkoperator.k8s.io/SparkApplication": "sparkoperator.k8s.io/sparkapplications.yaml",
    "trainer.kubeflow.org/TrainJob": "trainer.kubeflow.org/trainjobs.yaml",
}


def data_of(key: str, case: Case) -> dict[str, Any]:
    metadata = {"name": "x", "uid": "uid-x", "creationTimestamp": OLD, "generation": 2}
    data = {"apiVersion": CASES[key][0], "kind": key.rpartition("/")[2], "metadata": metadata}
    data |= {"spec": case.spec, **{name: part for name, part in case.parts.items() if name != "metadata"}}
    data["metadata"] = {**metadata, **(case.parts.get("metadata") or {})}
    return data | ({} if case.status is None else {"status": case.status})


@pytest.mark.parametrize(("key", "case"), ALL, ids=[f"{key}-{case.state}" for key, case in ALL])
def test_rule(key: str, case: Case) -> None:
    readiness = assess(Facts(data=data_of(key, case), now_s=NOW_S, **case.facts))
    assert readiness.state == case.state
    assert case.reason in readiness.reason


def test_every_rule_has_ready_waiting_and_failed_cases() -> None:
    missing = {
        key: lacking for key, _ in RULES if (lacking := wanted(key) - {case.state for case in CASES[key][1]})
    }
    assert missing == {}
    assert set(CASES) == set(RULES.names())


def wanted(key: str) -> set[str]:
    never = {"failed"} if key in NEVER_FAIL else set()
    return {"ready", "waiting", "failed", *({"done"} if key in RUN_TO_AN_END else ())} - never


def undeclared(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    """Give the fields of a value that a schema does not have."""
    if isinstance(value, list):
        for item in value:
            yield from undeclared(item, schema.get("items") or {}, f"{path}[]")
    if not isinstance(value, Mapping) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, inner in value.items():
        more = schema.get("additionalProperties")
        declared = (schema.get("properties") or {}).get(name) or (more if isinstance(more, Mapping) else None)
        if declared is None:
            yield f"{path}.{name}"
        else:
            yield from undeclared(inner, declared, f"{path}.{name}")


@pytest.mark.slow
@pytest.mark.parametrize("key", sorted(DEFINITIONS))
def test_rules_read_fields_that_the_kinds_have(key: str) -> None:
    definition = yaml.load(upstream.crd(DEFINITIONS[key]).read_text(), Loader=yaml.CSafeLoader)
    version = CASES[key][0].rpartition("/")[2]
    served = next(entry for entry in definition["spec"]["versions"] if entry["name"] == version)
    schema = served["schema"]["openAPIV3Schema"]
    strange = [
        name
        for case in CASES[key][1]
        if case.status and "observedGeneration" not in case.status
        for name in undeclared(case.status, schema["properties"]["status"], "status")
    ]
    assert strange == []


@given(st.sampled_from(ALL), st.data())
def test_half_written_statuses_break_no_rule(example: tuple[str, Case], data: st.DataObject) -> None:
    key, case = example
    status = dict(case.status or {})
    for name in list(status):
        if data.draw(st.booleans()):
            status[name] = None
    readiness = assess(Facts(data=data_of(key, case) | {"status": status or None}, now_s=NOW_S))
    assert readiness.state in {"ready", "waiting", "failed", "done", "suspended", "terminating"}


@given(st.sampled_from(sorted(CASES)), st.floats(0, 1e6))
def test_time_alone_makes_nothing_worse_than_waiting_fail_without_pods(key: str, later_s: float) -> None:
    for case in CASES[key][1]:
        if case.state == "waiting":
            facts = Facts(data=data_of(key, case), now_s=NOW_S + later_s, **case.facts)
            assert assess(facts).state in ("waiting", "ready")
