"""Applying to a cluster in memory: order, outcomes, failures, interruption."""

import time
from threading import Event as ThreadFlag
from typing import Any

import pytest

from mlstack.deploy import history
from mlstack.deploy.changes import ApplyOptions, Interrupted, RunEvent, RunResult
from mlstack.errors import ConfigError, ConflictError, InvalidError, MlstackError, ObjectNotFoundError
from mlstack.kube.client import Applied, ObjectRef
from mlstack.operations import deploy
from mlstack.testing.cluster import MemoryCluster
from tests.support.deploying import Stack, config_map, crd, deployment, existing, outcomes, tfjob

MAP = ObjectRef("v1", "ConfigMap", "ml", "settings")
TFJOBS = crd("tfjobs", "TFJob", group="kubeflow.org")


def test_every_object_is_told_as_it_is_done(stack: Stack) -> None:
    stack.deploy("a", config_map())
    assert [(event.kind, str(event.identity)) for event in stack.events if event.identity] == [
        ("created", "Namespace ml"),
        ("created", "ConfigMap ml/settings"),
    ]
    notes = [event.text for event in stack.events if event.kind == "note"]
    assert notes[0].startswith("environment `minikube` is now bound to this cluster (memory://minikube, UID ")
    assert notes[1] == "namespace `ml` is created first"


def test_the_first_apply_binds_the_environment_and_a_dry_run_does_not(stack: Stack) -> None:
    stack.write("a", config_map())
    stack.apply(dry_run=True)
    assert stack.app.environment("minikube").cluster is None
    stack.apply()
    assert stack.app.environment("minikube").cluster is not None


def test_a_plan_is_carried_out_as_it_was_confirmed(stack: Stack, cluster: MemoryCluster) -> None:
    stack.write("a", config_map(a="confirmed"))
    plan = stack.plan()
    stack.write("a", config_map(a="edited meanwhile"))
    deploy.apply(plan, clock=stack.clock)
    live = existing(cluster, MAP)
    assert live["data"] == {"a": "confirmed"}


def test_an_object_recreated_by_others_meanwhile_is_not_overwritten(
    stack: Stack, cluster: MemoryCluster
) -> None:
    stack.deploy("a", config_map(a="1"))
    stack.write("a", config_map(a="2"))
    plan = stack.plan()
    cluster.delete(MAP)
    with pytest.raises(ConflictError):
        deploy.apply(plan, clock=stack.clock)


def test_an_object_made_by_others_meanwhile_is_not_overwritten(stack: Stack, cluster: MemoryCluster) -> None:
    stack.deploy("a", config_map("other"))
    stack.write("a", config_map("other"), config_map(a="ours"))
    plan = stack.plan()
    cluster.create({**config_map(a="theirs"), "metadata": {"name": "settings", "namespace": "ml"}})
    with pytest.raises(ConflictError):
        deploy.apply(plan, clock=stack.clock)


def test_a_changed_job_is_recreated(stack: Stack, cluster: MemoryCluster) -> None:
    ref = ObjectRef("kubeflow.org/v1", "TFJob", "ml", "cnn")
    stack.deploy("a", tfjob(), TFJOBS)
    before = cluster.get(ref)
    stack.write("a", tfjob(workers=3), TFJOBS)
    assert stack.plan().destructive
    assert outcomes(stack.apply())["cnn"] == "recreated"
    after = cluster.get(ref)
    assert before is not None
    assert after is not None
    assert before["metadata"]["uid"] != after["metadata"]["uid"]


_KEY = {"name": "broken", "key": "a"}


