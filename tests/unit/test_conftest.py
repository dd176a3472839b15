"""The shared fixtures keep the developer's machine out of the tests."""

import os
from collections.abc import Callable
from pathlib import Path

from tests.support.builders import Tree, read_tree


def test_home_is_empty_and_settings_are_gone() -> None:
    assert list(Path.home().iterdir()) == []
    assert "KUBECONFIG" not in os.environ
    assert not [name for name in os.environ if name.startswith("MLSTACK_")]


def test_app_builds_a_directory_from_a_dict(app: Callable[[Tree], Path]) -> None:
    root = app({"components/web.yaml": "a: 1\n"})
    assert set(read_tree(root)) == {"app.yaml", "components/web.yaml"}
