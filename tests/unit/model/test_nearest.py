"""The nearest known name: what an error suggests."""

import pytest

from mlstack.names import nearest

KNOWN = ["num_gpus", "num_workers", "batch_size", "image"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("num_gpu", "num_gpus"),
        ("num-gpus", "num_gpus"),
        ("NumWorkers", "num_workers"),
        ("batchsize", "batch_size"),
        ("imgae", "image"),
        ("gpus", "num_gpus"),
    ],
)
def test_nearest_finds_what_was_meant(typed: str, meant: str) -> None:
    assert nearest(typed, KNOWN) == meant


@pytest.mark.parametrize("typed", ["replicas", "", "x"])
def test_nothing_near_is_none(typed: str) -> None:
    assert nearest(typed, KNOWN) is None


def test_nearest_of_nothing_known_is_none() -> None:
    assert nearest("image", []) is None


def test_order_of_known_names_does_not_matter() -> None:
    assert nearest("ab", ["abd", "abc"]) == nearest("ab", ["abc", "abd"])
