"""TrainingJobs and what they become, before a real API server: schema, rules, scaling, Pod Security."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from mlstack.app import files
from mlstack.app.app_dir import AppDir
from mlstack.deploy.changes import ApplyOptions
from mlstack.deploy.plan import ApplyPlan
from mlstack.deploy.target import Target
from mlstack.elastic import pods as children
from mlstack.elastic import status, training_job
from mlstack.elastic.facts import parse_job, parse_pod
from mlstack.elastic.snapshot import Decision, Priority, Reason
from mlstack.elastic.state import JobContext, JobRecord
from mlstack.kube.api_server import connect
from mlstack.kube.client import Cluster
from mlstack.operations import deploy
from mlstack.yaml import write
from tests.support import elastic_controller, examples
from tests.support.api import ApiRefusedError
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane
from tests.support.deploying import RealClock
from tests.support.elastic import pod
from tests.support.trainingjobs import edl_job, in_camel_case, small_job
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

CRD = files.folder("prototypes") / "elastic" / "crds" / "trainingjobs.yaml"
STRICT = ("--validate=strict", "-f", "-")
Spelled = Callable[[Mapping[str, Any]], dict[str, Any]]
SPELLED = pytest.mark.parametrize("spelled", [dict, in_camel_case], ids=["edl", "camel-case"])
GROUPS = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]
RESTRICTED = tuple(f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn"))


@pytest.fixture(scope="module", autouse=True)
def prototype(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the controller's prototype brings: definition, priority classes, rights."""
    gke = control_plane.clusters["gke"]
    elastic_controller.install(gke, tmp_path_factory.mktemp("controller") / "app")
    yield
    gke.kubectl("delete", "-f", str(CRD), "--wait=true")


def put(data: Mapping[str, Any], namespace: str, **metadata: Any) -> dict[str, Any]:
    """Give an object with its namespace."""
    job = deepcopy(dict(data))
    job["metadata"] = {**job["metadata"], "namespace": namespace, **metadata}
    job["metadata"].pop("uid", None)
    return job


def path(namespace: str, name: str = "") -> str:
    return f"/apis/paddlepaddle.org/v1/namespaces/{namespace}/trainingjobs" + (f"/{name}" if name else "")


def create(gke: TestCluster, data: Mapping[str, Any]) -> list[str]:
    """Create a job, its fields strictly read, and give the server's warnings."""
    place = f"{path(data['metadata']['namespace'])}?fieldValidation=Strict"
    return gke.api.request_with_warnings("POST", place, data)[1]


def patch(gke: TestCluster, namespace: str, content: Any, *, name: str = "example", part: str = "") -> None:
    gke.request("PATCH", path(namespace, name) + part, content)


def refusal(send: Callable[[], object]) -> str:
    """Give the words with which the server refuses what is sent."""
    with pytest.raises(ApiRefusedError) as refused:
        send()
    return str(refused.value)


def read(gke: TestCluster, name: str, namespace: str) -> dict[str, Any]:
    return gke.request("GET", path(namespace, name))


def full() -> dict[str, Any]:
    """A job with every field that EDL had, in its spellings, and every one of ours."""
    data = edl_job(
        "full",
        volumes=[{"name": "data", "hostPath": {"path": "/data"}}],
        VolumeMounts=[{"name": "data", "mountPath": "/data"}],
        imagePullSecrets=[{"name": "pull"}],
        passes=2,
        host_network=False,
        NodeSelector={"pool": "a"},
        priority=5,
        weight=2,
        scaling="Auto",
        suspend=False,
        scaleUpCooldownSeconds=300,
        ttlSecondsAfterFinished=60,
        checkpointSeconds=60,
        failureLimit=3,
        speed="amdahl:0.9",
        env=[{"name": "A", "value": "b"}],
        envFrom=[{"secretRef": {"name": "tokens"}}],
    )
    data["spec"]["trainer"] |= {"etcd-endpoint": "", "replicaSpec": {"spec": {"parallelism": 2}}}
    data["spec"]["trainer"]["nodeSelector"] = {"gpu": "l4"}
    data["spec"]["trainer"]["resources"]["limits"] = {"alpha.kubernetes.io/nvidia-gpu": 1, "cpu": 1}
    data["spec"]["master"] |= {"etcd-endpoint": "", "storage": {"size": "1Gi"}}
    data["spec"]["pserver"] |= {"storage": {"size": "1Gi", "whenDeleted": "Delete"}, "replicaSpec": {}}
    return data


