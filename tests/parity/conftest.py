"""The app that most rows are tried on: a registry beside it, a component, two environments."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mlstack.operations import app
from tests.support.builders import Tree, kubeconfig, read_tree, write_tree
from tests.support.cli import Runner
from tests.support.registry import generate, small_app

CONTEXTS = ("minikube", "gke")


@cache
def _tree() -> Tree:
    from mlstack.kube.kubeconfig import load

    with TemporaryDirectory() as folder:
        file = write_tree(Path(folder), {"kubeconfig": kubeconfig(*CONTEXTS)}) / "kubeconfig"
        contexts = load(str(file), {})
        file.unlink()
        made = small_app(Path(folder))
        for name in CONTEXTS:
            app.add_environment(made, name, kubeconfig=contexts, context=name, use_preset=False)
        generate(made)
        return read_tree(Path(folder))


@pytest.fixture
def demo(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the app `demo` with component `front` (prototype `web`), environments `minikube` and `gke`.

    It stands beside the folder of its registry `ours`; commands run in it.
    """
    root = write_tree(tmp_path, _tree()) / "demo"
    monkeypatch.chdir(root)
    return root
