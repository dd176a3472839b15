"""A plan file is applied exactly, or refused with what moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.components import read_overrides
from mlstack.app.params import ParamScope
from mlstack.deploy import reapply
from mlstack.deploy.changes import ApplyOptions, RunResult
from mlstack.errors import ConfigError, ConflictError, MlstackError, UsageError, WrongClusterError
from mlstack.kube.client import ObjectRef
from mlstack.operations import deploy
from mlstack.operations.deploy import PlanResult
from tests.support.deploying import Stack, config_map, crd, deployment, existing, outcomes, secret, tfjob
from tests.support.registry import generate, small_app

SETTINGS = ObjectRef("v1", "ConfigMap", "ml", "settings")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "plan.json"


@pytest.fixture
def parametrised(tmp_path: Path, stack: Stack) -> Stack:
    """The same clusters with a component of a prototype that has a secret parameter."""
    demo = Stack(tmp_path / "demo", namespace="ml", opener=stack.opener, clock=stack.clock)
    generate(small_app(tmp_path))
    return demo


def planned(stack: Stack, file: Path | None, **facts: Any) -> PlanResult:
    options = ApplyOptions(dry_run=True, **facts.pop("options", {}))
    target = stack.target(**facts)
    return deploy.plan(target, opener=stack.opener, clock=stack.clock, options=options, out=file)


def applied(stack: Stack, file: Path, *, environment: str = "minikube", **facts: Any) -> RunResult:
    target = stack.target(environment, **facts)
    plan = deploy.plan_approved(target, file, opener=stack.opener, options=ApplyOptions(wait=False))
    return deploy.apply(plan, clock=stack.clock)


def refused(stack: Stack, file: Path, error: type[MlstackError], **facts: Any) -> str:
    with pytest.raises(error) as caught:
        applied(stack, file, **facts)
    assert "mlstack plan" in (caught.value.hint or "") or isinstance(caught.value, UsageError)
    return caught.value.message


def test_a_plan_that_was_applied_can_be_applied_again(stack: Stack, file: Path) -> None:
    stack.deploy("web", config_map(a="1"))
    stack.write("web", config_map(a="2"), deployment())
    planned(stack, file)
    applied(stack, file)
    assert set(outcomes(applied(stack, file)).values()) == {"unchanged"}


def test_files_that_moved_are_named(stack: Stack, file: Path) -> None:
    stack.write("web", config_map(a="1"))
    stack.write("gone", config_map("gone"))
    planned(stack, file)
    stack.write("web", config_map(a="2"))
    stack.write("more", config_map("more"))
    stack.remove("gone")
    plan = json.loads(file.read_text())
    file.write_text(json.dumps({**plan, "packages": {"kubeflow/core@0.1.0": "sha256:" + "d" * 64}}))
    assert refused(stack, file, ConfigError).splitlines() == [
        "the files have changed since the plan was made; nothing was done",
        "  package `kubeflow/core@0.1.0` is not read any more",
        "  `components/gone.yaml` is not read any more",
        "  `components/more.yaml` is new",
        "  `components/web.yaml` has changed",
    ]


def test_a_comment_in_a_file_that_is_not_read_does_not_matter(stack: Stack, file: Path) -> None:
    stack.write("web", config_map(a="1"))
    stack.write("other", config_map("other"))
    planned(stack, file, components=["web"])
    stack.write("other", config_map("other", b="2"))
    assert outcomes(applied(stack, file)) == {"ml": "created", "settings": "created"}


def test_objects_that_moved_are_named(stack: Stack, file: Path) -> None:
    stack.deploy("web", config_map(a="1"), config_map("same", b="1"))
    stack.write("web", config_map(a="2"), config_map("same", b="1"))
    planned(stack, file)
    cluster = stack.opener("minikube")
    cluster.patch(ObjectRef("v1", "ConfigMap", "ml", "same"), {"data": {"b": "x"}}, manager="kubectl-edit")
    cluster.patch(SETTINGS, {"data": {"a": "3"}}, manager="kubectl-edit")
    lines = refused(stack, file, ConflictError).splitlines()
    assert lines[0] == "the cluster has moved since the plan was made; nothing was done"
    assert sorted(lines[1:]) == [
        "  ConfigMap ml/same: would be updated, not left as it is",
        '  ConfigMap ml/settings: differs in another way than when it was approved: `data.a` is "3", was "1"',
    ]
    live = existing(cluster, SETTINGS)
    assert live["data"]["a"] == "3"


def test_an_object_made_anew_by_somebody_else_is_another_one(stack: Stack, file: Path) -> None:
    stack.deploy("web", config_map(a="1"))
    stack.write("web", config_map(a="2"))
    planned(stack, file)
    cluster = stack.opener("minikube")
    old = existing(cluster, SETTINGS)
    cluster.delete(SETTINGS)
    metadata = {key: old["metadata"][key] for key in ("name", "namespace", "labels")}
    cluster.create({**config_map(a="1"), "metadata": metadata}, manager="kubectl-create")
    assert "was deleted and made anew by somebody else" in refused(stack, file, ConflictError)


def test_another_cluster_is_refused(stack: Stack, file: Path) -> None:
    stack.write("web", config_map(a="1"))
    planned(stack, file)
    message = refused(stack, file, WrongClusterError, context="gke")
    assert message.startswith("the plan is for another cluster than context `gke` leads to: made for ")


def test_another_apps_plan_is_refused(stack: Stack, file: Path, tmp_path: Path) -> None:
    stack.write("web", config_map(a="1"))
    planned(stack, file)
    other = Stack(tmp_path / "other", namespace="ml", opener=stack.opener, name="other", clock=stack.clock)
    with pytest.raises(ConfigError) as caught:
        applied(other, file)
    assert caught.value.message == "the plan is for app `demo`, this is app `other`"


def test_options_that_decide_are_those_of_the_plan(stack: Stack, file: Path) -> None:
    stack.deploy("web", config_map(a="1"), config_map("old"))
    stack.write("web", config_map(a="2"))
    planned(stack, file, options={"prune": False})
    assert "old" not in outcomes(applied(stack, file))
    assert stack.opener("minikube").get(ObjectRef("v1", "ConfigMap", "ml", "old")) is not None


def test_no_secret_stands_in_the_file_nor_a_bare_hash_of_one(stack: Stack, file: Path) -> None:
    stack.deploy("web", secret(password="hush-hush"))
    stack.write("web", secret(password="other-word"))
    planned(stack, file)
    text = file.read_text()
    assert "hush" not in text
    assert "other-word" not in text
    assert "aHVzaC1odXNo" not in text  # in base64
    plan = json.loads(text)
    (digest,) = (obj["digest"] for obj in plan["objects"] if obj["kind"] == "Secret")
    assert all(value.startswith("scrypt:") for value in (digest, plan["inputs"]["components/web.yaml"]))
    assert [field["path"] for row in plan["objects"] for field in row["fields"]] == ["data.password"]


def test_a_secret_that_changes_after_the_plan_is_not_approved(stack: Stack, file: Path) -> None:
    stack.write("web", secret(password="one"))
    planned(stack, file)
    stack.write("web", secret(password="two"))
    assert "`components/web.yaml` has changed" in refused(stack, file, ConfigError)


def test_parameters_of_the_run_are_kept(parametrised: Stack, file: Path) -> None:
    overrides = read_overrides(["front.color=green"], [])
    planned(parametrised, file, overrides=overrides)
    applied(parametrised, file)
    live = parametrised.opener("minikube").get(ObjectRef("v1", "ConfigMap", "ml", "front"))
    assert live is not None
    assert live["data"]["color"] == "green"


def test_secret_parameters_of_the_run_are_not_kept_but_held_to(parametrised: Stack, file: Path) -> None:
    planned(parametrised, file, overrides=read_overrides(["front.token=s3cret"], []))
    assert "s3cret" not in file.read_text()
    assert "give the same" not in refused(parametrised, file, UsageError)
    wrong = refused(parametrised, file, UsageError, overrides=read_overrides(["front.token=other"], []))
    assert wrong.endswith("these are others")
    done = applied(parametrised, file, overrides=read_overrides(["front.token=s3cret"], []))
    assert set(outcomes(done).values()) == {"created"}


def test_the_file_says_what_it_was_made_from(stack: Stack, file: Path) -> None:
    stack.write("web", config_map(a="1"))
    planned(stack, file, components=["web"])
    plan = reapply.read(file)
    target = [plan[name] for name in ("app", "environment", "context", "namespace")]
    assert target == ["demo", "minikube", "minikube", "ml"]
    assert plan["selection"] == plan["components"] == ["web"]
    assert plan["cluster"]["uid"]
    assert plan["inputs"]["components/web.yaml"].startswith("sha256:")
    assert plan["options"]["prune"] is True
    objects = [(row["name"], row["action"]) for row in plan["objects"]]
    assert objects == [("ml", "create"), ("settings", "create")]


def test_what_would_be_waited_for_is_told(stack: Stack) -> None:
    job = tfjob()
    side = deployment("side")
    side["metadata"]["annotations"] = {"mlstack.dev/wait": "none"}
    stack.write(
        "web", config_map(a="1"), deployment(), side, crd("tfjobs", "TFJob", group="kubeflow.org"), job
    )
    plan = planned(stack, None, options={"timeout_s": 90.0})
    waits = {wait.object: (wait.policy, wait.timeout_s, wait.goes_on) for wait in plan.waits}
    assert waits["Deployment ml/web"] == ("required", 90.0, False)
    assert waits["TFJob ml/cnn"][2]
    assert not {"ConfigMap ml/settings", "Deployment ml/side"} & waits.keys()
    assert planned(stack, None, options={"wait": False}).waits == ()


def test_a_secret_parameter_is_masked_in_whatever_object_it_stands(parametrised: Stack, file: Path) -> None:
    generate(parametrised.app, "back", image="hush-hush:1", token="hush-hush")
    planned(parametrised, file, components=["back"])
    assert "hush" not in file.read_text()
    report = parametrised.diff(components=["back"])
    assert "hush" not in repr(report)
    parametrised.apply(components=["back"])
    scope = ParamScope(component="back")
    for name, value in (("token", "quiet-please"), ("image", "quiet-please:2")):
        parametrised.app.set_param(scope, [name], value)
    plan = planned(parametrised, file, components=["back"])
    for text in (file.read_text(), repr(plan), repr(parametrised.diff())):
        assert not any(word in text for word in ("hush", "quiet"))
    assert plan.changed
