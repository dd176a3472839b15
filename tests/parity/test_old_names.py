"""Old names of parameters: each counts where it is given, and is told with the new one."""

from pathlib import Path

import pytest

from tests.support.builders import read_tree
from tests.support.cli import Runner

PARAMS = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\n"
CALLED = "`num_replicas` is called `replicas` now"


@pytest.mark.parametrize(
    ("line", "file", "text"),
    [
        ("render gke --set web.num_replicas=5", "", ""),
        ("render gke --set num_replicas=5", "", ""),
        ("render gke --values values.yaml", "values.yaml", "components: {web: {num_replicas: 5}}\n"),
        ("render gke", "components/web.yaml", "  num_replicas: 5\n"),
        ("render gke", "environments/gke/params.yaml", f"{PARAMS}components: {{web: {{num_replicas: 5}}}}\n"),
    ],
)
def test_an_old_name_counts_wherever_it_is_given_and_is_told_once(
    app: Path, run: Runner, line: str, file: str, text: str
) -> None:
    if file:
        place = app / file
        place.write_text((place.read_text() if file.startswith("components") else "") + text)
    ran = run(line)
    assert (ran.code, 'replicas: "5"' in ran.out, ran.err.count(CALLED)) == (0, True, 1), ran.err
    where = file or line.partition("--set ")[2].partition("=")[0]
    assert where in ran.err


def test_old_names_are_set_explained_and_unset(app: Path, run: Runner) -> None:
    before = read_tree(app)
    assert CALLED in run("param set web num_replicas 4").err
    assert "replicas: 4" in (app / "components/web.yaml").read_text().replace("num_replicas", "")
    assert CALLED in run("param explain web num_replicas").out
    assert CALLED in run("param unset web num_replicas").err
    assert read_tree(app) == before
    assert CALLED in run("generate web back --image nginx --num_replicas 2").err
    assert "  replicas: 2\n" in (app / "components/back.yaml").read_text()


def test_both_names_at_once_are_refused_with_the_place(app: Path, run: Runner) -> None:
    component = app / "components/web.yaml"
    component.write_text(component.read_text() + "  num_replicas: 5\n  replicas: 6\n")
    ran = run("render gke")
    assert (ran.code, "are spellings of one parameter" in ran.err) == (3, True)
    assert "components/web.yaml:7" in ran.err
    twice = run("generate web back --image nginx --num_replicas 2 --replicas 3")
    assert (twice.code, "--replicas alone" in twice.err) == (2, True)
    assert not (app / "components/back.yaml").exists()
