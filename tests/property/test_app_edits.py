"""What is set in an app and taken back again leaves every file as it was, whatever was set in between.

A file that holds nothing but its kind is one that `set` made, and goes.
"""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlstack.app.app_dir import AppDir
from mlstack.app.params import ParamScope
from mlstack.operations import params
from tests.support.builders import Tree, read_tree, write_tree
from tests.support.registry import PASSED, generate, small_app

HEAD = "apiVersion: mlstack.dev/v1\nkind: {}\n"
PARAMS = HEAD.format("EnvironmentParams")
GKE = "environments/gke/environment.yaml"
FILES = [  # of an environment's parameters, as people write them
    None,
    f"{PARAMS}# all\nglobals:   {{}}  # none yet\ncomponents: {{}}\n",
    f"{PARAMS}globals: {{debug: true}}\ncomponents: {{front: {{size: a}}}} # flow\n# end\n",
    f"{PARAMS}components:\n    front:   # deep\n        size: 'x'  # one\n\n\nglobals:\n    debug: true\n",
    f"---\n{PARAMS}components:\n  front:\n    args:\n    - a # first\n    # second\n    - b\n",
    f"{PARAMS}components:\n  front:\n    tags: {{a: b,\n      c: d}}\n".replace("\n", "\r\n"),
    f"{PARAMS}globals:\n  size: |\n    text\n    more",
]
SETTINGS = [
    f"{HEAD.format('Environment')}context: gke\n",
    f"{HEAD.format('Environment')}context: gke\nlabels: {{}}   # none\n# end",
    f"{HEAD.format('Environment')}labels:\n    # why\n    kept: 'yes' # always\ncontext: gke\n",
]
ENV, OWN = {"environment": "gke"}, {"environment": "gke", "personal": True}
SCOPES: list[dict[str, Any]] = [
    {"component": "front"},
    {"component": "front", **ENV},
    {"component": "front", **OWN},
    ENV,
    OWN,
    {},
]
PATHS: list[tuple[str | int, ...]] = [
    ("replicas",),
    ("color",),
    ("args",),
    ("tags", "a.b/c"),
    ("tags", "x"),
    ("tags", "y", "z"),
    ("size",),
]
VALUES = st.one_of(
    st.integers(0, 9),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=6),
    st.booleans(),
    st.lists(st.sampled_from(["a", "- b", "#", "null", "1"]), max_size=3),
    st.dictionaries(st.sampled_from(["k", "l.m", "1"]), st.sampled_from(["v", "", ": "]), max_size=2),
)
PARAM = st.tuples(st.sampled_from(SCOPES), st.sampled_from(PATHS), VALUES)
LABEL = st.tuples(
    st.sampled_from(["labels.team", "labels.x\\.y/z", "podAnnotations.a", "annotations.b"]),
    st.sampled_from(["v", "1", "true", "null", "0x1", ""]),
)
EDITS = st.lists(st.one_of(PARAM, LABEL), min_size=1, max_size=6, unique_by=lambda edit: repr(edit[:-1]))


@cache
def _tree() -> Tree:
    with tempfile.TemporaryDirectory() as folder:
        app = small_app(Path(folder))
        generate(app)
        return read_tree(app.root)


def _level(edit: tuple[Any, ...]) -> tuple[ParamScope, tuple[str | int, ...]]:
    return ParamScope(**edit[0]), edit[1]


@pytest.mark.slow
@given(edits=EDITS, text=st.sampled_from(FILES), settings=st.sampled_from(SETTINGS))
def test_what_is_set_and_unset_leaves_no_trace(
    edits: list[tuple[Any, ...]], text: str | None, settings: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = write_tree(Path(folder), {**_tree(), "environments/gke/environment.yaml": settings.encode()})
        if text is not None:
            write_tree(root, {"environments/gke/params.yaml": text.encode()})

        def app() -> AppDir:
            return AppDir(root, store=PASSED)

        before, undone = read_tree(root), []
        for edit in edits:
            if len(edit) == 2:
                app().edit(GKE, "Environment", dict([edit]))
                undone.append(edit)
            elif not _is_there(app(), edit):
                app().set_param(*_level(edit), edit[2])
                undone.append(edit)
        for edit in reversed(undone):
            if len(edit) == 2:
                app().edit(GKE, "Environment", {edit[0]: None})
            else:
                assert app().unset_param(*_level(edit)) is not None
        assert read_tree(root) == before


def _is_there(app: AppDir, edit: tuple[Any, ...]) -> bool:
    """Tell whether the level says something at the path, or something else than a map around it."""
    scope, path = _level(edit)
    around = [app.own_param(scope, path[:length]) for length in range(1, len(path) + 1)]
    return around[-1] is not None or any(
        value is not None and not isinstance(value, dict) for value in around
    )


# --- items of lists, which `set` copies from below ---

LISTS = st.lists(st.sampled_from("abcd"), max_size=4)
ITEMS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from("wxyz")), min_size=1, max_size=4)


@pytest.mark.slow
@given(lower=LISTS, items=ITEMS, personal=st.booleans(), text=st.sampled_from(FILES[:4]))
def test_items_that_are_set_and_unset_leave_no_trace(
    lower: list[str], items: list[tuple[int, str]], personal: bool, text: str | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = write_tree(
            Path(folder), {**_tree(), "environments/gke/environment.yaml": SETTINGS[0].encode()}
        )
        if text is not None:
            write_tree(root, {"environments/gke/params.yaml": text.encode()})
        scope = ParamScope(component="front", environment="gke", personal=personal)
        if lower:
            params.set_param(AppDir(root), ParamScope(component="front"), "args", json.dumps(lower))
        before, undone, length = read_tree(root), [], len(lower)
        for index, value in items:
            if index <= length and index not in undone:
                params.set_param(AppDir(root), scope, f"args[{index}]", value)
                undone.append(index)
                length = max(length, index + 1)
        for index in sorted(undone, reverse=True):
            params.unset_param(AppDir(root), scope, f"args[{index}]")
        assert read_tree(root) == before
