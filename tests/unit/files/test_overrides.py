"""Values files speak to all components or to single ones."""

from pathlib import Path

import pytest

from mlstack.app.files import read, read_values
from mlstack.errors import ConfigError, NotFoundError, UsageError, YamlError
from tests.support.builders import write_tree


def test_sections_speak_to_all_and_to_one(tmp_path: Path) -> None:
    write_tree(tmp_path, {"v.yaml": "globals:\n  a: 1\ncomponents:\n  cnn:\n    b: 2\n  web:\n"})
    found = read_values(tmp_path / "v.yaml")
    assert found.globals.values == {"a": 1}
    assert found.globals.skips_undeclared
    assert found.components["cnn"].values == {"b": 2}
    assert not found.components["cnn"].skips_undeclared
    assert found.components["web"].values == {}
    assert str(found.components["cnn"].origins[("b",)]) == f"{tmp_path}/v.yaml:5"


def test_a_flat_map_speaks_to_all(tmp_path: Path) -> None:
    write_tree(tmp_path, {"v.yaml": "a: 1\nlabels: {b: c}\n"})
    found = read_values(tmp_path / "v.yaml")
    assert found.globals.values == {"a": 1, "labels": {"b": "c"}}
    assert str(found.globals.origins[("a",)]) == f"{tmp_path}/v.yaml:1"


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    write_tree(tmp_path, {"v.yaml": "# nothing\n"})
    assert read_values(tmp_path / "v.yaml").globals.values == {}


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("a: [", YamlError),
        ("- a\n", ConfigError),
        ("a: 1\n---\nb: 1\n", ConfigError),
        ("globals: 5\n", ConfigError),
        ("components: {cnn: 5}\n", ConfigError),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, kind: type[ConfigError]) -> None:
    write_tree(tmp_path, {"v.yaml": content})
    with pytest.raises(kind):
        read_values(tmp_path / "v.yaml")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no values file"):
        read([], [tmp_path / "nothing.yaml"])


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the values file"):
        read([], [tmp_path])


def test_options_are_read_in_order(tmp_path: Path) -> None:
    write_tree(tmp_path, {"1.yaml": "a: 1\n", "2.yaml": "a: 2\n"})
    found = read(["a=3"], [tmp_path / "1.yaml", tmp_path / "2.yaml"])
    assert [each.globals.values["a"] for each in found.files] == [1, 2]
    assert found.sets[0].text == "3"
