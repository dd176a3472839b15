"""What ships with mlstack is whole: index, definitions, names, presets."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from mlstack.app import files
from mlstack.app.components import ComponentRequest
from mlstack.app.params import spelling_table
from mlstack.app.reader import read_preset
from mlstack.names import fits
from mlstack.operations.components import preview_prototype
from tests.support import examples

GPU_COUNTS = {"numGpus", "gpus", "gpusPerReplica", "executorGpus", "trainerGpu"}
FOUR = {"core": "kubeflow-core", "tf-job": "tf-job", "tf-cnn": "tf-cnn", "tf-serving": "tf-serving"}


def test_only_the_four_of_the_launch_post_end_in_their_names() -> None:
    for end, name in FOUR.items():
        names = chain.from_iterable([p.name, *p.aliases] for p in examples.prototypes())
        assert {alias for alias in names if f"-{alias}".endswith(f"-{end}")} <= {name, end}


def test_no_name_leads_to_two_prototypes() -> None:
    names = [name for p in examples.prototypes() for name in (p.name, *p.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alias", "brings", "lacks"),
    [
        ("jupyterhub", "StatefulSet default/tf-hub", "Deployment default/tf-job-operator"),
        ("jupyter", "StatefulSet default/tf-hub", "CustomResourceDefinition tfjobs.kubeflow.org"),
        ("tf-job-operator", "CustomResourceDefinition tfjobs.kubeflow.org", "StatefulSet default/tf-hub"),
        (
            "tf-job-operator",
            "Deployment default/tf-job-operator",
            "CustomResourceDefinition pytorchjobs.kubeflow.org",
        ),
        (
            "pytorch-operator",
            "CustomResourceDefinition pytorchjobs.kubeflow.org",
            "StatefulSet default/tf-hub",
        ),
        (
            "pytorch-operator",
            "Deployment default/tf-job-operator",
            "CustomResourceDefinition tfjobs.kubeflow.org",
        ),
    ],
)
def test_an_old_part_of_the_core_brings_that_part_alone(
    tmp_path: Path, alias: str, brings: str, lacks: str
) -> None:
    app = examples.write_app(tmp_path / "app", {})
    objects = {str(obj.identity) for obj in preview_prototype(app, ComponentRequest(prototype=alias)).objects}
    assert brings in objects
    assert lacks not in objects


@pytest.mark.parametrize("preset", files.presets())
def test_every_value_of_a_preset_reaches_a_prototype(preset: str) -> None:
    declared = {name for p in examples.prototypes() for name in spelling_table(p.params)}
    assert set(read_preset(files.folder("environments") / preset).globals.values) <= declared


def test_every_parameter_has_a_description() -> None:
    missing = [
        f"{p.name}.{n}" for p in examples.prototypes() for n, spec in p.params.items() if not spec.description
    ]
    assert missing == []


def test_every_package_and_prototype_has_a_readme() -> None:
    root = files.folder("prototypes")
    folders = [root / package.name for package in examples.packages()]
    folders += [root / p.package / p.name for p in examples.prototypes()]
    assert [folder for folder in folders if not (folder / "README.md").is_file()] == []


def test_every_package_says_which_versions_of_the_shared_one_go_with_it() -> None:
    shared = next(package for package in examples.packages() if package.name == "common")
    wishes = {p.name: p.requires["common"]["version"] for p in examples.packages() if p != shared}
    assert [name for name, wish in wishes.items() if not wish or not fits(shared.version, wish)] == []


@pytest.mark.parametrize("part", ["When", "Needs", "Renders"])
def test_every_prototype_says_when_to_use_it_what_it_needs_and_what_it_renders(part: str) -> None:
    root, heading = files.folder("prototypes"), re.compile(rf"^(?:\* )?\*\*{part}\b", re.MULTILINE)
    texts = {p.name: (root / p.package / p.name / "README.md") for p in examples.prototypes()}
    assert [name for name, file in texts.items() if not heading.search(file.read_text("utf-8"))] == []


def test_every_readme_says_how_to_get_what_its_prototype_needs() -> None:
    lacking = []
    for p in examples.prototypes():
        file = files.folder("prototypes") / p.package / p.name / "README.md"
        text = " ".join(file.read_text("utf-8").split())
        ways = [(need.brings or need.install, f"prototype describe {p.name}`") for need in p.needs]
        lacking += [f"{p.name}: {way[0]}" for way in ways if not any(words in text for words in way)]
    assert lacking == []


@pytest.mark.parametrize("preset", ["minikube", "gke"])
def test_every_prototype_has_an_example_for_a_laptop_and_a_cloud(preset: str) -> None:
    has = {case.prototype.name for case in examples.cases() if case.example.environment == preset}
    assert [p.name for p in examples.prototypes() if p.name not in has] == []


def test_an_example_on_gke_has_gpus_where_there_can_be_any() -> None:
    """What an example renders to stands in the approved files."""
    approved = Path(__file__).parents[2] / "golden" / "expected" / "prototypes"
    counted = re.compile(r"\bnvidia\.com/gpu: |\bname: nvidia\.com/gpu\b")
    able = {p.name for p in examples.prototypes() if GPU_COUNTS & {*spelling_table(p.params)}}
    has = {
        case.prototype.name
        for case in examples.cases()
        if case.example.environment == "gke" and counted.search((approved / f"{case}.yaml").read_text())
    }
    assert able - has == set()


def test_no_image_is_called_latest() -> None:
    defaults = [str(p.default) for prototype in examples.prototypes() for p in prototype.params.values()]
    assert [default for default in defaults if "latest" in default] == []
