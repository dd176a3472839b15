"""The program of tf-batch-predict, as it runs in its container, beside a stand-in for TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mlstack.app import files

PROGRAM = files.folder("prototypes") / "serving/tf-batch-predict/files/predict.py"
TENSORFLOW = """
import glob as _glob, os
from types import SimpleNamespace as Names
import numpy as np

constant = lambda value, dtype: Names(numpy=lambda: np.array(value, dtype))
_twice = lambda x: {"y": Names(numpy=lambda: 2 * x.numpy())}
class _Model:
    structured_input_signature = ((), {"x": np.float32(0)})
    __call__ = lambda self, x: _twice(x)
saved_model = Names(load=lambda path: Names(signatures={"serving_default": _Model()}))
io = Names(gfile=Names(GFile=open, glob=_glob.glob, makedirs=lambda path: os.makedirs(path, exist_ok=True)))
errors = Names(OpError=OSError)
"""


def predict(folder: Path, kind: str, text: str) -> tuple[int, list[float], list[str]]:
    """Run it with what one file holds; give its exit code, the predictions, and the errors that it wrote."""
    (folder / "tensorflow.py").write_text(TENSORFLOW)
    (folder / "in").write_text(text)
    flags = {"model-path": "m", "input": "in", "result-prefix": "out/r", "error-prefix": "out/e"}
    words = [f"--{key}={value}" for key, value in {**flags, "input-format": kind, "batch-size": 2}.items()]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    ran = subprocess.run(
        [sys.executable, PROGRAM, *words], cwd=folder, env=environment, capture_output=True, check=False
    )
    results, errors = folder / "out/r-00000-of-00001", folder / "out/e-00000-of-00001"
    lines = results.read_text().splitlines(), errors.read_text().splitlines() if errors.exists() else []
    return ran.returncode, [json.loads(line)["y"] for line in lines[0]], lines[1]


@pytest.mark.parametrize(
    ("kind", "text"), [("json", '1\n{"x": 2}\n'), ("json", "1\nno number\n\n"), ("csv", "1\nx\n")]
)
def test_a_line_that_cannot_be_read_costs_its_batch_alone(tmp_path: Path, kind: str, text: str) -> None:
    code, predictions, errors = predict(tmp_path, kind, f"{text}3\n4\n")
    assert (code, predictions) == (0, [[6.0], [8.0]] if kind == "csv" else [6.0, 8.0])
    assert json.loads(errors[0])["examples"] == 2
