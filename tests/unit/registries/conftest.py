"""What the tests of registries share: a registry that misbehaves when it is told to, and no waiting."""

from collections.abc import Iterator

import pytest

from mlstack.web import Web
from tests.support.oci import FakeRegistry


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let no test wait: the pauses that would have been made."""
    waited: list[float] = []
    original = Web.__init__

    def patched(self: Web, **options: object) -> None:
        original(self, sleep=waited.append, clock=lambda: sum(waited))

    monkeypatch.setattr(Web, "__init__", patched)
    return waited
