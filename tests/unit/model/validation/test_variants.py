"""Broken objects are faulted and sound ones are not; the API server's word on each is in `tests/cluster`."""

from typing import Any

import pytest

from mlstack.objects.kube_object import KubeObject
from mlstack.validate.formats import Fault
from mlstack.validate.validate import load_schemas, validate_objects
from tests.support.manifests import MANIFESTS
from tests.support.variants import VARIANTS, Variant

SCHEMAS = load_schemas("1.36")


def errors(data: dict[str, Any]) -> list[Fault]:
    found = KubeObject(data=data, component="c")
    return [fault for fault in validate_objects([found], SCHEMAS) if fault.severity == "error"]


@pytest.mark.parametrize("name", sorted(MANIFESTS))
def test_sound_objects_have_no_faults(name: str) -> None:
    assert errors(MANIFESTS[name]) == []


@pytest.mark.parametrize("variant", [one for one in VARIANTS if not one.refused], ids=lambda one: one.id)
def test_odd_objects_have_no_faults(variant: Variant) -> None:
    assert errors(variant.build()) == []


@pytest.mark.parametrize("variant", [one for one in VARIANTS if one.refused], ids=lambda one: one.id)
def test_broken_objects_have_faults(variant: Variant) -> None:
    assert errors(variant.build())


def test_the_set_is_large_enough() -> None:
    assert sum(variant.refused for variant in VARIANTS) >= 200
