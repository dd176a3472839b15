"""Every prototype of Kubeflow 0.1 to 0.5 with each of its parameters: what became of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from mlstack.app.app_dir import AppDir
from mlstack.app.components import ComponentRequest
from mlstack.errors import MlstackError, NotFoundError
from mlstack.operations import app, components, packages

pytestmark = pytest.mark.slow

TABLE: Mapping[str, Mapping[str, list[str | None]]] = yaml.safe_load(
    (Path(__file__).parent / "kubeflow_prototypes.yaml").read_text()
)
# What a required parameter is given here; any other gets `it`.
SAMPLES = {
    **dict.fromkeys(("image", "imageA", "imageB"), "registry.example.com/model:1"),
    **dict.fromkeys(("modelPath", "logDir", "outputResultPrefix", "outputErrorPrefix"), "gs://bucket/it"),
    **dict.fromkeys(("modelRepositoryPath", "inputFilePatterns"), "gs://bucket/it"),
    **{"applicationResource": "local:///opt/it.jar", "batchSize": "8", "inputFileFormat": "json"},
}
# Beside what was required then: what is required now, and why.
REQUIRED_NOW = {
    "entrypoint": "python train.py",  # EDL's images are gone, and what they ran with them
    "image": "registry.example.com/model:1",  # images of Container Registry are gone
    "model_path": "gs://bucket/it",  # the bucket of Kubeflow's examples is gone
    "logDir": "gs://bucket/it",  # it was `logs`, a folder that no pod has
    "inputFileFormat": "json",  # 0.3 guessed it
    "objective": "accuracy",  # a StudyJob had its own
    "parameters": "[{name: lr, type: double, min: 0.1, max: 0.2}]",
}
TOGETHER = {"spark-job": {"mainClass": "org.example.It"}}  # what `type: Scala` does not run without
UNFIT = {
    ("logDir", "logs"),
    ("gcpCredentialSecretName", "Secret"),
}  # `Secret` was the first word of a sentence


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> AppDir:
    """An app with every package of the shipped registry."""
    folder = tmp_path_factory.mktemp("whole") / "demo"
    app.init(folder, "demo")
    place = AppDir(folder)
    names = [row.package for row in packages.list_packages(place, installed_only=False).packages]
    packages.install_packages(place, names)
    return AppDir(folder)


@pytest.mark.parametrize("row", TABLE)
def test_c7_an_old_prototype_takes_each_of_its_parameters_or_says_why_it_is_gone(
    whole: AppDir, row: str
) -> None:
    name = row.partition("/")[2]
    try:
        description = packages.describe_prototype(whole, name)
    except NotFoundError as error:
        assert f"`{name}` is " in error.message  # retired or planned, and why
        assert any(prototype.retired for prototype in packages.search_prototypes(whole, name).prototypes)
        return
    required = {param.name for param in description.parameters if param.required and param.default is None}
    texts = {name: text for name, text in REQUIRED_NOW.items() if name in required}
    texts |= TOGETHER.get(name, {})
    olds = {param: SAMPLES.get(param, "it") for param, values in TABLE[row].items() if None in values}
    spellings = {alias: param.name for param in description.parameters for alias in param.aliases}
    texts = {name: text for name, text in texts.items() if name not in map(spellings.get, olds)} | olds
    refused = [*refusals(whole, name, texts)]
    for param, values in TABLE[row].items():
        for value in values:
            is_unset = value is None or (value == "null" and param in texts)
            if not is_unset and (param, value) not in UNFIT:
                others = {name: text for name, text in texts.items() if name != spellings.get(param)}
                refused += refusals(whole, name, {**others, param: value})
    assert refused == []


def refusals(whole: AppDir, name: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Say why a component cannot be previewed as `ks generate` made it."""
    try:
        components.preview_prototype(whole, ComponentRequest(prototype=name, name="it", texts=texts))
    except MlstackError as error:
        yield f"{dict(texts)}: {error.message}"
