"""What keeps an object that is being deleted."""

from __future__ import annotations

from typing import Any

import pytest

from mlstack.deploy.deletion import obstacles


def live(*finalizers: str, **conditions: str) -> dict[str, Any]:
    told = [{"type": name, "status": "True", "message": text} for name, text in conditions.items()]
    return {"metadata": {"finalizers": list(finalizers)}, "status": {"conditions": told}}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({}, ""),
        (live(), ""),
        (live("example.org/hold"), "its finalizers are still there: example.org/hold"),
        (live("foregroundDeletion"), "what it owns is still there"),
        (live("foregroundDeletion", "a/b"), "its finalizers are still there: a/b"),
        (live("kubernetes"), ""),
        (
            live("kubernetes", NamespaceContentRemaining="Some resources\n  are remaining"),
            "Some resources are remaining",
        ),
        (live(Ready="all is well"), ""),
        ({"status": {"conditions": None}, "metadata": {"finalizers": None}}, ""),
    ],
    ids=["none", "nothing", "finalizer", "owned", "both", "own", "namespace", "other", "null"],
)
def test_what_holds_an_object_is_said(found: dict[str, Any], said: str) -> None:
    assert obstacles(found) == said
