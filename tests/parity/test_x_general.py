"""Rows X: `delete`, and what holds for every command."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from mlstack.app import schema
from mlstack.errors import UsageError
from mlstack.kube.client import ObjectRef
from mlstack.programs import ProgramError
from mlstack.programs import run as run_program
from mlstack.yaml.write import to_yaml_documents
from tests.support.builders import kubeconfig, write_tree
from tests.support.cli import Runner
from tests.support.commands import every_command
from tests.support.deploying import config_map, crd

README = Path(__file__).parents[2] / "README.md"


def write(root: Path, component: str, *objects: Mapping[str, Any]) -> None:
    write_tree(root, {f"components/{component}.yaml": to_yaml_documents(objects)})


def there(run: Runner, name: str) -> bool:
    return run.cluster("minikube").get(ObjectRef("v1", "ConfigMap", "default", name)) is not None


@pytest.fixture
def live(demo: Path, run: Runner) -> Path:
    """Give the app with ConfigMaps `front` and `a` and a ServiceAccount applied."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}}
    write(demo, "a", account, config_map("a"))
    run.ok("apply minikube")
    return demo


def test_x1_delete_removes_everything_in_reverse_order(live: Path, run: Runner) -> None:
    applied = [row["object"] for row in run("apply minikube -o json").json["objects"]]
    deleted = [row["object"] for row in run("delete minikube --yes -o json").json["objects"]]
    assert deleted == applied[::-1]
    assert not there(run, "front")


def test_x2_components_may_be_chosen(live: Path, run: Runner) -> None:
    run.ok("delete minikube -c a --yes")
    assert (there(run, "a"), there(run, "front")) == (False, True)
    assert run("delete minikube -c nope --yes").code == 4


def test_x3_what_is_gone_already_is_fine(live: Path, run: Runner) -> None:
    run.cluster("minikube").delete(ObjectRef("v1", "ConfigMap", "default", "a"))
    run.ok("delete minikube --yes")
    run.ok("delete minikube --yes")


