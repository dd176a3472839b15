"""OCI registries without an index: packages are found by the tags of their repositories."""

import shutil
from pathlib import Path

import pytest

from mlstack.app.app import RegistryRef
from mlstack.errors import RegistryError
from mlstack.registries.oci import place_of
from mlstack.registries.registry import Registry, open_registry
from tests.support.builders import read_tree
from tests.support.cli import Runner
from tests.support.oci import FakeRegistry, Reply, real_registry
from tests.support.packages import COMMON, JOBS, as_files
from tests.support.registries import next_jobs


def publish(host: str) -> None:
    """Publish packages, and beside them an artifact of another kind."""
    place = place_of(f"oci://{host}/ml")
    for tree in (COMMON, JOBS, next_jobs()):
        place.publish(as_files(tree))
    place._push("image", "1.0.0", b"x", "application/vnd.mlstack.registry.v1", {})


@pytest.mark.slow
def test_a_path_without_an_index_is_a_registry_of_what_lies_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner
) -> None:
    with real_registry(tmp_path) as host:
        publish(host)
        (index,) = tmp_path.rglob("repositories/ml/mlstack-registry")
        shutil.rmtree(index)
        shutil.rmtree(Path.home() / ".cache")
        monkeypatch.chdir(tmp_path)
        run.ok("init demo --skip-default-registries")
        monkeypatch.chdir(tmp_path / "demo")
        run.ok(f"registry add own oci://{host}/ml")
        offered = run("registry describe own -o json").json["packages"]
        assert [(row["name"], row["versions"]) for row in offered] == [
            ("common", ["0.1.0"]),
            ("jobs", ["0.1.0", "0.10.0"]),
        ]
        assert [row["package"] for row in run("pkg list -o json").json["packages"]] == [
            "own/common",
            "own/jobs",
        ]
        assert "own/jobs" in run("prototype search tf-cnn").out
        run.ok("pkg install own/jobs@^0.1 own/jobs@0.1.0")
        run.ok("pkg verify")
        shutil.rmtree(tmp_path / "demo/vendor")
        run.ok("pkg install --frozen")
        run.ok(f"registry add alone oci://{host}/ml/common")
        run.ok("pkg install alone/common")
        assert run(f"registry add none oci://{host}/ml/image").code == 5
        assert "nothing was published there" in run(f"registry add none oci://{host}/other").err


def opened(address: str, *, fresh: bool = False) -> Registry:
    ref = RegistryRef(name="own", address=address, protocol="oci")
    return open_registry(ref, root=Path("/"), fresh=fresh)


@pytest.mark.slow
def test_one_package_is_had_where_nobody_may_ask_for_more() -> None:
    """Some registries answer with a refusal for what is not there, and list no repositories."""
    with FakeRegistry().running() as fake:
        publish(fake.host)

        def refuse(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
            return None if path.startswith("/v2/ml/jobs/") and "index" not in path else Reply(status=403)

        fake.fault = refuse
        own = opened(f"oci://{fake.host}/ml/jobs")
        assert [entry.version for entry in own.index().packages["jobs"].versions] == ["0.1.0", "0.10.0"]
        assert own.fetch("jobs", "0.1.0") == as_files(JOBS)
        with pytest.raises(RegistryError, match="does not allow that"):
            opened(f"oci://{fake.host}/ml/common").index()


def test_a_version_whose_archive_is_refused_is_left_out_and_told_where_it_is_asked_for() -> None:
    with FakeRegistry().running() as fake:
        place = place_of(f"oci://{fake.host}/ml")
        place._push("jobs", "0.2.0", b"no archive", "application/vnd.mlstack.package.v1", {})
        place.publish(as_files(JOBS))
        del fake.manifests["ml/mlstack-registry", "index"]
        own = opened(f"oci://{fake.host}/ml/jobs")
        assert [entry.version for entry in own.index().packages["jobs"].versions] == ["0.1.0"]
        with pytest.raises(RegistryError, match="its archive cannot be read"):
            own.at("0.2.0").index().package("jobs")


def test_what_has_a_digest_is_had_without_an_index() -> None:
    with FakeRegistry().running() as fake:
        revision = place_of(f"oci://{fake.host}/ml").publish(as_files(JOBS)).manifest_digest
        del fake.manifests["ml/mlstack-registry", "index"]
        assert opened(f"oci://{fake.host}/ml").at(revision).fetch("jobs", "0.1.0") == as_files(JOBS)


@pytest.mark.slow
@pytest.mark.parametrize("status", [401, 404, 405])
def test_packages_of_a_registry_that_lists_nothing_are_had_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner, status: int
) -> None:
    fake = FakeRegistry()
    fake.fault = lambda registry, method, path, headers: (
        Reply(status=status) if path.startswith("/v2/_catalog") else None
    )
    monkeypatch.chdir(tmp_path)
    run.ok("init demo --skip-default-registries")
    monkeypatch.chdir(tmp_path / "demo")
    with fake.running():
        publish(fake.host)
        for key in [key for key in fake.manifests if key[0] == "ml/mlstack-registry"]:
            del fake.manifests[key]
        shutil.rmtree(Path.home() / ".cache")
        note = f"{fake.host} lists neither packages nor repositories: name packages"
        for command in (f"registry add own oci://{fake.host}/ml", "registry describe own", "pkg list"):
            ran = run(command)
            assert (ran.code, note in ran.out + ran.err) == (0, True), (command, ran.out, ran.err)
        assert note in run("prototype search tf-cnn").err
        run.ok("pkg install own/jobs@0.1.0")  # with what it requires
        assert [row["package"] for row in run("pkg list --installed -o json").json["packages"]] == [
            "own/common",
            "own/jobs",
        ]
        assert "0.10.0" in run.ok("pkg outdated")
        assert run("pkg install own/nothing").code == 4
        shutil.rmtree(tmp_path / "demo/vendor")
        run.ok("pkg install --frozen")


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["9.9.9", "nightly", "sha256:" + "0" * 64])
def test_a_tag_or_digest_that_is_not_there_installs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner, reference: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run.ok("init demo --skip-default-registries")
    monkeypatch.chdir(tmp_path / "demo")
    with FakeRegistry().running() as fake:
        publish(fake.host)
        run.ok(f"registry add own oci://{fake.host}/ml")
        before = read_tree(tmp_path / "demo")
        ran = run(f"pkg install own/jobs@{reference}")
        assert (ran.code, read_tree(tmp_path / "demo")) == (4, before)
        assert f"package `jobs` has no version `{reference}`" in ran.err
        assert "known versions: 0.1.0, 0.10.0" in ran.err
        fake.manifests["ml/jobs", "nightly"] = fake.manifests["ml/jobs", "0.1.0"]
        run.ok("pkg install own/jobs@nightly")
        installed = {row["package"]: row["installed"] for row in run("pkg list -o json").json["packages"]}
        assert installed == {"own/jobs": ["0.1.0"], "own/common": ["0.1.0"]}
