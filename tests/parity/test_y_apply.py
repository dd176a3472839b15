"""Rows Y: `apply`, on clusters in memory; the tests on a real control plane are named with each."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.errors import ForbiddenError
from mlstack.kube.client import ObjectRef
from mlstack.yaml.write import to_yaml_documents
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.counted import Counted
from tests.support.deploying import config_map, crd, deployment, existing

PATCH = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "$patch": "delete"}
FRONT = ObjectRef("v1", "ConfigMap", "default", "front")


def write(root: Path, component: str, *objects: Mapping[str, Any]) -> None:
    write_tree(root, {f"components/{component}.yaml": to_yaml_documents(objects)})


def outcomes(run: Runner, line: str, code: int = 0) -> dict[str, str]:
    """Run a command line and give what became of each object."""
    ran = run(f"{line} -o json")
    assert ran.code == code, ran
    return {row["object"].rpartition("/")[2]: row["outcome"] for row in ran.json["objects"]}


def data(run: Runner, name: str) -> dict[str, str] | None:
    live = run.cluster("minikube").get(ObjectRef("v1", "ConfigMap", "default", name))
    return live.get("data", {}) if live else None


@pytest.fixture
def live(demo: Path, run: Runner) -> Path:
    """Give the app with three ConfigMaps applied: `front` and, of plain manifests, `a` and `b`."""
    write(demo, "a", config_map("a", x="1"))
    write(demo, "b", config_map("b", x="1"))
    run.ok("apply minikube")
    return demo


def test_y1_missing_is_created_changed_updated_and_the_rest_left_alone(live: Path, run: Runner) -> None:
    write(live, "a", config_map("a", x="2"))
    write(live, "c", config_map("c"))
    rows = outcomes(run, "apply minikube")
    assert rows == {"a": "updated", "b": "unchanged", "c": "created", "front": "unchanged"}


def test_y2_fields_of_others_survive(live: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_compare.py."""
    cluster = run.cluster("minikube")
    ref = ObjectRef("v1", "ConfigMap", "default", "a")
    cluster.patch(ref, {"data": {"extra": "theirs"}}, manager="some-controller")
    write(live, "a", config_map("a", x="2"))
    run.ok("apply minikube")
    assert data(run, "a") == {"x": "2", "extra": "theirs"}


def test_y3_fields_that_left_the_files_go(live: Path, run: Runner) -> None:
    write(live, "a", config_map("a", y="1"))
    run.ok("apply minikube")
    assert data(run, "a") == {"y": "1"}