def test_x4_pods_may_be_given_time(live: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, grace_s = run.cluster("minikube"), {}
    delete = cluster.delete

    def noted(ref: ObjectRef, **how: Any) -> object:
        grace_s[ref.kind] = how.get("grace_period_s")
        return delete(ref, **how)

    monkeypatch.setattr(cluster, "delete", noted)
    run.ok("delete minikube -c a --yes --grace-period 5")
    assert (grace_s["ConfigMap"], grace_s["ServiceAccount"]) == (5, 5)


def test_x5_what_was_deployed_goes_even_if_the_files_changed(live: Path, run: Runner) -> None:
    run.ok("component rm a")
    run.ok("component rm front")
    run.ok("delete minikube --yes")
    assert (there(run, "a"), there(run, "front")) == (False, False)


def test_x6_delete_is_previewed_confirmed_and_waited_for(live: Path, run: Runner) -> None:
    assert "ConfigMap default/a" in run.ok("delete minikube --dry-run")
    assert run("delete minikube").code == 2
    run.answer = False
    assert (run("delete minikube").code, there(run, "a")) == (1, True)
    run.answer = True
    run.ok("delete minikube --wait")
    assert not there(run, "a")


def test_x7_definitions_namespaces_and_claims_stay_unless_named(demo: Path, run: Runner) -> None:
    """More of it: tests/unit/operations/test_delete.py."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "own"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}}
    write(demo, "a", crd(group="a.example.org"), own, claim)
    run.ok("apply minikube --no-wait")

    def left() -> set[str]:
        refs = (
            ObjectRef("v1", "Namespace", "", "own"),
            ObjectRef("v1", "PersistentVolumeClaim", "own", "data"),
            ObjectRef("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "widgets.a.example.org"),
        )
        return {ref.kind for ref in refs if run.cluster("minikube").get(ref)}

    every = {"Namespace", "PersistentVolumeClaim", "CustomResourceDefinition"}
    run.ok("delete minikube --yes")
    assert left() == every
    run("delete minikube --yes --namespaces")  # it holds a claim that is kept
    assert left() == every
    run.ok("delete minikube --yes --crds")
    assert left() == every - {"CustomResourceDefinition"}
    run.ok("delete minikube --yes --namespaces --claims")
    assert left() == set()


LISTS = (
    "registry list",
    "registry describe ours",
    "pkg list",
    "pkg describe ours/tools",
    "prototype list",
    "prototype list web",
    "prototype search web",
    "prototype describe web",
    "component list",
    "param list",
    "param list front --env gke",
    "param diff minikube gke",
    "param explain front",
    "env list",
    "env describe gke",
    "env current",
    "env matrix",
    "env expired",
    "env targets gke",
    "module list",
    "images gke",
    "validate gke",
    "diff gke",
    "status minikube",
    "history minikube",
    "schema",
    "version",
)


@pytest.mark.slow
def test_x8_data_goes_to_stdout_and_talk_to_stderr(live: Path, run: Runner) -> None:
    for ran in (run(f"{line} -o {form}") for line in LISTS for form in ("json", "yaml", "table")):
        assert ran.code in (0, 1), ran
        assert not re.search(r"^(note|hint|next|error): ", ran.out, re.MULTILINE)


@pytest.mark.slow
def test_x9_every_list_has_four_formats(live: Path, run: Runner) -> None:
    for line in LISTS:
        as_json, as_yaml = run(f"{line} -o json"), run(f"{line} -o yaml")
        assert yaml.safe_load(as_yaml.out) == as_json.json, line
        assert {run(f"{line} -o {form}").code for form in ("table", "name")} == {as_json.code}, line


def closed(content: dict[str, Any]) -> dict[str, Any]:
    """Refuse fields that a schema does not name, as programs that read it must not."""
    for part in (content, *content.get("$defs", {}).values()):
        part["additionalProperties"] = False
    return content


@pytest.mark.slow
def test_x10_json_keeps_types_and_has_a_published_schema(live: Path, run: Runner) -> None:
    for line in LISTS:
        result = run(f"{line} -o json").json
        assert result["apiVersion"] == "mlstack.dev/v1", line
        content = run(f"schema {result['kind']}").json
        assert content["$id"] == f"https://mlstack.dev/schemas/v1/{result['kind']}.json"
        Draft202012Validator(closed(content)).validate(result)
        assert result["kind"] in schema.result_schemas()


def test_x11_an_option_means_the_same_everywhere() -> None:
    """Each spelling stands for one thing: a value or a switch, of one kind."""
    meanings: dict[str, set[str]] = {}
    for _, command in every_command():
        for option in command.params:
            for spelling in option.opts if option.param_type_name == "option" else ():
                if len(spelling) == 2:
                    meanings.setdefault(spelling, set()).add(max(option.opts, key=len))
    assert {spelling: names for spelling, names in meanings.items() if len(names) > 1} == {}
    assert meanings["-o"] == {"--output"}


# What is wrong with a line, each spelled in every way there is, and the one exit code it has.
MISTAKES = {
    "an unknown parameter": (
        4,
        (
            "generate web back --image nginx --replica 2",
            "generate web back --image nginx --set replica=2",
            "generate web back --image nginx --values unknown.yaml",
            "prototype preview web back --image nginx --replica 2",
            "param set front replica 2",
            "param set replica 2",
            "param set --env gke front replica 2",
            "param unset front replica",
            "param explain front replica",
            "render gke --set replica=2",
            "render gke --set front.replica=2",
            "render gke --values unknown.yaml",
            "render gke --values unknown-front.yaml",
            "validate gke --set replica=2",
            "apply minikube --set replica=2",
        ),
    ),
    "a value of the wrong type": (
        2,
        (
            "generate web back --image nginx --replicas abc",
            "generate web back --image nginx --set replicas=abc",
            "param set front replicas abc",
            "param set replicas abc",
            "param set --env gke front replicas abc",
            "render gke --set replicas=abc",
            "render gke --set front.replicas=abc",
            "apply minikube --set replicas=abc",
        ),
    ),
    "a wrong value in a file": (
        3,
        (
            "generate web back --image nginx --values wrong.yaml",
            "render gke --values wrong.yaml",
            "render gke --values broken.yaml",
            "render odd",
            "apply odd",
            "param list --env odd",
        ),
    ),
    "no such thing": (
        4,
        (
            "render nope",
            "apply nope",
            "render gke -c nope",
            "generate nope back",
            "param set nope replicas 2",
            "param set front replicas 2 --env nope",
            "component rm nope",
            "env rm nope",
            "env describe nope",
            "env add a --context nope",
            "pkg describe ours/nope",
            "pkg install nope/tools",
            "registry describe nope",
            "prototype describe nope",
            "render gke --values nope.yaml",
            "generate web back --values nope.yaml",
            "schema nope",
        ),
    ),
    "words that are no command line": (
        2,
        (
            "nope",
            "env nope",
            "render gke minikube",
            "render gke --nope",
            "render gke -o nope",
            "render gke --set nonsense",
            "param set front",
            "generate",
            "apply minikube --create=perhaps",
        ),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_x12_a_mistake_has_one_exit_code(demo: Path, run: Runner, mistake: str) -> None:
    files = {
        "unknown.yaml": "replica: 2\n",
        "unknown-front.yaml": "components: {front: {replica: 2}}\n",
        "wrong.yaml": "replicas: abc\n",
        "broken.yaml": "a: [\n",
        "environments/odd/environment.yaml": "apiVersion: mlstack.dev/v1\nkind: Environment\n",
        "environments/odd/params.yaml": "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\n"
        "components: {front: {replicas: abc, replica: 2}}\n",
    }
    write_tree(demo, files)
    code, lines = MISTAKES[mistake]
    assert {line: run(line).code for line in lines} == dict.fromkeys(lines, code)


def test_x12_exit_codes_are_documented() -> None:
    text = " ".join(README.read_text(encoding="utf-8").split())
    for code in (0, 1, 2, 3, 4, 5, 6, 7, 70, 130):
        assert re.search(rf"[:·] {code} ", text), code


SUGGESTED = {
    "aply": "apply",
    "deploy": "apply",
    "destroy": "delete",
    "template": "render",
    "import": "",
    "upgrade": "",
    "pkg get": "",
    "pkg remove": "",
    "env create": "env add",
    "env delete": "env rm",
    "env use": "env current",
    "env targets": "env set",
    "registry remove": "",
    "param get": "",
    "param delet": "param delete",
    "component remove": "component rm",
    "repo": "registry",
    "lint": "validate",
    "logs": "status",
}


@pytest.mark.parametrize("words", SUGGESTED)
def test_x13_an_unknown_command_suggests_what_does_it(run: Runner, words: str) -> None:
    """Commands of that name may come; what is suggested is a command."""
    names = {name for name, _ in every_command()}
    if words in names:
        return
    refused = run(words)
    meant = re.search(r"did you mean `mlstack (.*?)`", refused.err)
    assert refused.code == 2
    assert meant[1] in names if meant else not SUGGESTED[words], refused.err
    assert not SUGGESTED[words] or (meant and meant[1] == SUGGESTED[words]), refused.err


@pytest.mark.parametrize("name", [name for name, command in every_command() if not command.hidden])
def test_x13_every_help_has_an_example(run: Runner, name: str) -> None:
    lines = run.ok(f"{name} --help").partition("Example:\n")[2].strip().splitlines()
    assert lines and all(line.strip().startswith("mlstack ") for line in lines)


def test_x14_a_program_has_the_time_that_the_user_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies: tests/unit/kube/test_proxies.py."""
    monkeypatch.setenv("MLSTACK_PROGRAM_TIMEOUT", "0.05s")
    with pytest.raises(ProgramError, match=r"took more than 0\.05 seconds") as caught:
        run_program(["sleep", "60"])
    assert caught.value.hint == "MLSTACK_PROGRAM_TIMEOUT=10m gives it more time"


@pytest.mark.parametrize("value", ["soon", "0", "-1"])
def test_x14_a_time_limit_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    from mlstack.kube.api_server import connect

    write_tree(tmp_path, {"config": kubeconfig("test")})
    monkeypatch.setenv("MLSTACK_REQUEST_TIMEOUT", value)
    with pytest.raises(UsageError) as caught:
        connect("test", kubeconfig=str(tmp_path / "config"))
    assert caught.value.where == "MLSTACK_REQUEST_TIMEOUT"


def test_x15_line_ends_of_every_system_are_read_and_kept(demo: Path, run: Runner) -> None:
    expected = run.ok("render gke")
    for file in [*demo.glob("*.yaml"), *demo.glob("components/*"), *demo.glob("environments/*/*.yaml")]:
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert run.ok("render gke") == expected
    run.ok("param set front color green")
    text = (demo / "components/front.yaml").read_bytes()
    assert b"color: green" in text
    assert text.count(b"\n") == text.count(b"\r\n")


def test_x16_the_python_of_the_readme_works(
    demo: Path, run: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert example
    code = example[1].replace("my-kubeflow", ".").replace('"cnn"', '"front"').replace("num_gpus", "replicas")
    code = code.replace('"1"', '"2"')
    monkeypatch.setattr("mlstack.cli.ports.connect", lambda context, kubeconfig: run.cluster(context))
    names: dict[str, Any] = {}
    exec(code, names)
    assert capsys.readouterr().out == "{'create': 1}\n"
    assert (names["result"].ok, names["result"].counts) == (True, {"created": 1})
    assert run.cluster("gke").get(ObjectRef("v1", "ConfigMap", "default", "front"))["data"]["replicas"] == "2"


def test_x16_programs_read_errors_as_data(demo: Path, run: Runner) -> None:
    refused = run("render gek -o json")
    fault = {"message": "no environment `gek`", "hint": "did you mean `gke`?", "exitCode": 4}
    assert (refused.code, refused.out, json.loads(refused.err)) == (4, "", {"error": fault})
