"""What the prototype `elastic-controller` deploys fits the program that it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from mlstack.app.app_dir import AppDir
from mlstack.cli.main import program
from mlstack.elastic import training_job as spec
from mlstack.elastic.controller import LEASE_NAME, Controller, ControllerSettings
from mlstack.elastic.pods import environment
from mlstack.elastic.training_job import SERVER_CLASS, TRAINER_CLASS, RoleName
from mlstack.kube.client import ClientWrapper, ObjectRef, WatchEvent
from mlstack.testing.cluster import MemoryCluster
from tests.support import examples
from tests.support.elastic import pod, training_job
from tests.support.examples import Case
from tests.support.stage import JOBS, Stage
from tests.support.trainingjobs import edl_job

SURROUNDINGS = (("Service", "v1"), ("PodDisruptionBudget", "policy/v1"), ("StatefulSet", "apps/v1"))
CASES = [case for case in examples.cases() if case.prototype.name == "elastic-controller"]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> AppDir:
    return examples.shipped_app(tmp_path_factory.mktemp("controllers") / "app")


def rendered(app: AppDir, case: Case) -> list[Mapping[str, Any]]:
    return [obj.data for obj in examples.render(app, case).objects]


def rules(objects: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Give the rules of the roles that are bound to somebody: the controller."""
    bound = {(obj["roleRef"]["kind"], obj["roleRef"]["name"]) for obj in objects if "roleRef" in obj}
    for obj in objects:
        if (obj["kind"], obj["metadata"]["name"]) in bound:
            yield from obj["rules"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_program_takes_the_arguments_that_it_is_given(app: AppDir, case: Case) -> None:
    [deployment] = [obj for obj in rendered(app, case) if obj["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["mlstack"]
    family, name, *arguments = container["args"]
    root = typer.main.get_command(program)
    inner = root.get_command(root.make_context("mlstack", ["version"]), family)
    context = inner.get_command(inner.make_context(family, [name]), name).make_context(name, arguments)
    assert context.params["listen"].endswith(f":{container['ports'][0]['containerPort']}")
    assert context.params["tick_ms"] in (5000, 2500)


@pytest.mark.slow
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
            assert rule["resourceNames"] == [lease_name(rendered(app, case))]


def lease_name(objects: list[Mapping[str, Any]]) -> str:
    """Give the name of the Lease by which a controller leads, as its arguments have it."""
    [deployment] = [obj for obj in objects if obj["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    names = [word.partition("=")[2] for word in arguments if word.startswith("--lease-name=")]
    return names[0] if names else LEASE_NAME


def test_controllers_with_namespaces_of_their_own_have_leases_of_their_own(app: AppDir) -> None:
    names = {case.example.name: lease_name(rendered(app, case)) for case in CASES}
    assert names == {
        "default": "mlstack-elastic",
        "as-edl": "mlstack-elastic",
        "some-namespaces": "mlstack-elastic-elastic-research",
    }


@dataclass(frozen=True)
class Use:
    """A right that was used: API group, resource and verb."""

    group: str
    resource: str
    verb: str


class Noted(ClientWrapper):
    """A cluster that notes which rights are used."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__(cluster)
        self.used: set[Use] = set()

    def _note(self, api_version: str, kind: str, verb: str, subresource: str = "") -> None:
        resource = self._cluster.kinds().lookup(api_version, kind)
        assert resource is not None
        self.used.add(Use(resource.group, resource.plural + (f"/{subresource}" if subresource else ""), verb))

    def get(self, ref: ObjectRef) -> Any:
        self._note(ref.api_version, ref.kind, "get")
        return super().get(ref)

    def list(self, api_version: str, kind: str, **options: Any) -> Any:
        self._note(api_version, kind, "list")
        return super().list(api_version, kind, **options)

    def watch(self, api_version: str, kind: str, **options: Any) -> Any:
        # A watch that begins without a version lists first.
        for verb in ("list", "watch"):
            self._note(api_version, kind, verb)
        return super().watch(api_version, kind, **options)

    def apply(self, obj: Mapping[str, Any], **options: Any) -> Any:
        # By server-side apply an object that is not there is created, which takes both rights.
        for verb in ("create", "patch"):
            self._note(obj["apiVersion"], obj["kind"], verb)
        return super().apply(obj, **options)

    def create(self, obj: Mapping[str, Any], **options: Any) -> Any:
        self._note(obj["apiVersion"], obj["kind"], "create")
        return super().create(obj, **options)

    def replace(self, obj: Mapping[str, Any], **options: Any) -> Any:
        self._note(obj["apiVersion"], obj["kind"], "update")
        return super().replace(obj, **options)

    def patch(self, ref: ObjectRef, patch: Any, **options: Any) -> Any:
        self._note(ref.api_version, ref.kind, "patch", options.get("subresource", ""))
        return super().patch(ref, patch, **options)

    def delete(self, ref: ObjectRef, **options: Any) -> Any:
        self._note(ref.api_version, ref.kind, "delete")
        return super().delete(ref, **options)


def use(stage: Stage) -> set[Use]:
    """Let a controller meet what there is to meet, and give the rights that it used."""
    noted = Noted(stage.memory)
    stage.cluster = noted  # type: ignore[assignment]
    stage.restart()
    stage.put(training_job(minimum=1, maximum=3, pservers=1, with_master=True, ttlSecondsAfterFinished=60))
    stage.settle()
    stage.resize(2, 3, 2, 3, 2, 3)
    stage.step(seconds=60)
    for kind, api_version in SURROUNDINGS:
        stage.delete(kind, "train-pserver", api_version)
    stage.settle()
    unheard = {"name": "train-trainer-3", "namespace": "default"}
    stage.memory.create({**pod("other"), "metadata": unheard})
    stage.memory.patch(ObjectRef.of(stage.job()), {"spec": {"trainer": {"max-instance": 4}}})
    stage.cache.handle(WatchEvent(type="MODIFIED", object=stage.job()))
    stage.reconciler.reconcile(stage.clock.now_ms)
    stage.memory.patch(ObjectRef.of(stage.job()), {"spec": {"trainer": {"min-instance": 0}}})
    stage.settle()
    for name in stage.trainers():
        stage.end(name, phase="Succeeded")
    stage.settle()
    stage.hear()
    stage.put(training_job("silent", minimum=1, maximum=1, pservers=1))
    for _ in range(6):  # its StatefulSet makes no pods: it is asked why
        stage.step()
    again = {**training_job(minimum=1, maximum=3), "status": {}}
    stage.delete("TrainingJob", "train", JOBS)
    stage.put(again)
    stage.reconciler.reconcile(
        stage.clock.now_ms + 3_600_000
    )  # it has not heard of the other job of that name
    settings = ControllerSettings(identity="me", lease_namespace="default")
    for _ in range(2):
        Controller(noted, settings, log=lambda text: None).once()
    return noted.used


@pytest.mark.slow
def test_every_right_that_it_has_is_used_and_every_one_that_it_uses_it_has(app: AppDir) -> None:
    stage = Stage("n1", "n2")
    stage.clock.now_ms = round(time.time() * 1000)
    [case] = [case for case in CASES if case.example.name == "default"]
    granted = {
        Use(group, resource, verb)
        for rule in rules(rendered(app, case))
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    used = use(stage)

    assert (sorted(map(str, granted - used)), sorted(map(str, used - granted))) == ([], [])


def roles_of_people(objects: list[Mapping[str, Any]]) -> dict[str, set[Use]]:
    """Give what each role of Kubernetes gets: `view`, `edit` and `admin`."""
    rights: dict[str, set[Use]] = {}
    for obj in objects:
        labels = obj["metadata"].get("labels", {})
        for role in [name.partition("/aggregate-to-")[2] for name in labels if "/aggregate-to-" in name]:
            rights.setdefault(role, set()).update(
                Use(rule["apiGroups"][0], resource, verb)
                for rule in obj["rules"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            )
    return rights


def test_people_look_at_jobs_by_view_and_change_them_by_edit_and_admin(app: AppDir) -> None:
    [case] = [case for case in CASES if case.example.name == "default"]
    group = "paddlepaddle.org"
    view = {Use(group, "trainingjobs", verb) for verb in ("get", "list", "watch")}
    change = {
        Use(group, "trainingjobs", verb)
        for verb in ("create", "delete", "deletecollection", "patch", "update")
    }
    scale = {Use(group, "trainingjobs/scale", verb) for verb in ("get", "patch", "update")}

    rights = roles_of_people(rendered(app, case))

    assert rights == {"view": view, "edit": view | change | scale, "admin": view | change | scale}


@pytest.mark.parametrize("params", [{"installCrd": False}, {"userRoles": False}], ids=str)
def test_roles_of_people_come_with_the_definition_unless_they_are_not_wanted(
    tmp_path: Path, params: dict[str, bool]
) -> None:
    image = "registry.example.org/mlstack:1"
    state = examples.render_one(tmp_path / "app", "elastic/elastic-controller", {"image": image, **params})

    assert roles_of_people([dict(obj.data) for obj in state.objects]) == {}


def test_with_namespaces_of_its_own_it_writes_there_alone(app: AppDir) -> None:
    [case] = [case for case in CASES if case.example.name == "some-namespaces"]
    objects = rendered(app, case)
    [everywhere] = [obj for obj in objects if obj["kind"] == "ClusterRole"]
    assert {verb for rule in everywhere["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    assert {obj["metadata"]["namespace"] for obj in objects if obj["kind"] == "Role"} == {
        "default",
        "research",
    }


def test_its_priority_classes_are_those_that_jobs_name(app: AppDir) -> None:
    [case] = [case for case in CASES if case.example.name == "default"]
    classes = {obj["metadata"]["name"]: obj for obj in rendered(app, case) if obj["kind"] == "PriorityClass"}
    assert set(classes) == {TRAINER_CLASS, SERVER_CLASS}
    assert {name: obj["value"] for name, obj in classes.items()} == {TRAINER_CLASS: -10, SERVER_CLASS: 100}
    assert {obj["preemptionPolicy"] for obj in classes.values()} == {"Never"}


def test_the_head_room_of_edl_is_its_load_turned_round(app: AppDir) -> None:
    [case] = [case for case in CASES if case.example.name == "as-edl"]
    [deployment] = [obj for obj in rendered(app, case) if obj["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--headroom=3" in arguments


def test_without_a_head_room_the_policy_has_its_own(app: AppDir) -> None:
    [case] = [case for case in CASES if case.example.name == "default"]
    [deployment] = [obj for obj in rendered(app, case) if obj["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [argument for argument in arguments if argument.startswith("--headroom")] == []


def test_the_readme_names_every_variable_of_ours() -> None:
    readme = (Path(__file__).parents[3] / "prototypes" / "elastic" / "README.md").read_text("utf-8")
    data = edl_job()
    data["spec"]["pserver"]["storage"] = {"size": "1Gi"}
    job = spec.parse(data)
    roles: tuple[RoleName, ...] = ("trainer", "pserver", "master")
    names = {str(variable["name"]) for role in roles for variable in environment(job, role, 0)}
    assert {name for name in names if name.startswith("MLSTACK_") and f"`{name}`" not in readme} == set()
