"""Prototypes that are not installed, of registries of every protocol: found, and led to."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mlstack.operations import app as apps
from mlstack.registries.oci import place_of
from tests.support.cli import Runner
from tests.support.oci import FakeRegistry
from tests.support.packages import COMMON, JOBS, as_files
from tests.support.registries import plain, repository, write_registry

pytestmark = pytest.mark.slow


@pytest.fixture(params=["folder", "git", "oci"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a registry that holds the package `jobs`."""
    if request.param == "oci":
        with FakeRegistry().running() as running:
            place = place_of(f"oci://{running.host}/ml")
            place.publish(as_files(COMMON))
            place.publish(as_files(JOBS))
            yield f"oci://{running.host}/ml"
    elif request.param == "git":
        repository(tmp_path / "repo", plain())
        yield f"file://{tmp_path}/repo"
    else:
        yield str(write_registry(tmp_path / "repo", plain()))


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Runner:
    """An app without any registry."""
    apps.init(tmp_path / "demo", "demo", default_registry=False)
    monkeypatch.chdir(tmp_path / "demo")
    return run


def test_c2_search_and_generate_lead_to_the_package_of_any_registry(bare: Runner, address: str) -> None:
    assert bare("registry", "add", "own", address).code == 0
    ran = bare("prototype search tf-cnn -o json")
    (row,) = ran.json["prototypes"]
    assert (row["fullName"], row["installed"]) == ("own/jobs/tf-cnn", False)
    for line in (
        "generate tf-cnn cnn",
        "prototype describe tf-cnn",
        "prototype list tf-cnn",
        "generate cnn it",
    ):
        ran = bare(line)
        assert (ran.code, ran.err.splitlines()[-1]) == (4, "hint: mlstack pkg install own/jobs"), ran.err
    ran = bare("generate tf-cnm cnn")
    assert "did you mean `tf-cnn` of `own/jobs`?" in ran.err
    assert bare("pkg install own/jobs").code == 0
    assert bare("prototype describe tf-cnn").code == 0


def test_c2_a_registry_that_does_not_answer_is_said_in_one_line(bare: Runner, tmp_path: Path) -> None:
    repository(tmp_path / "repo", plain())
    bare("registry", "add", "own", f"file://{tmp_path}/repo")
    assert bare("registry", "set", "own", "--uri", f"file://{tmp_path}/nowhere").code == 5
    manifest = Path("app.yaml")
    manifest.write_text(manifest.read_text().replace(f"{tmp_path}/repo", f"{tmp_path}/nowhere"))
    ran = bare("generate tf-cnn cnn")
    assert ran.code == 4
    first, second, *rest = ran.err.splitlines()
    assert first == "error: no installed package has a prototype `tf-cnn`"
    assert second.startswith("  registry `own` was left out: ")
    assert [line[:5] for line in rest] == ["hint:"]


@pytest.mark.parametrize("name", ["kubeflow/data@0.1.0/nfs-volume", "kubeflow/training@9.9.9/pytorch-job"])
def test_a_version_that_is_not_installed_leads_to_its_own_install(bare: Runner, name: str) -> None:
    bare.ok("registry add kubeflow bundled")
    bare.ok("pkg install kubeflow/training")
    ran = bare(f"generate {name} jobs")
    owner = name.rpartition("/")[0]
    assert ran.code == 4
    assert f"package `{owner}` is not installed" in ran.err
    assert f"hint: mlstack pkg install {owner}\n" in ran.err
