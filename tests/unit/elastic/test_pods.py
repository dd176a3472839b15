"""The objects that a TrainingJob becomes."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.elastic import pods
from mlstack.elastic.training_job import RoleName, TrainingJob, parse, role_name
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.resources import requests
from mlstack.validate.validate import load_schemas, validate_objects
from tests.support.trainingjobs import edl_job, small_job

Obj = dict[str, Any]


def job_of(name: str = "example", *, trainer: Obj | None = None, **fields: Any) -> TrainingJob:
    data = edl_job(name, **fields)
    data["metadata"] |= {"namespace": "team", "uid": "0-1"}
    data["spec"]["trainer"] |= trainer or {}
    return parse(data)


def trainer_of(job: TrainingJob, index: int = 0) -> Obj:
    spec: Obj = pods.trainer(job, index)["spec"]
    return spec


def by_name(job: TrainingJob, **options: Any) -> dict[str, Obj]:
    manifests = pods.supporting(job, **{"hints": {}, **options})
    return {f"{manifest['kind']} {manifest['metadata']['name']}": manifest for manifest in manifests}


def set_of(job: TrainingJob, role: str, **options: Any) -> Obj:
    spec: Obj = by_name(job, **options)[f"StatefulSet {job.name}-{role}"]["spec"]
    return spec


def server_of(job: TrainingJob, role: str, **options: Any) -> Obj:
    spec: Obj = set_of(job, role, **options)["template"]["spec"]
    return spec


def environment(spec: Obj) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in spec["containers"][0]["env"] if "value" in entry}


SMALL = parse(small_job())
FULL: Obj = {
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
    [job_of(), job_of(**FULL), SMALL, job_of("n" * 52), job_of(hostNetwork=True)],
    ids=["edl", "everything", "trainers-alone", "long-name", "host-network"],
)
@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_objects_are_sound(job: TrainingJob, version: str) -> None:
    manifests = [pods.trainer(job, 0, transitions=3), *pods.supporting(job, hints={}, transitions=3)]
    objects = [KubeObject(data=manifest) for manifest in manifests]
    faults = validate_objects(objects, load_schemas(version)).faults
    assert [str(fault) for fault in faults if fault.severity == "error"] == []


def test_a_job_becomes_services_budgets_and_stateful_sets() -> None:
    trainers = ["Service small-trainer", "PodDisruptionBudget small-trainer"]
    assert list(by_name(SMALL)) == trainers
    assert list(by_name(parse(small_job(minimum=0)))) == trainers[:1]  # no minimum, no budget
    assert list(by_name(job_of())) == [
        *("Service example-trainer", "PodDisruptionBudget example-trainer"),
        *("Service example-master", "PodDisruptionBudget example-master", "StatefulSet example-master"),
        *("Service example-pserver", "PodDisruptionBudget example-pserver", "StatefulSet example-pserver"),
    ]


def test_everything_is_owned_by_the_job_and_carries_its_labels() -> None:
    for manifest in (
        pods.trainer(job_of(), 0, transitions=3),
        *pods.supporting(job_of(), hints={}, transitions=3),
    ):
        metadata = manifest["metadata"]
        assert metadata["namespace"] == "team"
        assert metadata["labels"]["mlstack.dev/training-job"] == "example"
        (owner,) = metadata["ownerReferences"]
        assert (owner["name"], owner["uid"], owner["controller"]) == ("example", "0-1", True)
        assert metadata["annotations"]["mlstack.dev/lease-transitions"] == "3"


def test_edls_labels_find_the_pods() -> None:
    assert pods.trainer(job_of(), 0)["metadata"]["labels"]["paddle-job"] == "example"
    for role in ("master", "pserver"):
        labels = set_of(job_of(), role)["template"]["metadata"]["labels"]
        assert labels[f"paddle-job-{role}"] == "example"


def test_a_trainer_prefers_its_planned_node_and_demands_none() -> None:
    pod = pods.trainer(job_of(), 3, node="n7")
    [wish] = pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["preference"]["matchExpressions"][0]["values"] == ["n7"]
    assert pod["metadata"]["annotations"]["mlstack.dev/planned-node"] == "n7"
    assert "affinity" not in trainer_of(job_of(), 3)


def test_a_trainer_goes_quickly_and_is_never_restarted_in_place() -> None:
    pod = trainer_of(job_of())
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 5)
    assert pod["priorityClassName"] == "mlstack-trainer"
    assert {toleration["tolerationSeconds"] for toleration in pod["tolerations"]} == {5}


@pytest.mark.parametrize("required", [True, False])
def test_servers_are_held_to_the_hinted_nodes_until_the_hint_is_dropped(required: bool) -> None:
    hints = {"pserver": ("n2", "n1", "n2")}
    affinity = server_of(job_of(), "pserver", hints=hints, required=required)["affinity"]["nodeAffinity"]
    kind = "required" if required else "preferred"
    assert list(affinity) == [f"{kind}DuringSchedulingIgnoredDuringExecution"]
    assert "['n1', 'n2']" in str(affinity)
    assert "affinity" not in server_of(job_of(), "master", hints=hints, required=required)


def test_a_stateful_set_starts_at_once_and_restarts_nothing_by_itself() -> None:
    spec = set_of(job_of(), "pserver")
    assert (spec["replicas"], spec["podManagementPolicy"]) == (2, "Parallel")
    assert spec["updateStrategy"] == {"type": "OnDelete"}
    assert set_of(job_of(), "pserver", is_running=False)["replicas"] == 0


def test_budgets_protect_the_minimum_of_trainers_and_every_server() -> None:
    objects = by_name(job_of())
    assert objects["PodDisruptionBudget example-trainer"]["spec"]["minAvailable"] == 2
    assert objects["PodDisruptionBudget example-pserver"]["spec"]["maxUnavailable"] == 0


def test_claims_outlive_pods_and_are_mounted() -> None:
    spec = set_of(job_of(**FULL), "master")
    [claim] = spec["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    master, etcd = spec["template"]["spec"]["containers"]
    folder = environment(spec["template"]["spec"])["MLSTACK_CHECKPOINT_DIR"]
    assert folder in [mount["mountPath"] for mount in master["volumeMounts"]]
    assert etcd["volumeMounts"][0]["name"] == claim["metadata"]["name"]


@pytest.mark.parametrize(
    "spec", [trainer_of(job_of()), server_of(job_of(), "master"), server_of(job_of(), "pserver")]
)
def test_pods_pass_the_restricted_policy(spec: Obj) -> None:
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for container in spec["containers"]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_trainers_have_their_own_nodes_beside_those_of_all_pods() -> None:
    job = job_of(nodeSelector={"pool": "a"}, trainer={"nodeSelector": {"gpu": "l4"}})
    assert trainer_of(job)["nodeSelector"] == {"pool": "a", "gpu": "l4"}
    assert server_of(job, "pserver")["nodeSelector"] == {"pool": "a"}


def test_what_the_job_sets_itself_wins() -> None:
    pod = trainer_of(
        job_of(securityContext={"runAsUser": 33}, env=[{"name": "PET_MAX_RESTARTS", "value": "3"}])
    )
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (33, True)
    names = [entry["name"] for entry in pod["containers"][0]["env"]]
    assert (names.count("PET_MAX_RESTARTS"), environment(pod)["PET_MAX_RESTARTS"]) == (1, "3")


def test_the_environment_has_edls_names() -> None:
    env = environment(trainer_of(job_of(passes=3)))
    assert {name: env[name] for name in env if "PADDLE" in name or name in ("TRAINERS", "PSERVERS")} == {
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
    assert env["ENTRY"] == env["TOPOLOGY"] == "python /workspace/train.py"


def test_peers_and_the_rendezvous_are_found_by_name_without_asking_kubernetes() -> None:
    master = "example-master-0.example-master.team.svc"
    servers = [f"example-pserver-{index}.example-pserver.team.svc:7164" for index in range(2)]
    expected = {
        "MLSTACK_MASTER_ADDR": f"{master}:8080",
        "MLSTACK_ETCD_ENDPOINT": f"http://{master}:2379",
        "MLSTACK_PSERVER_ADDRS": ",".join(servers),
        "MLSTACK_INDEX": "4",
        "PET_NNODES": "2:10",
        "PET_NPROC_PER_NODE": "1",
        "PET_RDZV_ENDPOINT": f"{master}:29400",
    }
    assert expected.items() <= environment(trainer_of(job_of(), 4)).items()
    alone = trainer_of(SMALL, 1)
    assert environment(alone)["PET_RDZV_ENDPOINT"] == "small-trainer-0.small-trainer.default.svc:29400"
    assert (alone["hostname"], alone["subdomain"]) == ("small-trainer-1", "small-trainer")
    assert environment(trainer_of(parse(small_job(minimum=0))))["PET_NNODES"] == "1:3"


def test_a_changed_maximum_leaves_running_servers_alone() -> None:
    other = job_of(trainer={"max-instance": 7})
    assert pods.supporting(job_of(), hints={}) == pods.supporting(other, hints={})


@pytest.mark.parametrize(
    ("is_fault_tolerant", "trainer", "pserver"),
    [
        (True, ["start_new_trainer"], ["start_new_pserver"]),
        (False, ["start_trainer", "v2"], ["start_pserver"]),
    ],
    ids=["fault-tolerant", "rigid"],
)
def test_processes_without_a_command_are_started_by_edls_verbs(
    trainer: list[str], pserver: list[str], *, is_fault_tolerant: bool
) -> None:
    count = {"entrypoint": "", "min-instance": 3, "max-instance": 3}
    job = job_of(fault_tolerant=is_fault_tolerant, trainer=count)
    specs = (trainer_of(job), server_of(job, "pserver"), server_of(job, "master"))
    commands = [spec["containers"][0]["command"] for spec in specs]
    assert commands == [["paddle_k8s", *verbs] for verbs in (trainer, pserver, ["start_master"])]
    own = server_of(job_of(master={"entrypoint": "python master.py"}), "master")["containers"][0]
    assert own["command"] == ["/bin/sh", "-c", "python master.py"]


def test_what_is_planned_is_what_the_pod_requests() -> None:
    assert requests(trainer_of(job_of())) == {"cpu": 200, "memory": 200 * 2**20, "pods": 1}
    assert requests(server_of(job_of(), "master")) == {"cpu": 500, "memory": 600 * 2**20, "pods": 1}


def ports(container: Obj) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def test_ports_are_consecutive_and_named_as_edl_named_them() -> None:
    job = job_of(port=8000, ports_num=2)
    edls = {f"jobport-{port}": port for port in (8000, 8001, 8002)}
    assert ports(trainer_of(job)["containers"][0]) == {**edls, "rendezvous": 29400}
    assert ports(server_of(job, "pserver")["containers"][0]) == edls
    master, etcd = server_of(job, "master")["containers"]
    assert ports(master) == {"master": 8080, "rendezvous": 29400}
    assert ports(etcd) == {"etcd": 2379, "etcd-old": 4001}


@pytest.mark.parametrize("role", ["master", "pserver", "trainer"])
def test_names_of_sets_leave_room_for_their_label(role: RoleName) -> None:
    name = role_name("n" * 52, role)
    assert len(name) <= 52
    assert name.endswith(f"-{role}")
    assert name != role_name("n" * 51, role)


def test_without_a_claim_the_task_queue_ends_with_its_pod() -> None:
    assert server_of(job_of(), "master")["volumes"] == [{"name": "mlstack-state", "emptyDir": {}}]
    assert "volumes" not in server_of(job_of(master={"storage": {"size": "1Gi"}}), "master")


def test_an_etcd_elsewhere_needs_no_etcd_beside_the_master() -> None:
    master = server_of(
        job_of(master={"etcd": "External", "etcd-endpoint": "http://etcd.infra:2379"}), "master"
    )
    assert len(master["containers"]) == 1
    assert environment(master)["MLSTACK_ETCD_ENDPOINT"] == "http://etcd.infra:2379"
