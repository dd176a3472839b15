"""Tasks of Kubeflow's guides, in at most the commands that the guide needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.render import render
from tests.support import upstream
from tests.support.cli import Runner
from tests.support.guides import GUIDES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", GUIDES)
def test_a_task_takes_no_more_commands_than_its_guide(
    run: Runner, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = GUIDES[task]
    assert len(guide.ours) <= len(guide.theirs)
    guide.prepare(run, tmp_path, monkeypatch)
    run.ok(f"validate {guide.environment}")
    objects = render.load(AppDir(Path()), guide.environment).objects
    for definition in upstream.definitions_of(objects):
        run.cluster(guide.environment).apply(definition)
    run.ok(f"{guide.ours[-1]} --no-wait")
    assert {*guide.kinds.split()} <= {obj.kind for obj in objects}
    assert run(f"diff {guide.environment}").code == 0