def stored() -> dict[str, Any]:
    """A job as EDL's controller wrote it back: what was not given is null."""
    data = edl_job(volumes=None, VolumeMounts=None, imagePullSecrets=None)
    for role in ("trainer", "pserver", "master"):
        data["spec"][role] |= {"replicaSpec": None}
    data["spec"]["trainer"] |= {"etcd-endpoint": ""}
    return data


@pytest.mark.parametrize(
    "data",
    [edl_job(), stored(), full(), small_job(), in_camel_case(full()), in_camel_case(stored())],
    ids=["edl", "stored-by-edl", "every-field", "small", "camel-case", "camel-case-with-null"],
)
def test_a_manifest_is_accepted_and_read_back_whole(
    gke: TestCluster, namespace: str, data: dict[str, Any]
) -> None:
    wanted = put(data, namespace)
    assert create(gke, wanted) == []
    live = read(gke, data["metadata"]["name"], namespace)
    assert live["spec"] == wanted["spec"]
    assert training_job.parse(live).warnings == training_job.parse(wanted).warnings


def changed(**paths: Any) -> dict[str, Any]:
    """Give a job of EDL's with some fields set, `trainer__min_instance=3`, or removed with None."""
    data = edl_job()
    for path, value in paths.items():
        *levels, last = path.split("__")
        place = data["spec"]
        for level in levels:
            place = place.setdefault(level, {})
        name = last if last in ("fault_tolerant",) else last.replace("_", "-")
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return data