def test_a_failure_keeps_what_was_done_and_skips_what_needs_it(stack: Stack, cluster: MemoryCluster) -> None:
    broken = {**config_map("broken"), "nonsense": 1}
    needy = deployment("needy", env=[{"name": "A", "valueFrom": {"configMapKeyRef": _KEY}}])
    stack.write("a", deployment(), needy, config_map("fine"), broken)
    with pytest.raises(InvalidError) as caught:
        stack.apply()
    partial = caught.value.partial
    assert isinstance(partial, RunResult)
    assert outcomes(partial) == {
        "ml": "created",
        "fine": "created",
        "broken": "failed",
        "web": "created",
        "needy": "skipped",
    }
    skipped = next(row for row in partial.objects if row.name == "needy")
    assert skipped.text == "depends on `ConfigMap ml/broken`, which failed"
    assert cluster.get(ObjectRef("apps/v1", "Deployment", "ml", "needy")) is None


def test_all_failures_of_a_wave_are_told_together(stack: Stack) -> None:
    stack.write("a", *({**config_map(name), "nonsense": 1} for name in ("one", "two")))
    with pytest.raises(InvalidError) as caught:
        stack.apply()
    assert caught.value.message.startswith("2 objects were refused")
    assert "one" in caught.value.message
    assert "two" in caught.value.message


def test_failures_of_several_components_name_them(stack: Stack) -> None:
    stack.write("a", {**config_map("one"), "nonsense": 1})
    stack.write("b", {**config_map("two"), "nonsense": 1})
    stack.write("c", config_map("three"))
    with pytest.raises(InvalidError) as caught:
        stack.apply()
    assert caught.value.where == "component a, component b"
    assert outcomes(caught.value.partial)["three"] == "created"


def test_an_interrupted_run_says_what_was_done(stack: Stack) -> None:
    stack.write("a", config_map(), deployment())
    plan = stack.plan()

    def stop(event: RunEvent) -> None:
        if event.identity is not None and event.identity.kind == "ConfigMap":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        deploy.apply(plan, clock=stack.clock, on_event=stop)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert outcomes(caught.value.partial) == {"ml": "created", "settings": "created", "web": "skipped"}


def at_object(name: str) -> Any:
    """Stop a run, as a signal does, once an object is done."""

    def stop(event: RunEvent) -> None:
        if event.identity is not None and event.identity.name == name and event.kind != "pending":
            raise KeyboardInterrupt

    return stop


def test_an_interrupted_apply_stands_in_the_history(stack: Stack) -> None:
    stack.write("a", *(config_map(f"c{number}", a="1") for number in range(3)))
    with pytest.raises(Interrupted):
        deploy.apply(stack.plan(), clock=stack.clock, on_event=at_object("c1"))
    (revision,) = stack.revisions()
    assert (revision.result, revision.planned, revision.is_good) == ("interrupted", 4, False)
    assert 1 <= revision.changed <= 4
    stack.deploy("a", config_map("c0", a="2"))
    assert [row.result for row in stack.revisions()] == ["done", "interrupted"]


def test_an_interrupted_wait_says_that_all_was_written(stack: Stack) -> None:
    stack.write("a", deployment())
    with pytest.raises(Interrupted):
        deploy.apply(stack.plan(wait=True), clock=Stopping(stack.clock), on_event=lambda event: None)
    (revision,) = stack.revisions()
    assert (revision.result, revision.changed, revision.planned) == ("interrupted", 2, 2)


class Stopping:
    """A clock on which nobody waits: a signal comes first."""

    def __init__(self, clock: Any) -> None:
        self.now_s = clock.now_s

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt


def test_an_interrupted_rollback_stands_in_the_history(stack: Stack) -> None:
    for word in ("1", "2"):
        stack.deploy("a", config_map("one", a=word), config_map("two", a=word))
    plan = deploy.plan_rollback(stack.target(), 1, opener=stack.opener, options=ApplyOptions(wait=False))
    with pytest.raises(Interrupted):
        deploy.apply(plan, clock=stack.clock, on_event=at_object("one"))
    newest = stack.revisions()[0]
    assert (newest.what, newest.result, newest.planned) == ("rollback to 1", "interrupted", 2)


