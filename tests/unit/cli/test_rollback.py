"""`history` and `rollback` on the command line, and what `--on-failure=rollback` does and says."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mlstack.deploy.history import History, Revision
from mlstack.deploy.inventory import Inventory, payload_hash
from mlstack.kube.client import ObjectRef
from mlstack.objects import kube_object
from mlstack.objects.kube_object import DesiredState, KubeObject
from mlstack.yaml import write as emit
from tests.support.builders import MINIMAL_APP, write_tree
from tests.support.cli import Runner
from tests.support.cut import CutCluster
from tests.support.deploying import config_map, crd, tfjob


@pytest.fixture
def run(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """An app whose only component was applied once, with `a: 1`."""
    write_tree(tmp_path / "demo", {"app.yaml": MINIMAL_APP})
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add minikube --no-preset")
    write("web", config_map(a="1"))
    run.ok("apply minikube")
    return run


def write(component: str, *objects: Mapping[str, Any]) -> None:
    write_tree(Path(), {f"components/{component}.yaml": emit.to_yaml_documents(objects)})


def broken(name: str = "broken") -> dict[str, Any]:
    """Build an object that passes everything but the write: new definitions are not tried before."""
    return {**crd(f"{name}s", name.title(), group="broken.org"), "nonsense": 1}


def live(run: Runner, kind: str, name: str, api_version: str = "v1") -> Any:
    return run.cluster("minikube").get(ObjectRef(api_version, kind, "default", name))


def whats(run: Runner) -> list[tuple[str, str]]:
    rows = run("history minikube -o json").json["revisions"]
    return [(row["what"], row["result"]) for row in rows[::-1]]


def test_a_person_sees_what_would_come_back_and_is_asked(run: Runner) -> None:
    write("web", config_map(a="2"))
    run.ok("apply minikube --yes")
    run.answer = False
    refused = run("rollback minikube")
    assert (refused.code, live(run, "ConfigMap", "settings")["data"]) == (1, {"a": "2"})
    assert "data.a: 2 -> 1" in refused.err.replace('"', "")
    run.answer = True
    assert run("rollback minikube").code == 0
    assert run.asked[-1] == "Rollback this in `minikube` (context minikube, namespace default)?"
    assert live(run, "ConfigMap", "settings")["data"] == {"a": "1"}


SESSIONS = {
    "words are an environment and numbers": """
        env current --set minikube
        history show | 0 | revision 2 of `minikube`
        history show 1 | 0 | revision 1 of `minikube`
        history show minikube 1 | 0 | revision 1 of `minikube`
        history show minikube | 0 | revision 2 of `minikube`
        history diff 1 2 | 1 | revision 1 -> 2
        history diff minikube 1 2 | 1 | revision 1 -> 2
        history diff 1 | 1 | revision 1 -> 2
        history show 3 4 | 4 | no environment `3`
        rollback minikube 0 | 2 | a revision is a number from 1, got `0`
        history show minikube x | 2 | got `x`
        history show minikube -1 | 2
        history show minikube 1 2 | 2 | too many words
        history diff | 2 | which revision?
    """,
    "a protected environment wants its name": """
        env set minikube --protected
        rollback minikube --yes | 2
        rollback minikube --yes-i-mean minikube
    """,
    "a wrong answer to a failure is refused": """
        apply minikube --on-failure=undo | 2 | use stop or rollback
    """,
}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
def test_words(run: Runner, session: str) -> None:
    write("web", config_map(a="2"))
    run.ok("apply minikube --yes")
    run.play(session)


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_made_anew_as_its_new_manifest_allows_goes_back_so(run: Runner, fails: bool) -> None:
    first, second = ({**config_map(a=value), "immutable": True} for value in "12")
    write("web", first)
    run.ok("apply minikube")
    second["metadata"] = {**second["metadata"], "annotations": {"mlstack.dev/recreate": "true"}}
    write("web", second, *([broken()] if fails else []))
    applied = run("apply minikube --yes" + " --on-failure=rollback" * fails)
    assert (applied.code, "recreated ConfigMap default/settings" in applied.out) == (6 * fails, True)
    if not fails:
        run.ok("rollback minikube --yes")
    assert live(run, "ConfigMap", "settings")["data"] == {"a": "1"}
    assert whats(run)[-1][1] == "done"


def test_a_failed_apply_stops_by_default(run: Runner) -> None:
    write("web", config_map(a="2"), broken())
    assert run("apply minikube --yes").code == 6
    assert live(run, "ConfigMap", "settings")["data"] == {"a": "2"}
    assert whats(run) == [("apply", "done"), ("apply", "failed")]


def test_a_failed_apply_is_rolled_back_when_asked_and_still_fails(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("web", config_map(a="2"), config_map("new"), broken())
    cluster: Any = run.cluster("minikube")
    deleted, delete = list[str](), cluster.delete
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "delete", lambda ref, **how: deleted.append(ref.kind) or delete(ref, **how))
        failed = run("apply minikube --yes --on-failure=rollback -o json")
    assert (failed.code, failed.json["ok"]) == (6, False)  # of the two runs one result goes to stdout
    assert deleted.count("Lease") == 1  # nobody comes between a failed apply and its rollback
    assert live(run, "ConfigMap", "settings")["data"] == {"a": "1"}
    assert live(run, "ConfigMap", "new") is None
    assert whats(run)[1:] == [("apply", "failed"), ("rollback to 1 after a failure", "done")]
    assert "note: rolling back to revision 1" in failed.err.splitlines()
    error = json.loads(failed.err.splitlines()[-1])["error"]
    assert error["message"].startswith("`CustomResourceDefinition brokens.broken.org`")


def test_a_rollback_that_is_cut_off_tells_what_it_had_done(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = run.cluster("minikube")
    delete = cluster.delete

    def cut_off(ref: ObjectRef, **how: Any) -> Any:
        if ref.name == "new":
            raise KeyboardInterrupt
        return delete(ref, **how)

    monkeypatch.setattr(cluster, "delete", cut_off)
    write("web", config_map(a="2"), config_map("new"), broken())
    stopped = run("apply minikube --yes --on-failure=rollback")
    assert (stopped.code, stopped.err.splitlines()[-1]) == (130, "interrupted")
    updated, last = stopped.out.splitlines()[-3], stopped.out.splitlines()[-1]
    assert updated.split() == ["updated", "ConfigMap", "default/settings"]
    assert last.endswith(": 1 failed, 1 updated")
    assert cluster.list("coordination.k8s.io/v1", "Lease").items == ()


def test_only_the_components_of_the_failed_apply_go_back(run: Runner) -> None:
    write("other", config_map("other", b="1"))
    run.ok("apply minikube -c other")
    run.cluster("minikube").patch(ObjectRef("v1", "ConfigMap", "default", "other"), {"data": {"b": "9"}})
    write("web", config_map(a="2"), broken())
    assert run("apply minikube -c web --yes --on-failure=rollback").code == 6
    assert live(run, "ConfigMap", "settings")["data"] == {"a": "1"}
    assert live(run, "ConfigMap", "other")["data"] == {"b": "9"}


def test_a_component_that_does_not_work_keeps_no_other_from_going_back(run: Runner) -> None:
    write("sick", broken("sick"))
    assert run("apply minikube").code == 6
    write("sick", config_map("sick"), broken())
    assert run("apply minikube -c sick").code == 6
    write("web", config_map(a="2"), broken())
    assert run("apply minikube -c web --yes --on-failure=rollback").code == 6
    assert live(run, "ConfigMap", "settings")["data"] == {"a": "1"}


def test_a_component_that_never_worked_goes_again(run: Runner) -> None:
    write("fresh", config_map("fresh"), broken())
    assert run("apply minikube -c fresh --yes --on-failure=rollback").code == 6
    assert [bool(live(run, "ConfigMap", name)) for name in ("fresh", "settings")] == [False, True]


@pytest.mark.parametrize("renders", [True, False])
def test_going_back_keeps_what_had_moved_to_a_component_applied_later(run: Runner, renders: bool) -> None:
    write("web", config_map(a="1"), config_map("moving"))
    run.ok("apply minikube --yes")
    write("web", config_map(a="2"))
    write("other", config_map("moving"), config_map("new") if renders else {})
    run.ok("apply minikube -c web --yes")
    write("other", config_map("moving"), config_map("new"))
    run.ok("apply minikube -c other --yes")
    run.ok("rollback minikube --yes")
    assert [bool(live(run, "ConfigMap", name)) for name in ("moving", "new")] == [True, False]


def test_after_a_run_that_was_cut_off_one_goes_back_to_what_was_there_before_it(run: Runner) -> None:
    connected: Any = run.cluster("minikube")
    cut: Any = CutCluster(connected, writes=3, answered=False)
    for value, cluster in (("2", connected), ("3", cut)):
        write("web", config_map(a=value), config_map("b", a=value))
        run.clusters["minikube"] = cluster
        run("apply minikube --yes --timeout 1s")
    run.clusters["minikube"] = connected
    assert "note: the run after revision 2 was cut off" in run("rollback minikube --yes").err
    assert [live(run, "ConfigMap", name)["data"] for name in ("settings", "b")] == [{"a": "2"}] * 2


BINDING = ObjectRef("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "planted")


def written_history(run: Runner) -> History:
    of = {"app": "demo", "environment": "minikube", "namespace": "default"}
    return History(cluster=run.cluster("minikube"), **of)


def plant(run: Runner, *objects: Mapping[str, Any]) -> None:
    """Write a revision as anybody can who may write Secrets in the namespace: it says it worked."""
    held = written_history(run)
    labels = kube_object.marks(app="demo", environment="minikube", component="web")
    labelled = ({**obj, "metadata": {**obj["metadata"], "labels": labels}} for obj in objects)
    desired = tuple(KubeObject(data=data, component="web") for data in labelled)
    draft = Revision(number=0, time="2026-11-22T02:25:46Z", who="eve", what="apply", result="done")
    state = DesiredState(
        app="demo", environment="minikube", namespace="default", objects=desired, components=("web",)
    )
    held.record(replace(draft, components=("web",)), state)


def to_cluster_admin() -> dict[str, Any]:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}
    head = {"apiVersion": BINDING.api_version, "kind": BINDING.kind, "metadata": {"name": BINDING.name}}
    return {**head, "roleRef": role, "subjects": [subject]}


def in_default(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "metadata": {**data["metadata"], "namespace": "default"}}


def test_a_planted_revision_is_never_gone_back_to_by_itself(run: Runner) -> None:
    write("web", config_map(a="1"), config_map("kept", b="1"))
    run.ok("apply minikube --yes")
    plant(run, to_cluster_admin(), in_default(config_map(a="evil")))
    write("web", config_map(a="2"), config_map("kept", b="1"), config_map("new"), broken())
    failed = run("apply minikube --yes --on-failure=rollback")
    assert failed.code == 6
    assert run.cluster("minikube").get(BINDING) is None
    assert live(run, "ConfigMap", "settings")["data"] == {"a": "2"}
    assert [bool(live(run, "ConfigMap", name)) for name in ("kept", "new")] == [True, False]
    assert "ClusterRoleBinding planted is not brought back: before this run the cluster had not" in failed.err
    assert "mlstack rollback minikube 3" in failed.err


def test_a_planted_revision_of_kinds_that_are_not_there_stands_in_no_way(run: Runner) -> None:
    unknown = {"apiVersion": "none.example.com/v1", "kind": "Nothing", "metadata": {"name": "planted"}}
    plant(run, unknown, in_default(config_map(a="1")))
    write("web", config_map(a="2"))
    assert run("apply minikube --yes --on-failure=rollback").code == 0


def test_hashes_that_somebody_forged_bear_nothing_out(run: Runner) -> None:
    inventory = ObjectRef("v1", "ConfigMap", "default", "mlstack-demo.minikube")
    plant(run, in_default(config_map(a="evil")))
    evil = run.cluster("minikube").get(inventory)
    assert evil is not None
    lines = [json.loads(line) for line in evil["data"]["members"].splitlines()]
    sent = written_history(run)
    object_ = sent.load(sent.revisions()[-1]).objects[0]
    labelled = Inventory(app="demo", environment="minikube", namespace="default").label(object_.data)
    forged = [[*line[:6], payload_hash(labelled), *line[7:]] for line in lines]
    text = "".join(json.dumps(line) + "\n" for line in forged)
    run.cluster("minikube").patch(inventory, {"data": {"members": text}})
    write("web", config_map(a="2"), broken())
    assert run("apply minikube --yes --on-failure=rollback").code == 6
    assert live(run, "ConfigMap", "settings")["data"] == {"a": "2"}


def test_a_revision_that_somebody_planted_is_shown_and_asked_for(run: Runner) -> None:
    plant(run, to_cluster_admin(), in_default(config_map(a="1")))
    run.play("rollback minikube 2 | 2 | create 1 object in `minikube`, and nobody is here to confirm it")
    run.answer = False
    asked = run("rollback minikube 2")
    assert asked.code == 1
    assert "+ create ClusterRoleBinding planted" in asked.err
    assert "whoever may write those there could have written it" in asked.err
    assert run.cluster("minikube").get(BINDING) is None
    run.answer = None
    run.play("rollback minikube 2 --yes | 0 | whoever may write those there could have written it")


def test_a_claim_that_a_failed_apply_brought_stays_and_is_told(run: Runner) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    write("web", config_map(a="2"), claim, broken())
    failed = run("apply minikube --yes --on-failure=rollback")
    assert live(run, "PersistentVolumeClaim", "data") is not None
    assert "note: PersistentVolumeClaim default/data stays: volume claims are kept" in failed.err


def test_a_job_that_was_made_anew_is_told_as_lost(run: Runner) -> None:
    definition = crd("tfjobs", "TFJob", group="kubeflow.org")
    write("web", definition, tfjob())
    run.ok("apply minikube --yes")
    write("web", definition, tfjob(workers=3), broken())
    failed = run("apply minikube --yes --on-failure=rollback")
    assert "note: TFJob default/cnn was recreated: what it had done or held does not come back" in failed.err
    replicas = live(run, "TFJob", "cnn", "kubeflow.org/v1")["spec"]["tfReplicaSpecs"]["Worker"]["replicas"]
    assert replicas == 1


def test_without_an_earlier_revision_that_worked_nothing_is_rolled_back(run: Runner) -> None:
    run.ok("delete minikube --yes")
    write("web", config_map(a="2"), broken())
    failed = run("apply minikube --yes --on-failure=rollback")
    assert failed.code == 6
    assert "no earlier revision of this environment worked" in failed.err
    assert live(run, "ConfigMap", "settings")["data"] == {"a": "2"}


def test_when_nothing_was_changed_nothing_is_rolled_back(run: Runner) -> None:
    write("web", config_map(a="1"), broken())
    failed = run("apply minikube --yes --on-failure=rollback")
    assert "nothing was changed, so nothing is rolled back" in failed.err
    assert whats(run) == [("apply", "done")]


def test_a_definition_goes_back_only_where_that_is_allowed(run: Runner) -> None:
    def fields(*names: str) -> dict[str, Any]:
        definition = crd(group="x.org")
        properties = {name: {"type": "string"} for name in names}
        spec = {"type": "object", "properties": properties}
        whole = {"type": "object", "properties": {"spec": spec}}
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = whole
        return definition

    write("web", config_map(a="1"), fields("size"))
    run.ok("apply minikube")
    write("web", config_map(a="2"), fields("size", "colour"))
    run.ok("apply minikube")
    ran = run("rollback minikube 2")
    assert "if that is wanted: --allow-destructive-crds" in ran.err
    ran = run("rollback minikube 2 --allow-destructive-crds --yes")
    live_crd = live(run, "CustomResourceDefinition", "widgets.x.org", "apiextensions.k8s.io/v1")
    schema = live_crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert set(schema["properties"]["spec"]["properties"]) == {"size"}
    assert (ran.code, "stays as it is" in ran.err) == (0, False)
