"""A table knows what was registered, and the nearest name to what was not."""

import pytest

from mlstack.errors import NotFoundError
from mlstack.table import Table


def table() -> Table[str]:
    rows: Table[str] = Table("format")
    rows.register("yaml", "yml")("Y")
    rows.register("json")("J")
    return rows


def test_a_thing_is_found_under_each_of_its_names() -> None:
    assert [table().find(name) for name in ("yaml", "yml", "json")] == ["Y", "Y", "J"]


def test_rows_are_listed_by_name() -> None:
    assert table().names() == ("json", "yaml", "yml")
    assert next(iter(table())) == ("json", "J")
    assert len(table()) == 3
    assert "json" in table()


def test_an_unknown_name_tells_the_nearest() -> None:
    with pytest.raises(NotFoundError, match="no format `yamll`; known: `json`") as caught:
        table().find("yamll")
    assert caught.value.near == "yaml"
    assert table().get("yamll") is None


def test_a_name_taken_twice_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="two entries claim the format `json`"):
        table().register("json")("K")
