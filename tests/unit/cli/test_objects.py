"""Rendered objects on stdout and in a folder."""

import json
from pathlib import Path

import pytest

from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

KINDS = ("configmap", "secret")
INDEX = "mlstack.gke.index"


@pytest.fixture
def run(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add gke --no-preset")
    run.ok("generate web shop.front --image nginx --token x")
    return run


def test_folder_gets_one_file_an_object(run: Runner, tmp_path: Path) -> None:
    stream = run.ok("render gke")
    run.ok("render", "gke", "--out", str(tmp_path / "out"))
    files = read_tree(tmp_path / "out")
    assert files.pop(INDEX)
    assert list(files) == [f"shop.front/{kind}_default_front.yaml" for kind in KINDS]
    assert b"---\n".join(files.values()).decode() == stream


def test_files_of_what_is_gone_go_from_a_folder(run: Runner, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write_tree(out, {"own/a_b.yaml": "a: 1\n", "odd/c_d.json": "[", "old/e_f.yaml": "- {}\n"})
    run.play(f"env add other --no-preset\ngenerate web back --image nginx\nrender other -c back --out {out}")
    others = read_tree(out)
    run.play(f"generate web more --image nginx\ncomponent rm back\nrender gke --out {out}\ncomponent rm more")
    assert read_tree(out).items() > others.items()
    (out / "shop.front/secret_default_front.yaml").write_text("a: 1\n")
    (out / "shop.front/configmap_default_front.yaml").unlink()
    before, checked = read_tree(out), run(f"render gke --out {out} --check")
    words = [line.split()[0] for line in checked.out.splitlines()]
    assert (words, checked.code) == (["changed", "stale", "missing", "changed"], 1)
    assert read_tree(out) == before
    assert "removed" not in run(f"render gke -c shop.front --out {out}").err
    assert f"objects written to {out}: 2; removed what is gone: {out}" in run(f"render gke --out {out}").err
    own = {INDEX, *(f"shop.front/{kind}_default_front.yaml" for kind in KINDS)}
    assert read_tree(out).keys() == {*others, *own}
    run.play(
        f"render gke --check | 2\nrender gke -o json --out {out} --check | 1\nrender gke --out {out} --check"
    )


def test_every_object_has_a_file_of_its_own_on_every_system(run: Runner, tmp_path: Path) -> None:
    names = ["a:b", "a-b", "A-b", "a_b", "a-B", "x" * 253, "x" * 252 + "y", "ü"]
    kind = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole"
    roles = [f"{kind}\nmetadata: {{name: {json.dumps(name)}}}\n" for name in names]
    write_tree(Path(), {"components/roles.yaml": "---\n".join(roles)})
    run.ok("render", "gke", "-c", "roles", "--out", str(tmp_path / "out"))
    files = read_tree(tmp_path / "out")
    del files[INDEX]
    assert len({name.casefold() for name in files}) == len(roles)
    assert "roles/clusterrole.rbac.authorization.k8s.io_a%3Ab.yaml" in files
    assert "roles/clusterrole.rbac.authorization.k8s.io_a-b.yaml" in files


def test_secrets_in_a_folder_are_for_their_owner_alone(run: Runner, tmp_path: Path) -> None:
    for _ in range(2):
        run.ok("render", "gke", "--out", str(tmp_path / "out"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out").rglob("*.yaml")}
        assert modes == {"configmap_default_front.yaml": 0o644, "secret_default_front.yaml": 0o600}
        (tmp_path / "out/shop.front/secret_default_front.yaml").chmod(0o644)


def test_folder_can_hold_json_and_no_names(run: Runner, tmp_path: Path) -> None:
    assert run("render", "gke", "--out", str(tmp_path / "out"), "-o", "name").code == 2
    assert not (tmp_path / "out").exists()
    run.ok("render", "gke", "--out", str(tmp_path / "out"), "-o", "json")
    assert all(name.endswith(".json") for name in read_tree(tmp_path / "out") if name != INDEX)


def test_data_is_on_stdout_and_notes_on_stderr(run: Runner) -> None:
    run.ok("generate web old --image nginx --size big")
    ran = run("render gke -c old")
    assert "deprecated" in ran.err
    assert "deprecated" not in ran.out


def test_current_environment_counts_when_none_is_named(run: Runner) -> None:
    run.ok("env add other --no-preset")
    expected = run.ok("render gke")
    run.play("render | 2\nrender gke gke | 2\nenv current --set gke")
    assert run.ok("render") == expected


@pytest.mark.parametrize(
    ("line", "rendered"),
    [
        ("param set --as-string shop.front image null", "image: 'null'"),
        ("""param set shop.front image '"null"'""", "image: 'null'"),
        ("""param set --env gke shop.front image "'null'" """, "image: 'null'"),
        ("component list", "image: nginx"),
    ],
)
def test_the_text_null_is_a_text_where_it_is_meant(run: Runner, line: str, rendered: str) -> None:
    run.ok(line)
    quotes = str.maketrans('"', "'")
    assert rendered in run.ok("render gke").translate(quotes)
    assert "image: 'null'" in run.ok("render", "gke", "--set", "image='null'").translate(quotes)
    assert run("render gke --set image=null").code == 3  # it is required
    assert "image: 'null'" in run.ok("prototype", "preview", "web", "--image", '"null"').translate(quotes)
