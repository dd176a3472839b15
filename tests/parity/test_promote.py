"""`promote`: what one environment sets comes to another one's files, after a look and a question."""

from pathlib import Path

import pytest

from tests.support.builders import read_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

PARAMS = """\
apiVersion: mlstack.dev/v1
kind: EnvironmentParams
globals: {}   # of all
components:
  web:
    # how many
    replicas: 2   # enough
    color: red
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Path:
    """An app whose environment `gke` is ahead of `minikube`."""
    root = small_app(tmp_path).root
    monkeypatch.chdir(root)
    for line in (
        "generate web web --image nginx",
        "generate web other --image nginx",
        "env add gke --no-preset --context gke -n ml",
        "env add minikube --no-preset -n ml",
        "param set --env gke web replicas 5",
        "param set --env gke web image nginx:2",
        "param set --env gke other image nginx:3",
        "param set --env gke web token hidden-secret",
        "param set --env gke color green",
    ):
        assert run(line).code == 0, line
    (root / "environments/minikube/params.yaml").write_text(PARAMS)
    return root


def test_a_dry_run_shows_and_writes_nothing(app: Path, run: Runner) -> None:
    run.play("param set --env gke web replicas 2 --override\nparam set --env gke web debug true --override")
    before = read_tree(app)
    ran = run("promote gke minikube --dry-run -o json")
    assert ran.code == 0, ran.err
    rows = [
        (row["kind"], row["component"], row["name"], row["before"], row["after"])
        for row in ran.json["changes"]
    ]
    assert rows == [
        ("image", "other", "image", "nginx", "nginx:3"),
        ("param", "web", "replicas", 2, 5),
        ("image", "web", "image", "nginx", "nginx:2"),
    ]
    assert ran.json["files"] == ["environments/minikube/params.yaml"]
    assert "hidden-secret" not in ran.out + run("promote gke minikube --dry-run").out
    assert "is secret and stays" in run("promote gke minikube --dry-run").err
    assert read_tree(app) == before


def test_it_is_refused_until_the_source_is_ready_and_confirmed(app: Path, run: Runner) -> None:
    before = read_tree(app)
    refused = run("promote gke minikube --yes")
    assert (refused.code, "`gke` is not ready" in refused.err) == (7, True)
    assert read_tree(app) == before
    assert run("apply gke").code == 0
    run("param set --env gke web replicas 6")
    untried = run("promote gke minikube --yes")
    assert (untried.code, "has not been applied as its files are" in untried.err) == (7, True)
    run("param set --env gke web replicas 5")
    before = read_tree(app)
    unasked = run("promote gke minikube")
    assert (unasked.code, "--dry-run, then --yes" in unasked.err) == (2, True)
    run.answer = False
    assert run("promote gke minikube").code == 1
    assert run.asked == ["Change environments/minikube/params.yaml?"]
    assert read_tree(app) == before
    run.answer = True
    assert run("promote gke minikube").code == 0
    assert (app / "environments/minikube/params.yaml").read_text() != PARAMS


def test_values_change_and_every_other_byte_stays(app: Path, run: Runner) -> None:
    done = run("promote gke minikube --yes --allow-not-ready")
    assert done.code == 0, done.err
    text = (app / "environments/minikube/params.yaml").read_text()
    expected = PARAMS.replace("replicas: 2 ", "replicas: 5 ")
    expected = expected.replace("    color: red\n", "    color: red\n    image: nginx:2\n")
    assert text.replace("  other:\n    image: nginx:3\n", "") == expected
    again = run("promote gke minikube --yes --allow-not-ready")
    assert again.out == "nothing to promote: `minikube` has what `gke` sets\n"


def test_keys_of_a_map_are_promoted_one_by_one(app: Path, run: Runner) -> None:
    run.play("param set web tags.old x\nparam set --env minikube web tags.own mine")
    run.play("param set --env gke web tags.team ml\nparam set --env gke web tags.old null")
    ran = run("promote gke minikube --yes --allow-not-ready --only params -o name")
    assert ran.out.split() == ["web.replicas", "web.tags.team", "web.tags.old"]
    text = (app / "environments/minikube/params.yaml").read_text()
    assert text.endswith("    tags:\n      own: mine\n      team: ml\n      old: null\n")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("--only images", {"other.image", "web.image"}),
        ("--only params", {"web.replicas"}),
        ("-c web --only images", {"web.image"}),
        ("-c web", {"web.image", "web.replicas"}),
        ("--only images,params --only versions", {"other.image", "web.image", "web.replicas"}),
    ],
)
def test_parts_of_it(app: Path, run: Runner, words: str, names: set[str]) -> None:
    assert set(run(f"promote gke minikube --dry-run {words} -o name").out.split()) == names


def test_versions_of_packages_move_with_it(app: Path, run: Runner) -> None:
    file = app / "environments/gke/environment.yaml"
    file.write_text(file.read_text() + "packages:\n- ours/tools@1.2.0\n")
    assert run("promote gke minikube --only versions -o name --dry-run").out == "ours/tools\n"
    assert run("promote gke minikube --only versions --yes --allow-not-ready").code == 0
    assert "packages:\n- ours/tools@1.2.0\n" in (app / "environments/minikube/environment.yaml").read_text()
    assert (app / "environments/minikube/params.yaml").read_text() == PARAMS


@pytest.mark.parametrize(
    ("words", "code"),
    [("gke gke", 2), ("gke nowhere", 4), ("nowhere gke", 4), ("gke minikube --only all", 2), ("gke", 2)],
)
def test_what_cannot_be_promoted(app: Path, run: Runner, words: str, code: int) -> None:
    assert run(f"promote {words}").code == code
