"""The READMEs of the shipped prototypes are true: their commands run in an app with their package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlstack.app import files
from mlstack.app.app_dir import AppDir
from mlstack.render import render
from tests.support import examples, upstream
from tests.support.cli import Runner

pytestmark = pytest.mark.slow

ROOT = files.folder("prototypes")
READMES = [f"{prototype.package}/{prototype.name}" for prototype in examples.prototypes()] + [
    package.name for package in examples.packages()
]
TRAINING = ("pkg install kubeflow/training", "generate pytorch-job train")
BEFORE = {name: TRAINING for name in ("data/data-volume", "data/nfs-volume", "scheduling/local-queue")}
"""What a reader has done before: READMEs of what jobs use speak of a job `train`."""


def commands(name: str) -> Iterator[str]:
    """Give the lines with our commands, without remarks."""
    text = (ROOT / name / "README.md").read_text("utf-8").replace("\\\n", " ")
    for block in re.findall(r"^```(?:sh)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("mlstack "):
                yield re.sub(r" +# .*", "", line.removeprefix("mlstack "))


@pytest.mark.parametrize("name", [name for name in READMES if [*commands(name)]])
def test_the_commands_of_a_readme_run_as_printed(
    name: str, run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run.ok("init demo --env minikube --context minikube")
    monkeypatch.chdir(tmp_path / "demo")
    Path("login.yaml").write_text("data: {username: admin, password: made-up}\n")
    for line in ("env add gke --context gke", f"pkg install kubeflow/{name.partition('/')[0]}"):
        run.ok(line)
    for line in (*BEFORE.get(name, ()), *commands(name)):
        verb, *words = line.split()
        if verb in ("apply", "status"):
            for definition in upstream.definitions_of(render.load(AppDir(Path()), words[0]).objects):
                run.cluster(words[0]).apply(definition)
        ran = run(f"{line} --no-wait" if verb == "apply" else line)
        assert ran.code in ((0, 1) if verb == "status" else (0,)), f"{line}: {ran.err}"