def test_y4_objects_are_written_in_the_order_they_need(demo: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_order.py."""
    widget = {"apiVersion": "a.example.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}}
    write(demo, "a", widget, deployment("web"), config_map("c"), account, crd(group="a.example.org"), space)
    order = [row["kind"] for row in run("apply minikube -c a --no-wait -o json").json["objects"]]
    assert order.index("Namespace") < order.index("ServiceAccount") < order.index("ConfigMap")
    assert order.index("ConfigMap") < order.index("Deployment")
    assert order.index("CustomResourceDefinition") < order.index("Widget")


def test_y5_components_may_be_chosen(live: Path, run: Runner) -> None:
    write(live, "a", config_map("a", x="2"))
    write(live, "b", config_map("b", x="2"))
    assert outcomes(run, "apply minikube -c a") == {"a": "updated"}
    assert data(run, "b") == {"x": "1"}


def test_y6_a_dry_run_names_each_object_and_changes_nothing(live: Path, run: Runner) -> None:
    write(live, "a", config_map("a", x="2"))
    write(live, "c", config_map("c"))
    run.ok("component rm b")
    text = run.ok("apply minikube --dry-run")
    assert all(f"ConfigMap default/{name}" in text for name in "abc")
    assert (data(run, "a"), data(run, "b"), data(run, "c")) == ({"x": "1"}, {"x": "1"}, None)


def test_y7_a_dry_run_asks_the_server(live: Path, run: Runner) -> None:
    write(live, "c", {**config_map("c"), "nonsense": 1})
    assert run("apply minikube --dry-run").code == 6
    assert data(run, "c") is None


@pytest.mark.parametrize("option", ["--no-create", "--create=false"])
def test_y8_create_may_be_left_out(live: Path, run: Runner, option: str) -> None:
    write(live, "a", config_map("a", x="2"))
    write(live, "c", config_map("c"))
    assert "ConfigMap default/c: is not there, and creation is off" in run(f"apply minikube {option}").out
    assert (data(run, "a"), data(run, "c")) == ({"x": "2"}, None)


@pytest.mark.parametrize("option", ["--create", "--create=true", "--no-create=false"])
def test_y8_create_may_be_said(demo: Path, run: Runner, option: str) -> None:
    assert outcomes(run, f"apply minikube {option}") == {"front": "created"}


def test_y9_fields_of_programs_are_left_and_said_unless_forced(live: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_compare.py."""
    cluster = run.cluster("minikube")
    ref = ObjectRef("v1", "ConfigMap", "default", "a")
    cluster.patch(ref, {"data": {"x": "theirs"}}, manager="some-operator")
    write(live, "a", config_map("a", x="2"))
    ran = run("apply minikube")
    assert (ran.code, "some-operator" in ran.out + ran.err) == (0, True)
    assert data(run, "a") == {"x": "theirs"}
    run.ok("apply minikube --force-conflicts")
    assert data(run, "a") == {"x": "2"}


def test_y10_what_left_the_app_is_pruned_here_alone(live: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_inventory.py."""
    write(live, "own", config_map("own"))
    run.ok("env add gke2 --context minikube -n other")
    run.ok("apply minikube")
    run.ok("apply gke2")
    run.ok("component rm own")
    rows = outcomes(run, "apply minikube --yes")
    assert rows["own"] == "deleted"
    assert run.cluster("minikube").get(ObjectRef("v1", "ConfigMap", "other", "own"))


def test_y10_what_a_patch_deletes_is_pruned_in_its_environment(live: Path, run: Runner) -> None:
    write_tree(live, {"environments/minikube/patches/a.yaml": to_yaml_documents([PATCH])})
    assert "ConfigMap default/a" in run("diff minikube").out
    assert outcomes(run, "apply minikube --yes") == {"a": "deleted", "b": "unchanged", "front": "unchanged"}
    assert outcomes(run, "apply gke --yes") == {"a": "created", "b": "created", "front": "created"}
    (live / "environments/minikube/patches/a.yaml").unlink()
    assert outcomes(run, "apply minikube")["a"] == "created"


def test_y11_prune_never_touches_other_components(live: Path, run: Runner) -> None:
    run.ok("component rm a")
    assert outcomes(run, "apply minikube -c b --yes") == {"b": "unchanged"}
    assert data(run, "a") == {"x": "1"}


@pytest.mark.parametrize(
    "note",
    [
        "mlstack.dev/prune: false",
        "helm.sh/resource-policy: keep",
        "client.lifecycle.config.k8s.io/deletion: detach",
        "cli-utils.sigs.k8s.io/on-remove: keep",
    ],
)
def test_y12_an_object_may_opt_out_of_prune(live: Path, run: Runner, note: str) -> None:
    manifest = config_map("kept")
    manifest["metadata"]["annotations"] = dict([note.split(": ")])
    write(live, "kept", manifest)
    run.ok("apply minikube")
    run.ok("component rm kept")
    assert f"is kept: annotation `{note}`" in " ".join(run.ok("apply minikube --yes").split())
    assert data(run, "kept") == {}


def test_y13_prune_may_be_left_out(live: Path, run: Runner) -> None:
    run.ok("component rm a")
    run.ok("apply minikube --no-prune")
    assert data(run, "a") == {"x": "1"}
    assert outcomes(run, "apply minikube --yes")["a"] == "deleted"


def test_y14_objects_say_whose_they_are(live: Path, run: Runner) -> None:
    labels = existing(run.cluster("minikube"), FRONT)["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "mlstack"
    assert (labels["mlstack.dev/app"], labels["mlstack.dev/environment"]) == ("demo", "minikube")
    assert labels["mlstack.dev/component"] == "front"


def test_y15_a_line_for_each_object_and_a_summary(demo: Path, run: Runner) -> None:
    ran = run("apply minikube")
    assert ran.out.splitlines() == [
        "created   ConfigMap default/front",
        "`minikube` (context minikube, namespace default): 1 created",
    ]
    result = run("apply minikube -o json").json
    assert (result["kind"], result["counts"]) == ("ApplyResult", {"unchanged": 1})


def test_y16_apply_waits_as_long_as_it_is_told(live: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_waiting.py."""
    stuck = deployment("stuck")
    stuck["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 9}}
    write(live, "stuck", stuck)
    ran = run("apply minikube --timeout 3s")
    assert (ran.code, "Deployment default/stuck" in ran.err) == (7, True)
    assert run("apply minikube --no-wait").code == 0


def test_y17_a_person_is_asked_and_programs_say_yes(live: Path, run: Runner) -> None:
    write(live, "a", config_map("a", x="2"))
    run.answer = False
    asked = run("apply minikube")
    assert (asked.code, data(run, "a"), "nothing was done" in asked.err) == (1, {"x": "1"}, True)
    assert 'data.x: "1" -> "2"' in asked.err
    run.answer = None
    run.ok("component rm b")
    assert run("apply minikube").code == 2
    run.ok("apply minikube --yes")
    assert (data(run, "a"), data(run, "b")) == ({"x": "2"}, None)


@pytest.mark.parametrize(("option", "after"), [("", {}), ("--fail-fast", None)])
def test_y18_others_go_on_after_a_failure_unless_told_not_to(
    live: Path, run: Runner, monkeypatch: pytest.MonkeyPatch, option: str, after: dict[str, str] | None
) -> None:
    """On a real cluster: tests/cluster/test_order.py."""
    cluster = run.cluster("minikube")
    apply = cluster.apply

    def refusing(obj: Mapping[str, Any], **options: Any) -> object:
        if obj["kind"] == "ServiceAccount" and not options.get("dry_run"):
            raise ForbiddenError("may not write it")
        return apply(obj, **options)

    monkeypatch.setattr(cluster, "apply", refusing)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "broken"}}
    write(live, "a", account, config_map("z"))
    ran = run(f"apply minikube -c a --no-prune {option}")
    assert (ran.code, data(run, "z")) == (6, after)
    assert "failed    ServiceAccount default/broken" in ran.out
    assert ("skipped   ConfigMap default/z" in ran.out) == (after is None)


def test_y18_nothing_is_written_or_deleted_when_something_does_not_render(live: Path, run: Runner) -> None:
    (live / "components/b.yaml").write_text("kind: [\n")
    run.ok("component rm a")
    assert run("apply minikube --yes").code == 3
    assert (data(run, "a"), data(run, "b")) == ({"x": "1"}, {"x": "1"})


def test_y19_what_cannot_change_is_explained_and_recreated_on_request(live: Path, run: Runner) -> None:
    write(live, "web", deployment("web"))
    run.ok("apply minikube")
    changed = deployment("web")
    changed["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    changed["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    write(live, "web", changed)
    refused = run("apply minikube --yes")
    assert refused.code == 6
    assert "`Deployment default/web`: `spec.selector` cannot change while the object exists" in refused.err
    assert 'mlstack.dev/recreate: "true"' in refused.err
    assert "environments/minikube/patches/web.yaml" in refused.err
    changed["metadata"]["annotations"] = {"mlstack.dev/recreate": "true"}
    write(live, "web", changed)
    assert run("apply minikube").code == 2  # it is asked about, as a deletion is
    assert outcomes(run, "apply minikube --yes")["web"] == "recreated"


def test_y20_applying_again_writes_nothing(live: Path, run: Runner) -> None:
    names = [ObjectRef("v1", "ConfigMap", "default", name) for name in ("front", "a", "b")]
    cluster = run.cluster("minikube")
    for edited in ("", "yes"):  # the second time a person has written aside, and each is looked at whole
        if edited:
            for ref in names:
                cluster.patch(ref, {"metadata": {"labels": {"seen": edited}}}, manager="kubectl-edit")
        before = [existing(cluster, ref) for ref in names]
        counted = Counted(cluster)
        run.clusters["minikube"] = counted  # type: ignore[assignment]  # passes every verb on
        assert set(outcomes(run, "apply minikube").values()) == {"unchanged"}
        assert not {"front", "a", "b"} & {name.rpartition("/")[2] for name in counted.written}
        assert [existing(cluster, ref) for ref in names] == before


def test_y21_context_and_namespace_may_be_others_for_one_run(live: Path, run: Runner) -> None:
    elsewhere = run("apply minikube --context gke")
    assert (elsewhere.code, "leads to another cluster" in elsewhere.err) == (6, True)
    run.clusters["twin"], run.contexts = run.cluster("minikube"), {**run.contexts, "twin": "default"}
    assert set(outcomes(run, "apply minikube --context twin").values()) == {"unchanged"}
    run.ok("apply minikube -n other")
    assert run.cluster("minikube").get(ObjectRef("v1", "ConfigMap", "other", "front"))
    assert data(run, "front")


def test_y22_there_is_a_history_and_a_way_back(live: Path, run: Runner) -> None:
    write(live, "a", config_map("a", x="2"))
    run.ok("apply minikube")
    assert len(run("history minikube -o json").json["revisions"]) == 2
    run.ok("rollback minikube --yes")
    assert data(run, "a") == {"x": "1"}


def test_y23_an_object_of_two_components_is_told(live: Path, run: Runner) -> None:
    write(live, "c", config_map("a"))
    refused = run("apply minikube")
    assert refused.code == 3
    assert all(name in refused.err for name in ("components/a.yaml", "components/c.yaml"))
