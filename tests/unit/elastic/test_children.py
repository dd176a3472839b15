"""The objects that a TrainingJob becomes."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic import pods, training_job
from mlstack.elastic.resources import requests
from mlstack.elastic.training_job import TrainingJob
from mlstack.objects.kube_object import KubeObject
from mlstack.validate.validate import load_schemas, validate_objects
from tests.support.trainingjobs import edl_job, small_job


def job_of(name: str = "example", **fields: Any) -> TrainingJob:
    data = edl_job(name, **fields)
    data["metadata"] |= {"namespace": "team", "uid": "0-1"}
    return training_job.parse(data)


def everything(job: TrainingJob, **options: Any) -> list[dict[str, Any]]:
    return [pods.trainer(job, 0, **options), *pods.supporting(job, hints={}, **options)]


def by_name(job: TrainingJob, **options: Any) -> dict[str, dict[str, Any]]:
    found = pods.supporting(job, **{"hints": {}, **options})
    return {f"{each['kind']} {each['metadata']['name']}": each for each in found}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


FULL = {
    "volumes": [{"name": "data", "emptyDir": {}}],
    "VolumeMounts": [{"name": "data", "mountPath": "/data"}],
    "imagePullSecrets": [{"name": "pull"}],
    "nodeSelector": {"pool": "training"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
    "envFrom": [{"secretRef": {"name": "tokens"}}],
    "serviceAccountName": "trainer",
    "podLabels": {"team": "vision"},
    "podAnnotations": {"note": "x"},
    "master": {"storage": {"size": "1Gi"}},
}


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(job_of(), id="edl"),
        pytest.param(job_of(**FULL), id="everything"),
        pytest.param(training_job.parse(small_job()), id="trainers-alone"),
        pytest.param(job_of("n" * 52), id="long-name"),
        pytest.param(job_of(hostNetwork=True), id="host-network"),
    ],
)
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_objects_are_sound(job: TrainingJob, version: str) -> None:
    objects = [KubeObject(data=each) for each in everything(job, transitions=3)]
    assert [
        str(f) for f in validate_objects(objects, load_schemas(version)).faults if f.severity == "error"
    ] == []


def test_a_job_becomes_services_budgets_and_stateful_sets() -> None:
    assert list(by_name(job_of())) == [
        "Service example-trainer",
        "PodDisruptionBudget example-trainer",
        "Service example-master",
        "PodDisruptionBudget example-master",
        "StatefulSet example-master",
        "Service example-pserver",
        "PodDisruptionBudget example-pserver",
        "StatefulSet example-pserver",
    ]
    assert list(by_name(training_job.parse(small_job()))) == [
        "Service small-trainer",
        "PodDisruptionBudget small-trainer",
    ]


def test_everything_is_owned_by_the_job_and_carries_its_labels() -> None:
    for each in everything(job_of(), transitions=3):
        metadata = each["metadata"]
        assert metadata["namespace"] == "team"
        assert metadata["labels"]["mlstack.dev/training-job"] == "example"
        assert [(ref["name"], ref["uid"], ref["controller"]) for ref in metadata["ownerReferences"]] == [
            ("example", "0-1", True)
        ]
        assert metadata["annotations"]["mlstack.dev/lease-transitions"] == "3"


def test_edls_labels_find_the_pods() -> None:
    objects = by_name(job_of())
    assert pods.trainer(job_of(), 0)["metadata"]["labels"]["paddle-job"] == "example"
    for role in ("master", "pserver"):
        template = objects[f"StatefulSet example-{role}"]["spec"]["template"]
        assert template["metadata"]["labels"][f"paddle-job-{role}"] == "example"


def test_a_trainer_prefers_its_planned_node_and_demands_none() -> None:
    pod = pods.trainer(job_of(), 3, node="n7")
    [wish] = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["preference"]["matchExpressions"][0]["values"] == ["n7"]
    assert pod["metadata"]["annotations"]["mlstack.dev/planned-node"] == "n7"
    assert "affinity" not in pods.trainer(job_of(), 3)["spec"]


def test_a_trainer_goes_quickly_and_is_never_restarted_in_place() -> None:
    pod = pods.trainer(job_of(), 0)["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 5)
    assert pod["priorityClassName"] == "mlstack-trainer"
    assert {each["tolerationSeconds"] for each in pod["tolerations"]} == {5}


@pytest.mark.parametrize(
    ("required", "field"),
    [
        (True, "requiredDuringSchedulingIgnoredDuringExecution"),
        (False, "preferredDuringSchedulingIgnoredDuringExecution"),
    ],
)
def test_servers_are_held_to_the_hinted_nodes_until_the_hint_is_dropped(required: bool, field: str) -> None:
    hints = {"pserver": ("n2", "n1", "n2")}
    objects = by_name(job_of(), hints=hints, required=required)
    affinity = objects["StatefulSet example-pserver"]["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert list(affinity) == [field]
    assert "['n1', 'n2']" in str(affinity)
    assert "affinity" not in objects["StatefulSet example-master"]["spec"]["template"]["spec"]


def test_a_stateful_set_starts_at_once_and_restarts_nothing_by_itself() -> None:
    found = by_name(job_of())["StatefulSet example-pserver"]["spec"]
    assert (found["replicas"], found["podManagementPolicy"]) == (2, "Parallel")
    assert found["updateStrategy"] == {"type": "OnDelete"}
    assert by_name(job_of(), is_running=False)["StatefulSet example-pserver"]["spec"]["replicas"] == 0


def test_budgets_protect_the_minimum_of_trainers_and_every_server() -> None:
    objects = by_name(job_of())
    assert objects["PodDisruptionBudget example-trainer"]["spec"]["minAvailable"] == 2
    assert objects["PodDisruptionBudget example-pserver"]["spec"]["maxUnavailable"] == 0


def test_claims_outlive_pods_and_are_mounted() -> None:
    found = by_name(job_of(**FULL))["StatefulSet example-master"]["spec"]
    [claim] = found["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert found["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    master, etcd = found["template"]["spec"]["containers"]
    assert environment(master)["MLSTACK_CHECKPOINT_DIR"] in [
        each["mountPath"] for each in master["volumeMounts"]
    ]
    assert etcd["volumeMounts"][0]["name"] == claim["metadata"]["name"]


def test_pods_pass_the_restricted_policy() -> None:
    job = job_of()
    pods = [
        each["spec"].get("template", each)
        for each in everything(job)
        if each["kind"] in ("Pod", "StatefulSet")
    ]
    assert len(pods) == 3
    for pod in pods:
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_trainers_have_their_own_nodes_beside_those_of_all_pods() -> None:
    data = edl_job(nodeSelector={"pool": "a"})
    data["spec"]["trainer"]["nodeSelector"] = {"gpu": "l4"}
    job = training_job.parse(data)
    assert pods.trainer(job, 0)["spec"]["nodeSelector"] == {"pool": "a", "gpu": "l4"}
    server = by_name(job)["StatefulSet example-pserver"]["spec"]["template"]["spec"]
    assert server["nodeSelector"] == {"pool": "a"}


def test_the_jobs_own_security_context_wins() -> None:
    pod = pods.trainer(job_of(securityContext={"runAsUser": 33}), 0)
    assert pod["spec"]["securityContext"]["runAsUser"] == 33
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_the_environment_has_edls_names() -> None:
    found = environment(pods.trainer(job_of(passes=3), 0)["spec"]["containers"][0])
    assert {name: found[name] for name in found if "PADDLE" in name or name in ("TRAINERS", "PSERVERS")} == {
        "PADDLE_JOB_NAME": "example",
        "TRAINERS": "2",
        "PSERVERS": "2",
        "PADDLE_INIT_PORT": "7164",
        "PADDLE_INIT_PORTS_NUM": "1",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
        "PADDLE_INIT_TRAINER_COUNT": "1",
        "PADDLE_INIT_NUM_PASSES": "3",
        "PADDLE_INIT_USE_GPU": "0",
    }
    assert found["ENTRY"] == found["TOPOLOGY"] == "python /workspace/train.py"


def test_peers_are_found_by_name_without_asking_kubernetes() -> None:
    found = environment(pods.trainer(job_of(), 4)["spec"]["containers"][0])
    assert found["MLSTACK_MASTER_ADDR"] == "example-master-0.example-master.team.svc:8080"
    assert found["MLSTACK_ETCD_ENDPOINT"] == "http://example-master-0.example-master.team.svc:2379"
    assert found["MLSTACK_PSERVER_ADDRS"] == (
        "example-pserver-0.example-pserver.team.svc:7164,example-pserver-1.example-pserver.team.svc:7164"
    )
    assert found["MLSTACK_INDEX"] == "4"


def test_torchrun_finds_its_range_and_its_meeting_point() -> None:
    found = environment(pods.trainer(job_of(), 0)["spec"]["containers"][0])
    assert (found["PET_NNODES"], found["PET_NPROC_PER_NODE"]) == ("2:10", "1")
    assert found["PET_RDZV_ENDPOINT"] == "example-master-0.example-master.team.svc:29400"
    alone = pods.trainer(training_job.parse(small_job()), 1)["spec"]
    assert environment(alone["containers"][0])["PET_RDZV_ENDPOINT"] == (
        "small-trainer-0.small-trainer.default.svc:29400"
    )
    assert (alone["hostname"], alone["subdomain"]) == ("small-trainer-1", "small-trainer")


def test_a_changed_maximum_leaves_running_servers_alone() -> None:
    one, other = job_of(), job_of()
    data = edl_job()
    data["spec"]["trainer"]["max-instance"] = 7
    data["metadata"] |= {"namespace": "team", "uid": "0-1"}
    other = training_job.parse(data)
    assert pods.supporting(one, hints={}) == pods.supporting(other, hints={})


def test_the_jobs_own_variables_win() -> None:
    pod = pods.trainer(job_of(env=[{"name": "PET_MAX_RESTARTS", "value": "3"}]), 0)
    names = [each["name"] for each in pod["spec"]["containers"][0]["env"]]
    assert names.count("PET_MAX_RESTARTS") == 1
    assert environment(pod["spec"]["containers"][0])["PET_MAX_RESTARTS"] == "3"


def test_processes_without_a_command_are_started_by_edls_verbs() -> None:
    objects = by_name(job_of())
    master = objects["StatefulSet example-master"]["spec"]["template"]["spec"]["containers"][0]
    assert master["command"] == ["paddle_k8s", "start_master"]
    data = edl_job(master={"entrypoint": "python master.py"})
    own = by_name(training_job.parse(data))["StatefulSet example-master"]["spec"]["template"]["spec"][
        "containers"
    ][0]
    assert own["command"] == ["/bin/sh", "-c", "python master.py"]


@pytest.mark.parametrize(
    ("is_fault_tolerant", "trainer", "pserver"),
    [
        pytest.param(True, ["start_new_trainer"], ["start_new_pserver"], id="fault-tolerant"),
        pytest.param(False, ["start_trainer", "v2"], ["start_pserver"], id="rigid"),
    ],
)
def test_fault_tolerance_selects_edls_verbs(
    trainer: list[str], pserver: list[str], *, is_fault_tolerant: bool
) -> None:
    data = edl_job(fault_tolerant=is_fault_tolerant)
    data["spec"]["trainer"] |= {"entrypoint": "", "min-instance": 3, "max-instance": 3}
    job = training_job.parse(data)

    def command(pod: dict[str, Any]) -> list[str]:
        found: list[str] = pod["spec"]["containers"][0]["command"]
        return found

    assert command(pods.trainer(job, 0)) == ["paddle_k8s", *trainer]
    sets = by_name(job)
    servers = sets["StatefulSet example-pserver"]["spec"]["template"]
    assert command(servers) == ["paddle_k8s", *pserver]
    assert command(sets["StatefulSet example-master"]["spec"]["template"]) == ["paddle_k8s", "start_master"]


def test_what_is_planned_is_what_the_pod_requests() -> None:
    job = job_of()
    assert requests(pods.pod_spec(job, "trainer", 0)) == {"cpu": 200, "memory": 200 * 2**20, "pods": 1}
    assert requests(pods.pod_spec(job, "master")) == {"cpu": 500, "memory": 600 * 2**20, "pods": 1}


def test_ports_are_consecutive_and_named_as_edl_named_them() -> None:
    pod = pods.trainer(job_of(port=8000, ports_num=2), 0)
    names = [each["name"] for each in pod["spec"]["containers"][0]["ports"]]
    assert names == ["jobport-8000", "jobport-8001", "jobport-8002", "rendezvous"]


@pytest.mark.parametrize("role", ["master", "pserver", "trainer"])
def test_names_of_sets_leave_room_for_their_label(role: Any) -> None:
    name = training_job.role_name("n" * 52, role)
    assert len(name) <= 52
    assert name.endswith(f"-{role}")
    assert name != training_job.role_name("n" * 51, role)


def test_a_job_that_may_have_no_trainers_has_no_budget_for_them() -> None:
    job = training_job.parse(small_job(minimum=0))
    assert list(by_name(job)) == ["Service small-trainer"]
    found = environment(pods.trainer(job, 0)["spec"]["containers"][0])
    assert found["PET_NNODES"] == "1:3"


def test_parameter_servers_have_the_ports_of_trainers_and_masters_their_own() -> None:
    objects = by_name(job_of())
    [pserver] = objects["StatefulSet example-pserver"]["spec"]["template"]["spec"]["containers"]
    assert [each["containerPort"] for each in pserver["ports"]] == [7164, 7165]
    master, etcd = objects["StatefulSet example-master"]["spec"]["template"]["spec"]["containers"]
    assert [each["containerPort"] for each in master["ports"]] == [8080, 29400]
    assert [each["containerPort"] for each in etcd["ports"]] == [2379, 4001]


def test_without_a_claim_the_task_queue_ends_with_its_pod() -> None:
    def volumes(job: TrainingJob) -> list[dict[str, Any]]:
        template = by_name(job)["StatefulSet example-master"]["spec"]["template"]
        return list(template["spec"].get("volumes", ()))

    assert volumes(job_of()) == [{"name": "mlstack-state", "emptyDir": {}}]
    assert volumes(job_of(master={"storage": {"size": "1Gi"}})) == []


def test_an_etcd_elsewhere_needs_no_etcd_beside_the_master() -> None:
    job = job_of(master={"etcd": "External", "etcd-endpoint": "http://etcd.infra:2379"})
    [master] = by_name(job)["StatefulSet example-master"]["spec"]["template"]["spec"]["containers"]
    assert environment(master)["MLSTACK_ETCD_ENDPOINT"] == "http://etcd.infra:2379"
