"""What commands print, in every format, as a person approved it: `pytest --update-golden` rewrites it."""

from pathlib import Path

import pytest

from tests.conftest import Golden
from tests.support.cli import Runner
from tests.support.registry import small_app

# One transcript a file: command lines in order, each with what it prints and its exit code.
TRANSCRIPTS = {
    "registry": [
        "registry list",
        "registry describe ours",
        "registry describe ours -o yaml",
        "registry add again ../registry",
        "registry list -o name",
        "registry add again ../elsewhere",
        "registry index ../registry",
        "registry index ../registry --check -o json",
    ],
    "pkg": [
        "pkg list",
        "pkg list --installed -o json",
        "pkg describe ours/tools",
        "pkg install ours/tools",
        "pkg install ours/tolos",
        "pkg rm ours/base",
        "pkg rm ours/tools",
        "pkg list -o name",
    ],
    "prototype": [
        "prototype list",
        "prototype list web",
        "prototype search page -o yaml",
        "prototype describe web",
        "prototype describe web -o json",
        "prototype preview web --image nginx --token s3cret",
        "prototype preview web --image nginx -o name",
        "prototype describe wbe",
    ],
    "component": [
        "generate web front --image nginx --replicas 2 --debug",
        "generate web front --image nginx",
        "generate web shop.cart --image caddy --size big -o json",
        "generate web x --imgae nginx",
        "generate web x --image nginx --replicas 12 --color blue",
        "component list",
        "component list -o yaml",
        "component rm shop.cart",
        "component list -o name",
    ],
    "env": [
        "env add minikube",
        "env add us/staging --extends minikube -n staging",
        "env add gke --context gke --no-preset",
        "env add gke",
        "env set gke --protected --namespace kubeflow",
        "env list",
        "env list -o json",
        "env describe minikube",
        "env describe us/staging -o yaml",
        "env current",
        "env current --set gke",
        "env current -o json",
        "env list",
        "env rm minikube",
        "env rm us/staging",
        "env current --unset",
    ],
    "param": [
        "env add gke --context gke --no-preset",
        "env add minikube --no-preset",
        "generate web front --image nginx --token s3cret",
        "param set --env=gke front replicas 3",
        "param set front replicas 2",
        "param set front args --verbose,--fast",
        "param set color green --env gke",
        "param set front replicsa 2",
        "param set front replicas two",
        "param list front --env gke",
        "param list front --env gke --set-only -o json",
        "param diff minikube gke",
        "param diff minikube gke -o yaml",
        "param explain front replicas --env gke",
        "param explain front token --env gke -o yaml",
        "param unset --env=gke front replicas",
        "param unset --env=gke front replicas",
    ],
    "deploy": [
        "env add minikube --no-preset",
        "generate web front --image nginx --token s3cret",
        "render minikube",
        "render minikube -o json",
        "render minikube -o name",
        "show minikube -c front --set front.color=green",
        "render minikube -c fornt",
        "validate minikube",
        "diff minikube",
        "apply minikube --dry-run",
        "apply minikube",
        "apply minikube",
        "apply minikube -o json",
        "diff minikube -o json",
        "status minikube",
        "param set front color green",
        "param set front token other",
        "diff minikube",
        "apply minikube",
        "status minikube -o yaml",
        "delete minikube",
        "delete minikube --yes",
        "delete minikube --yes -o name",
        "status minikube",
        "apply gke",
        "apply",
    ],
    "history": [
        "env add minikube --no-preset",
        "history minikube",
        "rollback minikube",
        "generate web front --image nginx --token s3cret",
        "apply minikube",
        "param set front color green",
        "param set front token other",
        "generate web back --image caddy",
        "apply minikube --yes",
        "history minikube",
        "history minikube -o json",
        "history minikube -o name",
        "history show minikube 1",
        "history show minikube 1 -o yaml",
        "history diff minikube 1",
        "history diff minikube 2 2 -o json",
        "history diff minikube",
        "history show minikube 7",
        "history show minikube newest",
        "rollback minikube --dry-run",
        "rollback minikube",
        "rollback minikube --yes",
        "diff minikube",
        "rollback minikube 3 --yes",
        "env current --set minikube",
        "rollback 2 --yes -o name",
        "history",
    ],
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_commands_print_what_was_approved(
    run: Runner, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    golden(f"cli/{name}.txt", "\n".join(_record(run, line) for line in TRANSCRIPTS[name]))


def _record(run: Runner, line: str) -> str:
    ran = run(line)
    err = "".join(f"! {text}\n" for text in ran.err.splitlines())
    return f"$ mlstack {line}\n{ran.out}{err}[{ran.code}]\n"
