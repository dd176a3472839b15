"""The shipped packages pass the trial that mlstack offers to everybody who writes one."""

import pytest

from mlstack.app import files
from mlstack.operations import authors

pytestmark = pytest.mark.slow

PACKAGES = sorted(file.parent.name for file in files.folder("prototypes").glob("*/package.yaml"))


@pytest.mark.parametrize("name", PACKAGES)
def test_a_shipped_package_passes_its_trial(name: str) -> None:
    result = authors.test_package(files.folder("prototypes") / name)
    assert [fault for fault in result.faults if fault.severity == "error"] == []
    assert all(row.combinations and row.hostile_texts for row in result.prototypes)


def test_the_shipped_registry_has_nothing_to_lint() -> None:
    assert authors.lint_registry(files.folder("registry")).faults == ()