@pytest.mark.parametrize("components", [["a"], []], ids=["a component", "all"])
def test_an_interrupted_deletion_stands_in_the_history(stack: Stack, components: list[str]) -> None:
    stack.write("a", *(config_map(f"c{number}") for number in range(3)))
    stack.deploy("b", config_map("other"))
    plan = deploy.plan_delete(stack.target(components=components), opener=stack.opener)
    with pytest.raises(Interrupted):
        deploy.apply(plan, clock=stack.clock, on_event=at_object("c2"))
    newest = stack.revisions()[0]
    assert (newest.result, newest.planned) == ("interrupted", 4 - len(components))
    assert "a" in newest.unsettled
    stack.delete(components=components)


def test_a_revision_that_cannot_be_written_holds_nobody_up_who_wants_to_leave(
    stack: Stack, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "LEAVING_S", 0.05)
    stack.write("a", config_map("one"), config_map("two"))
    plan, never = stack.plan(), ThreadFlag()
    monkeypatch.setattr(history.History, "record", lambda *words, **options: never.wait(20))
    begun_s = time.monotonic()
    with pytest.raises(Interrupted):
        deploy.apply(plan, clock=stack.clock, on_event=at_object("one"))
    never.set()
    assert time.monotonic() - begun_s < 5


def test_a_folder_that_cannot_be_written_stops_before_the_cluster(
    stack: Stack, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.write("a", config_map())
    plan = stack.plan()

    def refuse(*_: object) -> None:
        raise ConfigError("cannot write the file: read-only file system")

    monkeypatch.setattr(type(plan.resolved.target.app), "pin_identity", refuse)
    with pytest.raises(MlstackError):
        deploy.apply(plan, clock=stack.clock)
    assert cluster.get(MAP) is None


def test_an_interruption_between_deletion_and_creation_is_told(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.deploy("a", tfjob(), TFJOBS)
    stack.write("a", tfjob(workers=3), TFJOBS)
    plan = stack.plan()
    write = plan.resolved.cluster.apply

    def interrupt(data: dict[str, Any], **how: Any) -> Applied:
        if data["kind"] == "TFJob":
            raise KeyboardInterrupt
        return write(data, **how)

    monkeypatch.setattr(plan.resolved.cluster, "apply", interrupt)
    with pytest.raises(Interrupted) as caught:
        deploy.apply(plan, clock=stack.clock)
    row = next(row for row in caught.value.partial.objects if row.name == "cnn")
    assert (row.outcome, row.text) == ("failed", "was deleted and is not made anew yet: interrupted")
    monkeypatch.undo()
    assert outcomes(stack.apply())["cnn"] == "created"


def custom(api_version: str, kind: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": {}}


CORE = "mlstack generate kubeflow-core kubeflow-core, then mlstack apply minikube -c kubeflow-core"
HINTS = {
    "kubeflow.org/v1 TFJob": f"training operator: the prototype `kubeflow-core` brings it, its parameter"
    f" `jobKinds` naming tfjob: {CORE}",
    "kubeflow.org/v1 PaddleJob": "its parameter `jobKinds` naming paddlejob",
    "kubeflow.org/v1beta2 PyTorchJob": "the training operator serves kubeflow.org/v1 today",
    "kubeflow.org/v1 MPIJob": "training operator: install it by the manifests of github.com/kubeflow/trainer",
    "kubeflow.org/v2beta1 MPIJob": "the manifests of github.com/kubeflow/mpi-operator",
    "kubeflow.org/v1alpha2 MPIJob": "the MPI operator serves kubeflow.org/v2beta1 today",
    "kubeflow.org/v1 Notebook": "notebook controller",
    "kubeflow.org/v1beta1 Experiment": "github.com/kubeflow/katib",
    "kubeflow.org/v1beta1 Trial": "github.com/kubeflow/katib",
    "kubeflow.org/v1beta1 Suggestion": "github.com/kubeflow/katib",
    "kubeflow.org/v1beta1 ScheduledWorkflow": "github.com/kubeflow/pipelines",
    "kubeflow.org/v1beta1 Viewer": "github.com/kubeflow/pipelines",
    "pipelines.kubeflow.org/v2beta1 Pipeline": "github.com/kubeflow/pipelines",
    "kubeflow.org/v1 Profile": "profile controller",
    "kubeflow.org/v1alpha1 PodDefault": "webhook of PodDefaults",
    "kubeflow.org/v1alpha1 PVCViewer": "PVCViewer controller",
    "tensorboard.kubeflow.org/v1alpha1 Tensorboard": "tensorboard controller",
    "trainer.kubeflow.org/v1alpha1 TrainJob": "served by the Kubeflow Trainer",
    "serving.kubeflow.org/v1beta1 InferenceService": "serves serving.kserve.io/v1beta1 today",
    "serving.kserve.io/v1beta1 InferenceService": "github.com/kserve/kserve",
    "paddlepaddle.org/v1 TrainingJob": "mlstack generate elastic-controller elastic-controller",
    "kubeflow.org/v1 MXJob": "nobody serves `MXJob` any more: the training operator has left it out",
    "kubeflow.org/v1 TFjob": "did you mean `TFJob`?",
    "kubeflow.org/v1 Thing": "install the definitions of `kubeflow.org` first",
    "example.com/v1 Deployment": "install the definitions of `example.com` first",
    "apps/v1 Deploymnet": "did you mean `Deployment`?",
    "extensions/v1beta1 Ingress": "Kubernetes serves `Ingress` as networking.k8s.io/v1",
    "apps/v1beta1 Deployment": "the cluster serves `Deployment` as apps/v1",
    "v1 Xyzzy": "Kubernetes has no such kind: kubectl api-resources",
}


@pytest.mark.slow
@pytest.mark.parametrize(("who", "hint"), HINTS.items(), ids=HINTS)
def test_an_unknown_kind_names_who_serves_it(stack: Stack, who: str, hint: str) -> None:
    stack.write("a", custom(*who.split()))
    with pytest.raises(ObjectNotFoundError) as caught:
        stack.plan()
    assert hint in str(caught.value.hint)
    is_ours = who.endswith((" TFJob", " PaddleJob", " PyTorchJob"))
    assert ("kubeflow-core" in str(caught.value.hint)) == is_ours


def test_another_version_of_a_served_kind_is_named(stack: Stack) -> None:
    stack.deploy("definition", TFJOBS)
    stack.write("a", custom("kubeflow.org/v1beta2", "TFJob"))
    with pytest.raises(ObjectNotFoundError) as caught:
        stack.plan(components=["a"])
    assert caught.value.hint == "the cluster serves `TFJob` as kubeflow.org/v1: write that `apiVersion`"


def test_every_unknown_kind_gets_its_hint(stack: Stack) -> None:
    stack.write("a", custom("kubeflow.org/v1", "Notebook"), custom("kubeflow.org/v1beta1", "Experiment"))
    with pytest.raises(ObjectNotFoundError) as caught:
        stack.plan()
    assert "notebook controller" in str(caught.value.hint)
    assert "Katib" in str(caught.value.hint)


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_kind_that_two_operators_serve_is_told_apart(stack: Stack, version: str) -> None:
    other = "v2beta1" if version == "v1" else "v1"
    definition = crd("mpijobs", "MPIJob", group="kubeflow.org")
    definition["spec"]["versions"][0]["name"] = other
    stack.deploy("definition", definition)
    stack.write("a", custom(f"kubeflow.org/{version}", "MPIJob"))
    with pytest.raises(ObjectNotFoundError) as caught:
        stack.plan(components=["a"])
    assert ("MPI operator" if version == "v2beta1" else "training operator") in str(caught.value.hint)