@SPELLED
@pytest.mark.parametrize(
    "resources",
    [
        pytest.param({"requests": {"memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}}, id="gpu"),
        pytest.param({"requests": {"memory": "1Gi"}, "limits": {"cpu": "500m"}}, id="cpu"),
        pytest.param({"limits": {"alpha.kubernetes.io/nvidia-gpu": "2"}}, id="old-gpu"),
        pytest.param({"requests": {"cpu": ".5", "memory": "1e9"}}, id="fraction"),
    ],
)
def test_a_limit_is_a_request_where_nothing_is_requested(
    gke: TestCluster, namespace: str, resources: dict[str, Any], spelled: Spelled
) -> None:
    data = changed(trainer__resources=resources, pserver__resources=resources)
    create(gke, put(spelled(data), namespace))


@SPELLED
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(
            changed(trainer__min_instance=11), "min-instance must not exceed max-instance", id="range"
        ),
        pytest.param(
            changed(trainer__min_instance=-1), "should be greater than or equal to 0", id="negative"
        ),
        pytest.param(
            changed(trainer__min_instance=0, trainer__max_instance=0),
            "max-instance must be at least 1; spec.suspend stops a job",
            id="none",
        ),
        pytest.param(changed(trainer__max_instance=None), "max-instance must be at least 1", id="no-maximum"),
        pytest.param(changed(fault_tolerant=None), "fault_tolerant must be true", id="rigid"),
        pytest.param(changed(trainer__resources=None), "resources.requests must name a cpu", id="resources"),
        pytest.param(
            changed(trainer__resources={"requests": {"memory": "1Gi"}}), "must name a cpu", id="requests"
        ),
        pytest.param(
            changed(trainer__resources={"requests": {"cpu": 0}, "limits": {"cpu": 1}}),
            "must name a cpu above 0",
            id="no-cpu",
        ),
        pytest.param(
            changed(trainer__resources={"requests": {"cpu": "0.0"}}),
            "must name a cpu above 0",
            id="none-at-all",
        ),
        pytest.param(
            changed(trainer__resources={"requests": {"cpu": 1, "memory": "-1Gi"}}),
            "requests.memory",
            id="below-nothing",
        ),
        pytest.param(changed(pserver__resources=None), "must name a cpu", id="servers"),
        pytest.param(changed(master__etcd="External"), "External needs etcd-endpoint", id="etcd"),
        pytest.param(changed(trainer__colour="blue"), 'unknown field "spec.trainer.colour"', id="unknown"),
        pytest.param(changed(volumes=[{"nme": "x"}]), "unknown field", id="typed-volumes"),
        pytest.param(changed(speed="fast"), "spec.speed", id="speed"),
        pytest.param(edl_job("n" * 53), "at most 52 characters", id="long-name"),
        pytest.param(edl_job("1x"), "must start with a letter", id="name"),
        pytest.param(edl_job(ports_num=2**31 - 1), "less than or equal to 100", id="ports"),
        pytest.param(edl_job(ports_num_for_sparse=101), "less than or equal to 100", id="sparse-ports"),
        pytest.param(changed(trainer__max_instance=10001), "less than or equal to 10000", id="trainers"),
        pytest.param(changed(pserver__min_instance=257), "less than or equal to 256", id="many-servers"),
        pytest.param(edl_job(port=65535), "must end at 65535", id="last-port"),
        pytest.param(edl_job(port=29399, host_network=True), "must leave out 29400", id="rendezvous"),
        pytest.param(
            changed(trainer__resources={"requests": {"cpu": 1}, "limits": {"cpu": "900m"}}),
            "must not be more than its limit",
            id="above-limit",
        ),
        pytest.param(
            changed(pserver__resources={"requests": {"cpu": 1, "nvidia.com/gpu": 1}}),
            "must be their limit too",
            id="gpu-without-limit",
        ),
        pytest.param(
            changed(trainer__resources={"limits": {"cpu": 1, "amd.com/gpu": "500m"}}),
            "must be whole numbers",
            id="half-a-gpu",
        ),
        pytest.param(
            edl_job(VolumeMounts=[{"name": "data", "mountPath": "/data"}]),
            "must name volumes that are in volumes",
            id="mount",
        ),
        pytest.param(edl_job(image="train:1 "), "spec.image", id="blank"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(
    gke: TestCluster, data: dict[str, Any], reason: str, spelled: Spelled
) -> None:
    assert reason in refusal(lambda: create(gke, put(spelled(data), "default")))


@pytest.mark.parametrize(
    ("role", "name", "other", "value"),
    [
        ("", "ports_num", "portsNum", 1),
        ("", "ports_num_for_sparse", "portsNumForSparse", 1),
        ("", "fault_tolerant", "faultTolerant", True),
        ("", "VolumeMounts", "volumeMounts", []),
        ("", "host_network", "hostNetwork", False),
        ("", "NodeSelector", "nodeSelector", {}),
        ("trainer", "min-instance", "minInstance", 2),
        ("trainer", "max-instance", "maxInstance", 10),
        ("trainer", "etcd-endpoint", "etcdEndpoint", ""),
        ("pserver", "min-instance", "minInstance", 2),
        ("pserver", "max-instance", "maxInstance", 2),
        ("master", "etcd-endpoint", "etcdEndpoint", ""),
    ],
)
def test_two_spellings_of_one_field_are_refused(
    gke: TestCluster, role: str, name: str, other: str, value: Any
) -> None:
    data = edl_job()
    place = data["spec"][role] if role else data["spec"]
    place |= {name: value, other: value}
    reason = f"{name} and {other} are two spellings of one field: give one of them"
    assert reason in refusal(lambda: create(gke, put(data, "default")))


def test_null_is_no_second_spelling(gke: TestCluster, namespace: str) -> None:
    mount = {"name": "data", "mountPath": "/data"}
    create(
        gke,
        put(
            edl_job(volumes=[{"name": "data", "emptyDir": {}}], VolumeMounts=None, volumeMounts=[mount]),
            namespace,
        ),
    )
    assert training_job.parse(read(gke, "example", namespace)).volume_mounts == (mount,)


def test_a_spelling_that_edl_never_had_is_refused(gke: TestCluster) -> None:
    data = changed(trainer__min_instance=None)
    data["spec"]["trainer"]["min_instance"] = 2
    reason = 'unknown field "spec.trainer.min_instance"'
    assert reason in refusal(lambda: create(gke, put(data, "default")))


@pytest.fixture(scope="module")
def running(control_plane: ControlPlane) -> Mapping[Spelled, str]:
    """The names of two jobs in `default`, one in each spelling, that no test changes."""
    names: dict[Spelled, str] = {dict: "in-edls-spelling", in_camel_case: "in-camel-case"}
    for spelled, name in names.items():
        create(control_plane.clusters["gke"], put(spelled(edl_job(name)), "default"))
    return names


@SPELLED
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image": "other:2"}, "image is immutable"),
        ({"image": None}, "image is immutable"),
        ({"trainer": {"entrypoint": "other"}}, "entrypoint is immutable"),
        ({"trainer": {"resources": {"requests": {"cpu": "3"}}}}, "resources is immutable"),
        ({"ports_num": 2}, "ports_num is immutable"),
        ({"ports_num_for_sparse": None}, "ports_num_for_sparse is immutable"),
        ({"pserver": {"min-instance": 3}}, "min-instance is immutable"),
        ({"pserver": {"min-instance": 0}}, "min-instance is immutable"),
        ({"pserver": {"min-instance": None}}, "min-instance is immutable"),
        ({"pserver": None}, "pserver cannot be added or removed"),
        ({"master": {"storage": {"size": "2Gi"}}}, "storage is immutable"),
        ({"master": {"enabled": False}}, "enabled is immutable"),
        ({"master": None}, "master cannot be added or removed"),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:40],
)
def test_what_a_running_job_cannot_follow_is_refused(
    gke: TestCluster, running: Mapping[Spelled, str], change: Any, reason: str, spelled: Spelled
) -> None:
    content = spelled({"spec": change})
    assert reason in refusal(lambda: patch(gke, "default", content, name=running[spelled]))


@SPELLED
def test_the_range_may_change(gke: TestCluster, namespace: str, spelled: Spelled) -> None:
    create(gke, put(spelled(edl_job()), namespace))
    wanted = {"spec": {"trainer": {"min-instance": 3, "max-instance": 12}, "suspend": True}}
    patch(gke, namespace, spelled(wanted))
    job = training_job.parse(read(gke, "example", namespace))
    assert (job.minimum, job.maximum, job.is_suspended) == (3, 12, True)


def test_a_running_job_may_be_spelled_otherwise(gke: TestCluster, namespace: str) -> None:
    create(gke, put(edl_job(), namespace))
    gke.kubectl("replace", "-f", "-", input=json.dumps(put(in_camel_case(edl_job()), namespace)))
    assert read(gke, "example", namespace)["spec"] == in_camel_case(edl_job())["spec"]


def test_a_maximum_in_camel_case_is_not_scaled_and_the_answer_says_why(
    gke: TestCluster, namespace: str
) -> None:
    create(gke, put(in_camel_case(edl_job()), namespace))
    ran = gke.kubectl("scale", "tj/example", "-n", namespace, "--replicas=5", check=False)
    assert ran.returncode == 1
    assert "`kubectl scale` needs max-instance instead of maxInstance" in ran.stderr
    assert read(gke, "example", namespace)["spec"] == in_camel_case(edl_job())["spec"]


def test_scaling_sets_the_maximum_and_reports_the_trainers(gke: TestCluster, namespace: str) -> None:
    create(gke, put(edl_job(), namespace))
    status = {
        "trainer": {"replicas": 4},
        "selector": "mlstack.dev/training-job=example,mlstack.dev/role=trainer",
    }
    patch(gke, namespace, {"status": status}, part="/status")
    gke.kubectl("scale", "tj/example", "-n", namespace, "--replicas=5", "--current-replicas=10")
    assert read(gke, "example", namespace)["spec"]["trainer"]["max-instance"] == 5
    scale = gke.find(f"/apis/paddlepaddle.org/v1/namespaces/{namespace}/trainingjobs/example/scale")
    assert scale is not None
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {
        "replicas": 4,
        "selector": "mlstack.dev/training-job=example,mlstack.dev/role=trainer",
    }


@pytest.mark.parametrize(("replicas", "reason"), [("1", "must not exceed"), ("0", "at least 1")])
def test_scaling_below_the_minimum_is_refused(
    gke: TestCluster, running: Mapping[Spelled, str], replicas: str, reason: str
) -> None:
    ran = gke.kubectl("scale", f"tj/{running[dict]}", f"--replicas={replicas}", check=False)
    assert ran.returncode == 1
    assert reason in ran.stderr


@SPELLED
def test_a_status_as_we_write_it_is_kept_whole(gke: TestCluster, namespace: str, spelled: Spelled) -> None:
    create(gke, put(spelled(edl_job()), namespace))
    setbacks = {
        **{"failedTrainers": 2, "trainerRetries": 1, "trainerRetryTime": "2027-01-15T08:00:00.123000Z"},
        **{"failedRounds": 2, "failedTrainer": "8f5b", "gangRetries": 3, "gangRetryGeneration": 1},
        "gangRetryTime": "2027-01-15T08:00:00.123000Z",
        "passedOver": [{"nodes": ["n1"], "times": 2, "until": "2027-01-15T08:00:00.123000Z"}],
    }
    reported = {"throughput": {"curve": [[2, 10.5], [3, 14]]}, "setbacks": setbacks}
    job = edl_job() | {"status": reported | {"startTime": "2027-01-15T08:00:00Z"}}
    whole = parse_job(job | {"metadata": {**job["metadata"], "generation": 1}})
    labels = {"mlstack.dev/training-job": "example", "mlstack.dev/role": "trainer"}
    ready = [{"type": "Ready", "status": "True"}]
    trainers = [
        pod(f"example-trainer-{index}", labels=labels, node="n1", conditions=ready) for index in range(3)
    ]
    trainers += [pod(f"example-trainer-{index}", labels=labels, phase="Failed") for index in (3, 4)]
    record = JobRecord("uid", counted={""})
    record.resume(setbacks)
    decision = Decision(
        job=whole.key, target=3, is_admitted=True, hints={}, reasons=(Reason(cause="admitted", text="room"),)
    )
    context = JobContext(job=whole, pods=list(map(parse_pod, trainers)), record=record)
    written = status.build_status(context, decision, Priority(), 1_800_000_000_000)
    patch(gke, namespace, {"status": written}, part="/status")
    assert read(gke, "example", namespace)["status"] == written
    table = gke.kubectl("get", "tj", "-n", namespace).stdout.splitlines()
    assert table[0].split()[:7] == ["NAME", "PHASE", "DESIRED", "READY", "MIN", "MAX", "FULFILMENT"]
    assert table[1].split()[:7] == ["example", "Running", "3", "3", "2", "10", "12%"]


@pytest.mark.parametrize(
    "data", [edl_job(), edl_job("n" * 52), small_job()], ids=["edl", "long-name", "small"]
)
def test_children_are_admitted_where_pods_are_restricted(
    gke: TestCluster, namespace: str, data: dict[str, Any]
) -> None:
    gke.kubectl("label", "namespace", namespace, "--overwrite", *RESTRICTED)
    create(gke, put(data, namespace))
    job = training_job.parse(read(gke, data["metadata"]["name"], namespace))
    objects = [*children.supporting(job, hints={}, transitions=1), children.trainer(job, 0, node="n1")]
    text = "\n---\n".join(json.dumps(obj) for obj in objects)
    ran = gke.kubectl("apply", "--server-side", "--dry-run=server", *STRICT, input=text)
    assert ran.stderr == ""
    assert len(ran.stdout.splitlines()) == len(objects)


@pytest.mark.parametrize("name", ["example", "n" * 52], ids=["short", "longest"])
def test_servers_come_up_and_go_with_their_job(gke: TestCluster, namespace: str, name: str) -> None:
    create(gke, put(edl_job(name), namespace))
    job = training_job.parse(read(gke, name, namespace))
    objects = [*children.supporting(job, hints={}), children.trainer(job, 0)]
    text = "\n---\n".join(json.dumps(obj) for obj in objects)
    gke.kubectl("apply", "--server-side", *STRICT, input=text)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    listed = gke.wait_for(pods, lambda listed: len(listed["items"]) == 4)
    names = {pod["metadata"]["name"] for pod in listed["items"]}
    assert training_job.trainer_name(name, 0) in names
    assert f"{training_job.role_name(name, 'pserver')}-1" in names
    gke.kubectl("delete", "tj", name, "-n", namespace)
    gke.wait_for(pods, lambda listed: not listed["items"])
    for kind in ("statefulsets", "services", "poddisruptionbudgets"):
        assert gke.kubectl("get", kind, "-n", namespace, "-o", "name").stdout == ""


def test_a_drain_leaves_the_minimum_of_trainers(gke: TestCluster, namespace: str) -> None:
    create(gke, put(small_job(minimum=2, maximum=3), namespace))
    job = training_job.parse(read(gke, "small", namespace))
    objects = [*children.supporting(job, hints={}), *(children.trainer(job, index) for index in range(3))]
    text = "\n---\n".join(json.dumps(obj) for obj in objects)
    gke.kubectl("apply", "--server-side", *STRICT, input=text)
    budget = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/small-trainer"
    live = gke.wait_for(budget, lambda obj: (obj.get("status") or {}).get("currentHealthy") == 3)
    assert live["status"]["disruptionsAllowed"] == 1


def app_with(root: Path, namespace: str, **params: Any) -> AppDir:
    """Write an app with one job, for the cluster `gke`."""
    wanted = {"image": "registry.example.org/train:1", "entrypoint": "train", **params}
    app = examples.write_app(root, {"words": ("kubeflow/elastic/elastic-job", wanted)})
    file = root / "environments" / examples.PLAIN / "environment.yaml"
    file.write_text(write.to_yaml({**json.loads(file.read_text()), "context": "gke", "namespace": namespace}))
    return app


@pytest.mark.parametrize(
    ("params", "action"),
    [({"trainerMaxInstance": 20}, "update"), ({"image": "registry.example.org/train:2"}, "recreate")],
    ids=["range", "image"],
)
def test_apply_changes_a_job_in_place_where_it_can(
    tmp_path: Path, kubeconfig: Path, namespace: str, params: dict[str, Any], action: str
) -> None:
    def opener(context: str) -> Cluster:
        return connect(context, kubeconfig=str(kubeconfig))

    def planned(name: str, **others: Any) -> ApplyPlan:
        app = app_with(tmp_path / name, namespace, **others)
        target = Target(app=app, environment=examples.PLAIN)
        return deploy.plan_apply(target, opener=opener, options=ApplyOptions(wait=False))

    assert deploy.apply(planned("first"), clock=RealClock()).ok
    plan = planned("second", **params)
    changes = {change.action for change in plan.changes.changes if change.identity.kind == "TrainingJob"}
    assert changes == {action}
    assert deploy.apply(plan, clock=RealClock()).ok


def test_the_definition_is_small_enough_to_be_applied_by_kubectl(tmp_path: Path) -> None:
    assert len(CRD.read_bytes()) < 262_144 / 3


@pytest.mark.parametrize(
    ("verb", "what", "may"),
    [
        ("list", "nodes", True),
        ("watch", "pods", True),
        ("create", "pods", True),
        ("patch", "trainingjobs.paddlepaddle.org/status", True),
        ("patch", "statefulsets.apps", True),
        ("create", "events.events.k8s.io", True),
        ("update", "leases.coordination.k8s.io/mlstack-elastic", True),
        ("update", "leases.coordination.k8s.io/another", False),
        ("patch", "trainingjobs.paddlepaddle.org", False),
        ("create", "trainingjobs.paddlepaddle.org", False),
        ("patch", "nodes", False),
        ("get", "secrets", False),
        ("create", "pods/exec", False),
        ("delete", "poddisruptionbudgets.policy", True),
        ("delete", "services", False),
        ("delete", "statefulsets.apps", False),
        ("delete", "persistentvolumeclaims", False),
        ("delete", "deployments.apps", False),
        ("create", "rolebindings.rbac.authorization.k8s.io", False),
    ],
)
def test_the_controller_may_do_its_work_and_nothing_else(
    gke: TestCluster, verb: str, what: str, may: bool
) -> None:
    user = gke.service_account("default", elastic_controller.ACCOUNT)
    kind, _, rest = what.partition("/")
    resource, _, group = kind.partition(".")
    part = {("subresource" if rest in ("status", "exec") else "name"): rest} if rest else {}
    right = {"verb": verb, "resource": resource, "group": group, "namespace": "default", **part}
    review = {"spec": {"user": user.name, "groups": GROUPS, "resourceAttributes": right}}
    answer = gke.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer["status"]["allowed"] is may


@pytest.mark.parametrize(
    ("role", "verb", "resource", "answer"),
    [
        ("view", "list", "trainingjobs.paddlepaddle.org", "yes"),
        ("view", "create", "trainingjobs.paddlepaddle.org", "no"),
        ("edit", "list", "trainingjobs.paddlepaddle.org", "yes"),
        ("edit", "create", "trainingjobs.paddlepaddle.org", "yes"),
        ("admin", "delete", "trainingjobs.paddlepaddle.org", "yes"),
    ],
)
def test_people_have_rights_to_jobs_by_the_roles_of_kubernetes(
    gke: TestCluster, namespace: str, role: str, verb: str, resource: str, answer: str
) -> None:
    gke.kubectl("create", "rolebinding", "ada", f"--clusterrole={role}", "--user=ada", "-n", namespace)

    def is_answered() -> bool:
        asked = ("auth", "can-i", verb, resource, "--as=ada", "-n", namespace)
        return gke.kubectl(*asked, check=False).stdout.strip() == answer

    # A controller of the cluster joins the roles, in its own time.
    wait_until(is_answered, what=f"{role} may {verb}: {answer}", timeout_s=20)
