"""Apps that begin with a stack: rendered and valid at once, with environments that wait for a context."""

from pathlib import Path

import pytest

from mlstack.app import files
from tests.support.cli import Runner

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("stack", files.stacks())
def test_a_stack_is_valid_at_once_and_asks_for_a_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner, stack: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(f"init demo --stack {stack} -o json")
    assert ran.code == 0, ran.err
    monkeypatch.chdir(tmp_path / "demo")
    environments = ran.json["environments"]
    assert environments == ["minikube", "gke"]
    for environment in environments:
        assert "context:" not in Path("environments", environment, "environment.yaml").read_text()
        assert run(f"validate {environment}").code == 0
        for name in ran.json["components"]:
            assert run(f"render {environment} -c {name}").out
    ran = run("diff gke")
    assert "hint: mlstack env set gke --context CONTEXT" in ran.err


def test_a_stack_that_fails_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("init demo --stack trainig").code == 4
    assert run("init demo --stack full --env dev").code == 2
    monkeypatch.setattr(files, "preset", lambda name: None)
    assert run("init demo --stack full").code == 4
    assert not Path("demo").exists()
    Path("demo").mkdir()
    Path("demo/app.yaml").write_text("kind: App\n")
    assert run("init demo --stack full").code == 2
    assert Path("demo/app.yaml").read_text() == "kind: App\n"
