"""What people know from other deployers: packaging, versions, parameters, environments.

The ids are rows of the comparison with them: A1 to A12, B13 to B21, C22 to C35, D36 to D43, K114 to K118.
Those that rows of ks say too are tested under their id.
"""

from pathlib import Path
from shutil import copytree

import pytest

from mlstack.kube.client import ObjectRef
from mlstack.yaml.write import to_yaml
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.deploying import deployment, existing

RULES = """\
          if: {properties: {color: {const: green}}, required: [color]}
          then: {required: [token]}
          dependentRequired: {size: [debug]}
"""


def mine(run: Runner, folder: Path, old: str, new: str) -> None:
    """Install the package `tools` with another schema, from a registry `mine`, and make `back` of it."""
    copytree(folder / "registry", folder / "mine")
    path = folder / "mine/tools/web/prototype.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    run.ok("registry add mine ../mine")
    run.ok("pkg install mine/tools")
    run.ok("generate mine/tools/web back --image nginx")


def test_peers_12_every_image_of_an_environment_is_listed_once(demo: Path, run: Runner) -> None:
    digest = "sha256:" + "0" * 64
    workload = deployment("shop", image=f"registry.example.org/shop@{digest}")
    first = {"name": "first", "image": "busybox:1"}
    workload["spec"]["template"]["spec"]["initContainers"] = [first]
    write_tree(demo, {"components/shop.yaml": to_yaml(workload)})
    write_tree(demo, {"components/again.yaml": to_yaml(deployment("again", image="busybox:1"))})
    write_tree(
        demo,
        {"environments/gke/patches/again.yaml": to_yaml(deployment("again", image="busybox:2"))},
    )
    assert run.ok("images minikube -o name").split() == ["busybox:1", f"registry.example.org/shop@{digest}"]
    assert run.ok("images gke -c again -o name").split() == ["busybox:2"]
    busy, shop = run("images minikube -o json").json["images"]
    assert (busy["pinned"], shop["pinned"]) == (False, True)
    assert busy["usedBy"] == ["again: Deployment default/again", "shop: Deployment default/shop"]


def test_peers_26_rules_across_parameters(demo: Path, tmp_path: Path, run: Runner) -> None:
    mine(run, tmp_path, "parameters:\n", f"parameters:\n{RULES.replace('          ', '  ')}")
    run.ok("render gke -c back")
    run.ok("param set back color green")
    refused = run("render gke -c back")
    assert (refused.code, "`token` is required" in refused.err) == (3, True), refused
    run.ok("param set back token abc")
    run.ok("render gke -c back")


def test_peers_32_maps_merge_and_lists_replace(demo: Path, run: Runner) -> None:
    run.ok("param set front tags '{a: 1x, b: 2x}'")
    run.ok("param set front args '[a, b]'")
    run.ok("param set --env gke front tags '{b: 3x}'")
    run.ok("param set --env gke front args '[c]'")
    values = {row["name"]: row["value"] for row in run("param list front --env gke -o json").json["rows"]}
    assert (values["tags"], values["args"]) == ({"a": "1x", "b": "3x"}, ["c"])


def test_peers_33_null_removes(demo: Path, run: Runner) -> None:
    run.ok("param set front tags '{a: 1x, b: 2x}'")
    run.ok("param set --env gke front tags.a null")
    run.ok("param set front replicas 3")
    run.ok("param set --env gke front replicas null")
    rows = {row["name"]: row["value"] for row in run("param list front --env gke -o json").json["rows"]}
    assert rows["tags"] == {"b": "2x"}
    assert rows.get("replicas") in (None, 1)


@pytest.mark.parametrize(
    "line", ["render gke", "validate gke", "prototype describe web", "pkg list --installed"]
)
def test_peers_7_a_clone_needs_no_registry(
    demo: Path, tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    expected = run.ok(line)
    copytree(demo, tmp_path / "elsewhere/demo")
    monkeypatch.chdir(tmp_path / "elsewhere/demo")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert run.ok(line) == expected


def test_peers_15_a_changed_byte_in_vendor_names_its_file(demo: Path, run: Runner) -> None:
    file = demo / "vendor/ours/tools@1.2.0/web/templates/page.yaml.j2"
    file.write_bytes(file.read_bytes().replace(b"color", b"colour"))
    refused = run("render gke")
    assert (refused.code, "web/templates/page.yaml.j2" in refused.err) == (5, True)


def test_peers_41_an_environment_has_a_version_of_kubernetes(demo: Path, run: Runner) -> None:
    run.ok("env set gke --kubernetes-version 1.34")
    assert run("validate gke -o json").json["kubernetesVersion"] == "1.34"
    assert run("env set gke --kubernetes-version 1.7").code == 2


def test_peers_42_an_environment_deploys_a_part_of_the_app(demo: Path, run: Runner) -> None:
    run.ok("generate web mod.back --image nginx")
    run.ok("env set gke --target mod")
    assert run.ok("render gke -o name") == "ConfigMap default/back\n"
    assert run.ok("render minikube -o name").count("ConfigMap") == 2


def test_peers_117_live_objects_are_taken_over_on_request_alone(demo: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_apply.py; fields in doubt: tests/unit/deploy/test_adopt.py."""
    metadata = {
        "name": "front",
        "namespace": "default",
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "old"},
    }
    live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"color": "blue"}}
    run.cluster("gke").create(live, manager="helm")
    left = run.ok("apply gke --yes")
    assert "applied by `helm` (Helm release `old`)" in " ".join(left.split())
    front = ObjectRef("v1", "ConfigMap", "default", "front")
    assert existing(run.cluster("gke"), front)["data"]["color"] == "blue"
    run.ok("apply gke --yes --adopt")
    taken = existing(run.cluster("gke"), front)
    assert (taken["data"]["color"], taken["metadata"].get("annotations")) == ("red", None)
