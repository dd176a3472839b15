"""What the shipped prototypes tell people who render them, what they refuse, and what their parameters reach.

The cases are in `tests/support/data/prototypes.yaml`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.app.params import at
from mlstack.errors import MlstackError
from mlstack.render import render
from mlstack.render.trial import PrototypeTrial
from tests.support import examples

ROWS = yaml.safe_load((Path(examples.__file__).parent / "data" / "prototypes.yaml").read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize(("prototype", "params", "text"), ROWS["told"])
def test_a_doubtful_choice_is_said_and_an_ordinary_one_is_not(
    tmp_path: Path, prototype: str, params: dict[str, Any], text: str | None
) -> None:
    notes = examples.render_one(tmp_path / "app", f"kubeflow/{prototype}", params).notes
    assert [note.startswith("it: ") and str(text) in note for note in notes] == [True] * (text is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("prototype", "params", "message"), ROWS["refused"])
def test_values_that_do_not_go_together_are_refused(
    tmp_path: Path, prototype: str, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(MlstackError) as refused:
        examples.render_one(tmp_path / "app", f"kubeflow/{prototype}", params)
    assert refused.value.exit_code == 3
    assert message in str(refused.value), str(refused.value)


def test_a_component_whose_name_is_no_objects_name_is_refused(tmp_path: Path) -> None:
    app = examples.write_app(tmp_path / "app", {"Cnn": ("kubeflow/tf-job/tf-cnn", {})})
    with pytest.raises(MlstackError, match="`Cnn` is no name for objects"):
        render.load(app, examples.PLAIN)


@pytest.mark.parametrize(("name", "params", "kind", "path", "value"), ROWS["reached"], ids=str)
def test_a_parameter_reaches_its_place(
    name: str, params: dict[str, Any], kind: str, path: list[str | int], value: Any
) -> None:
    trial = PrototypeTrial(examples.prototype(name.rpartition("/")[2]))
    values = [at(obj.data, path) for obj in trial.objects(params) if obj.kind == kind]
    assert values[0] == value
