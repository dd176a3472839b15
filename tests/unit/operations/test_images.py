"""Every image of an environment, and what says so."""

from pathlib import Path

import pytest

from mlstack.registries.images import image_name
from mlstack.yaml.write import to_yaml
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.deploying import deployment
from tests.support.registry import small_app

PROTOTYPE = """\
apiVersion: mlstack.dev/v1
kind: Prototype
name: server
summary: A server and what it starts
parameters:
  type: object
  properties:
    image: {type: string, x-image: true, default: "server:1"}
    gpuImage: {type: string, x-image: true, default: "server:1-gpu"}
    helper: {type: string, x-image: true, default: "helper:1"}
    host: {type: string, default: quay.example.org/team}
    offered: {type: array, items: {type: string, x-image: true}, default: ["note:1", "note:2"]}
    token: {type: string, x-secret: true, default: "token:1"}
    steps: {type: array, items: {type: object}, default: []}
"""
TEMPLATE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ name }}}
spec:
  selector: {matchLabels: {app: {{ name }}, image: label}}
  template:
    metadata: {labels: {app: {{ name }}, image: label}, annotations: {image: note}}
    spec:
      nodeSelector: {image: node}
      initContainers:
        - {name: fixed, image: "busybox:1"}
{% for step in params.steps %}
        - {name: {{ step.name }}, image: {{ step.image }}}
{% endfor %}
      containers:
        - {name: main, image: {{ params.image }}, args: [{{ "--helper=" ~ params.helper }}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ name }}}
data:
  offered: {{ (params.host ~ "/" ~ (params.offered | join("," ~ params.host ~ "/"))) }}
  note: "another-server:1, server:1-gpu-x"
"""


@pytest.fixture
def shop(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Runner:
    """An app with a component `shop` of a prototype with images of every sort, and two environments."""
    small_app(tmp_path, installed=False)
    folder = tmp_path / "registry/tools/server"
    write_tree(folder, {"prototype.yaml": PROTOTYPE, "templates/all.yaml.j2": TEMPLATE})
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("pkg install ours/tools")
    run.ok("generate server shop")
    run.ok("env add minikube")
    run.ok("env add gke")
    return run


def origins(run: Runner, line: str) -> dict[str, list[tuple[str, str, str]]]:
    """Give for each image what sets it: parameter, layer and place."""
    return {
        row["image"]: [(origin["parameter"], origin["layer"], origin["where"]) for origin in row["origins"]]
        for row in run(f"{line} -o json").json["images"]
    }


def test_images_of_fields_arguments_and_settings_name_their_parameter(shop: Runner) -> None:
    shop.ok("param set --env gke shop image registry.example.org/server:2")
    shop.ok("param set shop steps '[{name: one, image: \"step:1\"}]'")
    images = origins(shop, "images gke")
    default = "prototype ours/tools/server"
    assert [*images] == sorted(images)
    assert images["registry.example.org/server:2"] == [
        ("image", "environment", "environments/gke/params.yaml:10")
    ]
    assert images["step:1"] == [("steps[0].image", "component", "components/shop.yaml:7")]
    assert images["helper:1"] == [("helper", "default", default)]
    assert images["quay.example.org/team/note:2"] == [("offered[1]", "default", default)]
    ((parameter, layer, where),) = images["busybox:1"]
    assert (parameter, layer) == ("", "template")
    assert where.endswith("server/templates/all.yaml.j2:11")
    assert {"label", "note", "node", "server:1", "server:1-gpu", "another-server:1", "token:1"}.isdisjoint(
        images
    )


def test_an_image_that_somebody_set_is_listed_though_nothing_uses_it_yet(shop: Runner) -> None:
    assert "server:9-gpu" not in origins(shop, "images minikube")
    shop.ok("param set shop gpuImage server:9-gpu")
    rows = {row["image"]: row for row in shop("images minikube -o json").json["images"]}
    assert rows["server:9-gpu"]["usedBy"] == []
    assert rows["server:9-gpu"]["origins"][0]["where"] == "components/shop.yaml:5"
    assert "used by nothing as it is now" in shop.ok("images minikube")


def test_a_patch_and_a_manifest_are_origins_too(shop: Runner) -> None:
    files = {
        "components/plain.yaml": to_yaml(deployment("plain", image="plain:1")),
        "environments/gke/patches/shop.yaml": to_yaml(deployment("shop", image="patched:1")),
    }
    write_tree(Path.cwd(), files)
    images = origins(shop, "images gke")
    assert images["plain:1"][0][:2] == ("", "manifest")
    assert images["plain:1"][0][2].startswith("components/plain.yaml:")
    assert images["patched:1"][0][1] == "patch"


def test_images_of_several_environments_are_told_one_after_the_other(shop: Runner) -> None:
    shop.ok("param set --env gke shop image server:2")
    lists = shop("images --all -o json").json["items"]
    assert [(row["environment"], row["images"][-1]["image"]) for row in lists] == [
        ("gke", "server:2"),
        ("minikube", "server:1"),
    ]
    assert shop.ok("images 'mini*' gke -o name").split().count("busybox:1") == 2
    assert all(len(line) <= 80 for line in shop.ok("images gke").splitlines())


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("nginx:1", ("docker.io", "library/nginx", "1", "")),
        ("nginx", ("docker.io", "library/nginx", "", "")),
        ("team/server:2.0", ("docker.io", "team/server", "2.0", "")),
        ("localhost:5000/server:1", ("localhost:5000", "server", "1", "")),
        ("a.example.org:80/b/c:1@sha256:0a", ("a.example.org:80", "b/c", "1", "sha256:0a")),
    ],
)
def test_a_number_after_a_colon_is_a_port_only_before_a_path(image: str, parts: tuple[str, ...]) -> None:
    name = image_name(image)
    assert (name.host, name.name, name.tag, name.digest) == parts
