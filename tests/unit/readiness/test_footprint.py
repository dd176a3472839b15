"""What objects take of a cluster: pods, requests, GPUs by product, storage; at least and at most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.elastic import training_job
from mlstack.elastic.pods import pod_spec
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.resources import requests
from mlstack.readiness.capacity import Footprint, fits, footprint, pods_of
from mlstack.readiness.placement import parse_node, pod_set
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.elastic import node
from tests.support.registry import small_app

GI = 2**30


def pod(cpu: str = "1", gpus: int = 0, **spec: Any) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}, "limits": limits}}
    return {"containers": [container], **spec}


def template(*args: Any, **spec: Any) -> dict[str, Any]:
    return {"template": {"spec": pod(*args, **spec)}}


def obj(key: str, spec: dict[str, Any], name: str = "x") -> KubeObject:
    group, _, kind = key.rpartition("/")
    metadata = {"name": name, "namespace": "ml"}
    version = f"{group}/v1" if group else "v1"
    return KubeObject(data={"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})


def of(key: str, spec: dict[str, Any]) -> Footprint:
    return footprint([obj(key, spec)])


@pytest.mark.parametrize(
    ("key", "spec", "least", "now", "most"),
    [
        ("Pod", pod(), 1, 1, 1),
        ("apps/Deployment", {"replicas": 3, **template()}, 3, 3, 3),
        ("apps/Deployment", {"replicas": 0, **template()}, 0, 0, 0),
        ("batch/Job", {"parallelism": 4, "completions": 2, **template()}, 2, 2, 2),
        ("batch/CronJob", {"jobTemplate": {"spec": {"parallelism": 2, **template()}}}, 2, 2, 2),
        (
            "kubeflow.org/TFJob",
            {"tfReplicaSpecs": {"Worker": {"replicas": 3, **template()}, "PS": template()}},
            *(4, 4, 4),
        ),
        (
            "kubeflow.org/PyTorchJob",
            {
                "elasticPolicy": {"minReplicas": 1, "maxReplicas": 8},
                "pytorchReplicaSpecs": {"Master": template(), "Worker": {"replicas": 2, **template()}},
            },
            *(2, 3, 9),
        ),
        (
            "jobset.x-k8s.io/JobSet",
            {
                "replicatedJobs": [
                    {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3, **template()}}}
                ]
            },
            *(6, 6, 6),
        ),
        (
            "leaderworkerset.x-k8s.io/LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": {"spec": pod()}}},
            *(8, 8, 8),
        ),
        (
            "ray.io/RayJob",
            {
                "rayClusterSpec": {
                    "enableInTreeAutoscaling": True,
                    "headGroupSpec": template(),
                    "workerGroupSpecs": [
                        {"groupName": "w", "replicas": 2, "minReplicas": 1, "maxReplicas": 5, **template()}
                    ],
                }
            },
            *(2, 3, 6),
        ),
        (
            "paddlepaddle.org/TrainingJob",
            {
                "trainer": {"min-instance": 2, "max-instance": 10, "resources": {"requests": {"cpu": 1}}},
                "pserver": {"min-instance": 1, "max-instance": 1, "resources": {"requests": {"cpu": 1}}},
                "master": {"enabled": False},
            },
            *(3, 3, 11),
        ),
        (  # a master of one core comes unless it is off
            "paddlepaddle.org/TrainingJob",
            {"trainer": {"minInstance": 2, "maxInstance": 10, "resources": {"requests": {"cpu": 1}}}},
            *(3, 3, 11),
        ),
        (
            "paddlepaddle.org/TrainingJob",
            {"scaling": "Manual", "trainer": {"max-instance": 3, "resources": {"requests": {"cpu": 1}}}},
            *(4, 4, 4),
        ),
        (
            "trainer.kubeflow.org/TrainJob",
            {"trainer": {"numNodes": 4, "resourcesPerNode": {"requests": {"cpu": 1}}}},
            *(4, 4, 4),
        ),
        (
            "serving.kserve.io/InferenceService",
            {
                "predictor": {
                    "minReplicas": 1,
                    "maxReplicas": 3,
                    "model": {"resources": {"requests": {"cpu": 1}}},
                }
            },
            *(1, 1, 3),
        ),
    ],
)
def test_each_kind_tells_how_many_pods_it_makes(
    key: str, spec: dict[str, Any], least: int, now: int, most: int
) -> None:
    whole = of(key, spec)
    counts = [amounts.get("pods", 0) for amounts in (whole.least, whole.now, whole.most)]
    assert counts == [least, now, most]
    assert [amounts.get("requests.cpu", 0) for amounts in (whole.least, whole.now, whole.most)] == [
        1000 * count for count in counts
    ]


def test_pods_of_a_training_job_are_known_as_its_controller_makes_them() -> None:
    resources = {"resources": {"requests": {"cpu": 2}, "limits": {"nvidia.com/gpu": 1}}}
    spec = {
        "image": "x:1",
        "priority": 5,  # of the job: a pod with it is refused
        "NodeSelector": {"zone": "a"},
        "tolerations": [{"operator": "Exists"}],
        "trainer": {"min-instance": 1, "max-instance": 1, "nodeSelector": {"disk": "ssd"}, **resources},
        "pserver": {"min-instance": 1, "priorityClassName": "high", **resources},
    }
    job = obj("paddlepaddle.org/TrainingJob", spec)
    for template in pods_of(job):
        expected = pod_spec(training_job.parse(job.data), template.role)
        assert requests(template.spec) == requests(expected)
        assert template.spec["nodeSelector"] == expected.get("nodeSelector")
        assert template.spec.get("priorityClassName") in (None, expected["priorityClassName"])
        assert template.containers[0]["image"] == expected["containers"][0]["image"]
        assert set(template.spec) <= set(expected)


def test_trainers_of_other_jobs_may_go_for_those_of_a_training_job() -> None:
    room = parse_node(node("n", cpu="4"), [{"cpu": 3000}])
    spec = pod(cpu="3", priority=-10, preemptionPolicy="Never")
    trainers = pod_set("TrainingJob ml/x", spec, count=1, metadata={}, maker="TrainingJob")
    assert fits([trainers], [room])[0].verdict == "does not fit now"
    (row,) = fits([trainers], [room], lowest=-10)
    assert row.verdict == "not known" and row.reason.endswith("trainers of other jobs may go for it")


def test_spark_asks_for_its_overhead_too() -> None:
    spec = {
        "type": "Python",
        "driver": {"cores": 1, "memory": "2g"},
        "executor": {
            **{"cores": 2, "instances": 3, "memory": "10g"},
            "gpu": {"name": "nvidia.com/gpu", "quantity": 1},
        },
    }
    now = of("sparkoperator.k8s.io/SparkApplication", spec).now
    assert (now["pods"], now["requests.cpu"], now["gpus.any product"]) == (4, 7000, 3)
    assert now["requests.memory"] == pytest.approx((2 * 1.4 + 30 * 1.4) * GI, rel=1e-6)


def test_gpus_are_told_by_the_product_that_nodes_are_chosen_by() -> None:
    chosen = template(gpus=2, nodeSelector={"cloud.google.com/gke-accelerator": "nvidia-l4"})
    term = {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["H100"]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    objects = [
        obj("apps/Deployment", {"replicas": 2, **chosen}, "a"),
        obj("apps/Deployment", template(gpus=1, affinity=affinity), "b"),
        obj("apps/Deployment", template(gpus=1), "c"),
    ]
    gpus = {name: value for name, value in footprint(objects).now.items() if name.startswith("gpus")}
    assert gpus == {"gpus.nvidia-l4": 4, "gpus.H100": 1, "gpus.any product": 1}


def test_an_autoscaler_says_between_what_its_workload_moves() -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    scaler = obj(
        "autoscaling/HorizontalPodAutoscaler", {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 6}
    )
    whole = footprint([obj("apps/Deployment", template()), scaler])
    assert [amounts["pods"] for amounts in (whole.least, whole.now, whole.most)] == [2, 2, 6]


def test_storage_load_balancers_and_pods_of_every_node() -> None:
    claim = {"storageClassName": "fast", "resources": {"requests": {"storage": "2Gi"}}}
    whole = footprint(
        [
            obj("PersistentVolumeClaim", {"resources": {"requests": {"storage": "1Gi"}}}),
            obj("apps/StatefulSet", {"replicas": 3, "volumeClaimTemplates": [{"spec": claim}], **template()}),
            obj("Service", {"type": "LoadBalancer"}),
            obj("Service", {"type": "ClusterIP"}, "y"),
            obj("apps/DaemonSet", template("100m")),
            obj("argoproj.io/Workflow", {"templates": [{"container": {}}]}),
        ]
    )
    assert (whole.now["storage."], whole.now["storage.fast"], whole.now["loadbalancers"]) == (GI, 6 * GI, 1)
    assert (whole.now["pods"], whole.per_node) == (3, {"pods": 1, "requests.cpu": 100})
    assert whole.uncounted == ("Workflow ml/x",)


DEPLOYMENT = """\
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec:
      replicas: 2
      selector: {matchLabels: {a: b}}
      template:
        metadata: {labels: {a: b}}
        spec:
          containers:
          - {name: main, image: web:1, resources: {requests: {cpu: 500m, memory: 1Gi}}}
    """
PATCH = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 5}\n"
PRICES = "apiVersion: mlstack.dev/v1\nkind: Prices\ncurrency: EUR\nrequests: {cpu: 0.1}\n"


@pytest.fixture
def app(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = small_app(tmp_path).root
    monkeypatch.chdir(root)
    run.ok("env add minikube --no-preset")
    return write_tree(root, {"components/web.yaml": DEPLOYMENT})


def test_prices_stand_beside_the_environments(run: Runner, app: Path) -> None:
    assert "MONTH" not in run("footprint minikube").out
    write_tree(app, {"environments/prices.yaml": PRICES})
    ran = run("footprint minikube -o json")
    takes = {"pods": 2, "requests.cpu": 1000, "requests.memory": 2 * GI}
    assert ran.json["total"] == {"component": "", "takes": takes, "monthlyCost": 73.0}
    assert ran.json["notes"] == ["no price for requests.memory"]
    assert "EUR/MONTH" in run("footprint minikube").out
    write_tree(app, {"environments/minikube/prices.yaml": PRICES.replace("0.1", "0")})
    assert run("footprint minikube -o json").json["total"]["monthlyCost"] == 0
    write_tree(app, {"environments/prices.yaml": PRICES.replace("0.1", "-1")})
    write_tree(app, {"environments/minikube/prices.yaml": PRICES.replace("0.1", "-1")})
    run.play("footprint minikube | 3 | environments/minikube/prices.yaml:4")


def test_a_difference_tells_what_it_takes_more(run: Runner, app: Path) -> None:
    assert "takes 2 pods, 1 cpu, 2Gi memory (+2 pods, +1 cpu, +2Gi memory)" in run("diff minikube").out
    run.ok("apply minikube --no-wait")
    assert "takes 2 pods, 1 cpu, 2Gi memory\n" in run("diff minikube").out
    write_tree(app, {"environments/minikube/patches/web.yaml": PATCH})
    for verb in ("diff", "plan"):
        ran = run(f"{verb} minikube")
        assert "takes 5 pods, 2.5 cpu, 5Gi memory (+3 pods, +1.5 cpu, +3Gi memory)" in ran.out
    ran = run("diff minikube -o json")
    assert ran.json["takesMore"] == {"pods": 3, "requests.cpu": 1500, "requests.memory": 3 * GI}
    write_tree(app, {"environments/minikube/patches/web.yaml": PATCH.replace("replicas: 5", "replicas: 1")})
    assert "takes 1 pod, 0.5 cpu, 1Gi memory (-1 pod, " in run("diff minikube").out
    head = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: default}\n"
    text = f"{head}spec: {{resources: {{requests: {{storage: 1Gi}}}}}}\n"
    stored = yaml.safe_load(text.replace("spec: {", "spec: {storageClassName: standard, "))  # the default
    run.cluster("minikube").apply(stored, manager="kubectl")
    write_tree(app, {"components/data.yaml": text})
    run.ok("apply minikube -c data --no-wait")
    write_tree(app, {"components/data.yaml": text.replace("1Gi", "3Gi")})
    assert "takes 3Gi standard (+2Gi standard)\n" in run("diff minikube -c data").out
    run.ok("component rm data")
    assert "takes 1 pod, 0.5 cpu, 1Gi memory (-1 pod, -0.5 cpu, -1Gi memory)" in run("diff minikube").out
    run.ok("component rm web")
    assert "takes nothing (-2 pods, -1 cpu, -2Gi memory)" in run("diff minikube").out


@pytest.mark.parametrize("spec", [[1], "text", {"volumeClaimTemplates": 3, **template()}])
def test_odd_objects_are_not_counted(spec: Any) -> None:
    both = footprint([obj("apps/StatefulSet", spec, name="odd"), obj("Pod", pod())])
    assert both.uncounted == ("StatefulSet ml/odd",)
    assert both.now == {"pods": 1, "requests.cpu": 1000}


@pytest.mark.parametrize("containers", ["none", [1], [{"resources": {"requests": {"cpu": "lots"}}}]])
def test_odd_containers_ask_for_nothing(containers: Any) -> None:
    spec = {"replicas": 2, "template": {"spec": {"containers": containers}}}
    assert not any(name.startswith("requests") for name in of("apps/Deployment", spec).now)


def test_an_odd_autoscaler_leaves_the_count_alone() -> None:
    scaled = obj("apps/Deployment", {"replicas": 3, **template()})
    odd = [obj("autoscaling/HorizontalPodAutoscaler", spec) for spec in ([], "x", {"scaleTargetRef": 1})]
    assert footprint([scaled, *odd]).now["pods"] == 3
