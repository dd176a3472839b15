"""Whatever a user removes with null, the rest still renders, or one sentence says what is needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mlstack.errors import ParamError, TemplateRefusedError
from mlstack.render.trial import PrototypeTrial
from tests.support import examples
from tests.support.examples import Case


@pytest.mark.slow
@pytest.mark.parametrize("case", examples.cases(), ids=str)
def test_what_is_removed_leaves_no_hole(case: Case) -> None:
    trial = PrototypeTrial(case.prototype)
    for name in ("", *case.prototype.params):  # nothing at first
        try:
            objects = trial.objects(case.example.params, {name: None} if name else {}, example=case.example)
        except TemplateRefusedError:
            continue
        except ParamError as error:
            assert any(words in str(error) for words in ("required", "must not be set", ", because "))
            continue
        assert list(holes([obj.data for obj in objects])) == []


def holes(value: Any, path: str = "") -> Any:
    """Give the places where a value is missing, or was written as Python's word for none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from holes(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from holes(inner, f"{path}[{index}]")
    elif isinstance(value, str) and path.endswith(".json"):
        yield from holes(json.loads(value), path)
    elif value is None or value == "null" or "=None" in str(value):
        yield path


def test_a_value_with_a_default_need_not_be_given() -> None:
    required = {name for p in examples.prototypes() for name, param in p.params.items() if param.required}
    serving = {"model_path", "modelRepositoryPath", "model", "modelStore", "steps", "imageA", "imageB"}
    data = {"server", "logDir", "selector"}
    files = {"modelPath", "inputFilePatterns", "inputFileFormat", "outputResultPrefix", "outputErrorPrefix"}
    scheduling = {"minMember", "quotas", "clusterQueue", "objective", "parameters"}
    pipelines = {"steps", "schedule", "applicationResource", "serveConfig"}
    assert required == {"image", "entrypoint", *serving, *files, *data, *scheduling, *pipelines}
