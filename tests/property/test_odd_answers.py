"""Objects whose fields have other types than their API promises: judged as odd, never a fault of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlstack.cli.main import main
from mlstack.elastic import facts
from mlstack.elastic.cache import ResourceStore
from mlstack.errors import ClusterError
from mlstack.kube.client import ObjectRef
from mlstack.readiness.evaluate import assess
from mlstack.readiness.rule import RULES, Facts
from mlstack.yaml import write
from tests.support.builders import write_tree
from tests.support.cli import Runner, memory_cluster
from tests.support.deploying import config_map, deployment, secret
from tests.support.elastic import node, pod, training_job
from tests.support.fakeapi import kubeconfig
from tests.support.hostile import JUNK, Behaviour, HostileServer, OddCluster, Peer
from tests.support.stage import Stage

FIELDS = (
    *("conditions", "type", "status", "reason", "message", "phase", "replicas", "readyReplicas", "ready"),
    *("containers", "containerStatuses", "initContainerStatuses", "name", "state", "waiting", "terminated"),
    *("template", "spec", "metadata", "labels", "selector", "matchLabels", "volumes", "ports", "webhooks"),
    *("replicaStatuses", "Worker", "active", "failed", "succeeded", "completions", "parallelism", "taints"),
    *("observedGeneration", "generation", "loadBalancer", "ingress", "clientConfig", "service", "resources"),
    *("requests", "limits", "exitCode", "restartCount", "lastState", "running", "startedAt", "finishedAt"),
)
VALUES = st.recursive(
    st.sampled_from(JUNK) | st.sampled_from(("True", "Ready", "Available", "Failed", "Running", "Pending")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=25,
)
PLACE = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: {}\nnamespace: default\n"
METADATA = {"name": "a", "namespace": "q", "uid": "u", "generation": 1}


def odd(key: str, data: Any) -> dict[str, Any]:
    """Give an object of the kind of a rule, with metadata as every object has them."""
    group, _, kind = key.rpartition("/")
    api_version = f"{group}/v1" if group else "v1"
    parts = data if isinstance(data, dict) else {"status": data, "spec": data}
    return {**parts, "apiVersion": api_version, "kind": kind, "metadata": METADATA}


@given(data=st.data())
@settings(max_examples=150)
def test_every_rule_judges_whatever_comes(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(RULES.names()))
    live = odd(key, {"spec": data.draw(VALUES), "status": data.draw(VALUES), "webhooks": data.draw(VALUES)})
    pod = odd("Pod", {"spec": data.draw(VALUES), "status": data.draw(VALUES)})
    event = {**odd("Event", {"involvedObject": data.draw(VALUES)}), "type": "Warning"}
    node = odd("Node", {"status": data.draw(VALUES), "spec": data.draw(VALUES)})
    readiness = assess(Facts(data=live, pods=[pod], events=[event], nodes=[node], now_s=1e9))
    assert isinstance(readiness.reason, str)
    assert not readiness.is_fine or "cannot be judged" not in readiness.reason


@given(spec=VALUES, status=VALUES)
@settings(max_examples=100)
def test_what_elastic_training_reads_is_read_or_named(spec: Any, status: Any) -> None:
    job = "paddlepaddle.org/TrainingJob"
    for key, parse in (("Pod", facts.parse_pod), ("Node", facts.parse_node), (job, facts.parse_job)):
        store: ResourceStore[Any] = ResourceStore(parse)
        try:
            store.put(odd(key, {"spec": spec, "status": status}))
        except ClusterError as error:
            assert "q/a` cannot be judged" in error.message


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("x", "status is no map"),
        ({"conditions": "x"}, "status.conditions is no list"),
        ({"conditions": ["x"]}, "status.conditions is no list of maps"),
        ({"observedGeneration": 1, "replicas": "x", "updatedReplicas": [], "conditions": []}, ""),
    ],
)
def test_status_says_what_is_odd(run: Runner, app: Path, status: Any, reason: str) -> None:
    class Odd(OddCluster):
        def _odd(self, obj: Any) -> Any:
            return {**obj, "status": status} if obj["kind"] == "Deployment" else obj

    run.clusters["minikube"] = Odd(run.clusters["minikube"], 0)
    ran = run("status", "prod", "--dir", str(app))
    assert ran.code == 1
    assert "Traceback" not in ran.err
    assert not reason or f"cannot be judged: {reason}" in " ".join(ran.out.split())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Runner:
    """Run commands against a cluster in memory."""
    return Runner(capsys)


@pytest.fixture
def app(tmp_path: Path, run: Runner) -> Path:
    """An app that is applied."""
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"template": pods}}
    objects = [deployment(), config_map("m", a="b"), secret(password="pw"), job]
    tree = {
        "app.yaml": "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\n",
        "components/all.yaml": write.to_yaml_documents(objects),
        "environments/prod/environment.yaml": PLACE.format("minikube"),
    }
    root = write_tree(tmp_path / "app", tree)
    run.clusters["minikube"] = memory_cluster("minikube")
    assert run("apply", "prod", "--yes", "--dir", str(root)).code == 0
    return root


@pytest.mark.parametrize("seed", range(8))
def test_commands_end_as_documented_whatever_the_objects_hold(run: Runner, app: Path, seed: int) -> None:
    run.clusters["minikube"] = OddCluster(run.clusters["minikube"], seed, share=0.2)
    for words in ("status", "diff", "diff --live", "apply --yes --timeout 2s", "history"):
        ran = run(*words.split(), "prod", "--dir", str(app))
        assert ran.code in (0, 1, 6, 7), (words, ran.code, ran.err)
        assert "Traceback" not in ran.err


@pytest.mark.parametrize("seed", range(8))
def test_so_do_those_that_look_for_room(run: Runner, app: Path, seed: int) -> None:
    cluster = run.clusters["minikube"]
    for obj in (node("n1"), pod("p", node="n1"), pod("q")):
        ref, status = ObjectRef.of(cluster.create(obj).object), {"status": obj["status"]}
        cluster.patch(ref, status, subresource="status")
    run.clusters["minikube"] = OddCluster(cluster, seed, share=0.6)
    for words in ("env snapshot prod", "plan prod --check-capacity"):
        ran = run(*words.split(), "--dir", str(app))
        assert ran.code in (0, 6), (words, ran.code, ran.err)


@pytest.mark.parametrize("seed", range(8))
def test_so_do_those_of_elastic_training(run: Runner, seed: int) -> None:
    stage = Stage("n1", "n2")
    stage.put(training_job("small", minimum=1, maximum=4, cpu="2", pservers=1))
    stage.settle()
    run.clusters["minikube"] = run.clusters[""] = OddCluster(stage.memory, seed, share=0.15)
    for words in ("plan", "status", "plan -o json"):
        ran = run("elastic", *words.split())
        assert ran.code in (0, 6), (words, ran.code, ran.err)


def endless(piece: bytes) -> Behaviour:
    def behave(peer: Peer, call: object) -> bool:
        peer.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            peer.send(piece)

    return behave


@pytest.mark.parametrize(
    "behave",
    [lambda peer, call: peer.answer({}), endless(b"A: b\r\n" * 1000), lambda peer, call: peer.reset()],
    ids=["nothing", "headers", "reset"],
)
@pytest.mark.parametrize(
    "words", ["diff prod", "apply prod --yes", "status prod", "elastic plan", "elastic status"]
)
def test_a_server_that_is_none_ends_every_command(
    tmp_path: Path,
    app: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    behave: Behaviour,
) -> None:
    with HostileServer(behave).running() as server:
        monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, server.url))
        place = app / "environments/prod/environment.yaml"
        place.write_text(PLACE.format("test"))
        monkeypatch.chdir(app)
        assert main(words.split()) == 6
    err = capsys.readouterr().err
    assert "context `test`" in err
    assert "Traceback" not in err
