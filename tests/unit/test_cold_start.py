"""A cold start imports no heavy library: they stand inside the functions of their one door."""

from pathlib import Path

import pytest

from tests.support.builders import write_tree
from tests.support.imports import modules, own
from tests.support.registry import small_app

HEAVY = ("kubernetes", "jinja2", "ruamel", "yaml", "jsonschema_rs", "pydantic", "requests", "urllib3", "rich")
COMPONENT = "apiVersion: mlstack.dev/v1\nkind: Component\nprototype: web\nparams: {image: nginx}\n"
ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: gke\n"


def heavy(imported: set[str]) -> list[str]:
    return [name for name in HEAVY if name in imported]


@pytest.mark.parametrize(
    "line", ["--help", "version --help", "completion bash", "apply --help", "env --help"]
)
def test_help_and_completion_scripts_import_nothing_heavy(tmp_path: Path, line: str) -> None:
    assert heavy(modules(tmp_path, *line.split())) == []


def test_the_help_of_the_program_loads_five_modules_of_it(tmp_path: Path) -> None:
    assert own(modules(tmp_path, "--help")) == 5


@pytest.mark.parametrize(
    ("line", "word"), [("mlstack ", 1), ("mlstack apply ", 2), ("mlstack param set ", 3)]
)
def test_completion_answers_without_anything_heavy(tmp_path: Path, line: str, word: int) -> None:
    asked = {"_MLSTACK_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(word)}
    assert heavy(modules(tmp_path, **asked)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "most"),
    [("pkg install ours/tools", 48), ("pkg list", 48), ("generate web front --image=nginx", 47)],
)
def test_packages_of_a_folder_need_few_modules_and_no_library_of_the_web(
    tmp_path: Path, line: str, most: int
) -> None:
    small_app(tmp_path)
    imported = modules(tmp_path / "demo", *line.split())
    assert not {"urllib3", "ssl", "mlstack.http"} & imported
    assert own(imported) == most


def test_version_imports_not_even_the_command_line_library(tmp_path: Path) -> None:
    assert not {*HEAVY, "typer"} & modules(tmp_path, "--version")


@pytest.mark.slow
def test_a_render_imports_what_it_needs_and_one_that_was_printed_before_next_to_nothing(
    tmp_path: Path,
) -> None:
    small_app(tmp_path)
    app = tmp_path / "demo"
    write_tree(app, {"components/front.yaml": COMPONENT, "environments/gke/environment.yaml": ENVIRONMENT})
    first, second = (modules(app, "render", "gke") for _ in range(2))
    assert {"jinja2", "yaml", "mlstack.render.render"} <= first
    third = modules(app, "param", "set", "front", "image", "nginx:2")
    assert (own(first), own(second), own(third)) == (33, 7, 37)
    unused = ("app.chart", "app.components", "render.patches", "programs", "clock", "objects.managed_fields")
    assert not {f"mlstack.{name}" for name in unused} & first
    assert heavy(second) == []
    assert not {"typer", "mlstack.deploy", "mlstack.objects", "dataclasses", "typing"} & second
