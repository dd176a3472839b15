"""The app that most rows are tried on: a registry beside it, a component, two environments."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.builders import Tree, read_tree, write_tree
from tests.support.cli import Runner
from tests.support.registry import generate, small_app


@cache
def _tree() -> Tree:
    environments = {
        f"environments/{name}/environment.yaml": f"""\
            apiVersion: mlstack.dev/v1
            kind: Environment
            context: {name}
            """
        for name in ("minikube", "gke")
    }
    with TemporaryDirectory() as folder:
        app = small_app(Path(folder))
        write_tree(app.root, environments)
        generate(app)
        return read_tree(Path(folder))


@pytest.fixture
def demo(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the app `demo` with component `front` (prototype `web`), environments `minikube` and `gke`.

    It stands beside the folder of its registry `ours`; commands run in it.
    """
    root = write_tree(tmp_path, _tree()) / "demo"
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Path:
    """An app with the component `web` and the environment `gke`."""
    root = small_app(tmp_path).root
    monkeypatch.chdir(root)
    for line in ("generate web web --image nginx", "env add gke --no-preset --namespace ml"):
        assert run(line).code == 0
    return root
