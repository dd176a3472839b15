"""What the prototype `elastic-controller` deploys fits the program that it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer

from mlstack.cli.main import program
from mlstack.elastic import spec
from mlstack.elastic.environment import environment
from mlstack.elastic.running.settings import LEASE_NAME
from mlstack.elastic.trainingjob import SERVER_CLASS, TRAINER_CLASS, RoleName
from mlstack.files.appdir import AppDir
from tests.support import examples
from tests.support.examples import Case
from tests.support.trainingjobs import edl_job

CASES = [case for case in examples.cases() if case.prototype.name == "elastic-controller"]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> AppDir:
    return examples.shipped_app(tmp_path_factory.mktemp("controllers") / "app")


def rendered(app: AppDir, case: Case) -> list[Mapping[str, Any]]:
    return [each.data for each in examples.render(app, case).objects]


def rules(objects: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for each in objects:
        if each["kind"] in ("Role", "ClusterRole"):
            yield from each["rules"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_program_takes_the_arguments_that_it_is_given(app: AppDir, case: Case) -> None:
    [deployment] = [each for each in rendered(app, case) if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["mlstack"]
    family, name, *arguments = container["args"]
    root = typer.main.get_command(program)
    inner = root.get_command(root.make_context("mlstack", ["version"]), family)
    context = inner.get_command(inner.make_context(family, [name]), name).make_context(name, arguments)
    assert context.params["listen"].endswith(f":{container['ports'][0]['containerPort']}")
    assert context.params["tick"] in (5.0, 2.5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_has_the_rights_that_it_needs_and_no_more(app: AppDir, case: Case) -> None:
    for rule in rules(rendered(app, case)):
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
        assert not {"secrets", "configmaps", "serviceaccounts", "roles", "nodes/proxy"} & set(
            rule["resources"]
        )
        if "trainingjobs" in rule["resources"]:
            assert not {"create", "update", "patch"} & set(rule["verbs"])
        if rule["resources"] == ["leases"] and rule["verbs"] != ["create"]:
            assert rule["resourceNames"] == [LEASE_NAME]


def test_with_namespaces_of_its_own_it_writes_there_alone(app: AppDir) -> None:
    [case] = [each for each in CASES if each.example.name == "some-namespaces"]
    objects = rendered(app, case)
    [everywhere] = [each for each in objects if each["kind"] == "ClusterRole"]
    assert {verb for rule in everywhere["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert {each["metadata"]["namespace"] for each in objects if each["kind"] == "Role"} == {
        "default",
        "research",
    }


def test_its_priority_classes_are_those_that_jobs_name(app: AppDir) -> None:
    [case] = [each for each in CASES if each.example.name == "default"]
    found = {
        each["metadata"]["name"]: each for each in rendered(app, case) if each["kind"] == "PriorityClass"
    }
    assert set(found) == {TRAINER_CLASS, SERVER_CLASS}
    assert {name: each["value"] for name, each in found.items()} == {TRAINER_CLASS: -10, SERVER_CLASS: 100}
    assert {each["preemptionPolicy"] for each in found.values()} == {"Never"}


def test_the_head_room_of_edl_is_its_load_turned_round(app: AppDir) -> None:
    [case] = [each for each in CASES if each.example.name == "as-edl"]
    [deployment] = [each for each in rendered(app, case) if each["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--headroom=3" in arguments


def test_without_a_head_room_the_policy_has_its_own(app: AppDir) -> None:
    [case] = [each for each in CASES if each.example.name == "default"]
    [deployment] = [each for each in rendered(app, case) if each["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [each for each in arguments if each.startswith("--headroom")] == []


def test_the_readme_names_every_variable_of_ours() -> None:
    readme = (Path(__file__).parents[3] / "prototypes" / "elastic" / "README.md").read_text("utf-8")
    data = edl_job()
    data["spec"]["pserver"]["storage"] = {"size": "1Gi"}
    job = spec.parse(data)
    roles: tuple[RoleName, ...] = ("trainer", "pserver", "master")
    names = {str(each["name"]) for role in roles for each in environment(job, role, 0)}
    assert {name for name in names if name.startswith("MLSTACK_") and f"`{name}`" not in readme} == set()
