"""Prototypes that are not installed yet, and packages of one's own: rows C and R of the parity list."""

from pathlib import Path

import pytest

from tests.support.cli import Runner
from tests.support.registry import small_app


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Runner:
    """A fresh app that knows the shipped registry, with nothing installed."""
    monkeypatch.chdir(tmp_path)
    run("init demo")
    monkeypatch.chdir(tmp_path / "demo")
    return run


@pytest.mark.parametrize("text", ["tf-cnn", "io.ksonnet.pkg.tf-cnn", "CNN"])
def test_c2_search_finds_what_is_not_installed_and_says_how_to_get_it(bare: Runner, text: str) -> None:
    ran = bare(f"prototype search {text} -o json")
    (row,) = ran.json["prototypes"]
    assert (row["name"], row["fullName"], row["installed"]) == ("tf-cnn", "kubeflow/tf-job/tf-cnn", False)
    assert "mlstack pkg install kubeflow/tf-job" in bare(f"prototype search {text}").err


@pytest.mark.parametrize(
    "line",
    [
        "generate tf-cnn cnn",
        "generate io.ksonnet.pkg.tf-cnn cnn",
        "prototype describe tf-cnn",
        "prototype list tf-job/tf-cnn",
        "prototype preview cnn",
    ],
)
def test_c2_a_prototype_that_is_not_installed_names_its_package(bare: Runner, line: str) -> None:
    ran = bare(line)
    assert ran.code == 4
    assert "is in package `kubeflow/tf-job`, which is not installed" in ran.err
    assert "hint: mlstack pkg install kubeflow/tf-job" in ran.err


def test_c1_a_name_as_ksonnet_wrote_it_is_listed(bare: Runner) -> None:
    bare("pkg install kubeflow/tf-job")
    assert bare("prototype list io.ksonnet.pkg.tf-job").out == bare("prototype list tf-job").out


def test_r11_a_registry_without_index_offers_every_version(
    tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_app(tmp_path, installed=False)
    tools = tmp_path / "registry" / "tools"
    older = tmp_path / "registry" / "tools-old"
    older.mkdir()
    (older / "package.yaml").write_text((tools / "package.yaml").read_text().replace("1.2.0", "1.1.0"))
    monkeypatch.chdir(tmp_path / "demo")
    offers = {row["name"]: row for row in run("registry describe ours -o json").json["packages"]}
    assert (offers["tools"]["version"], offers["tools"]["versions"]) == ("1.2.0", ["1.1.0", "1.2.0"])
