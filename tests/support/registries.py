"""What every registry protocol must do, as a suite that runs over each of them."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mlstack.app.app import PackageRef, RegistryRef
from mlstack.app.package import FetchedPackage, digest
from mlstack.app.versions import LockedRegistry
from mlstack.errors import MlstackError, NotFoundError, RegistryError
from mlstack.registries.registry import Registry, open_address
from mlstack.registries.resolver import AppCatalog, Requirements, select
from tests.support.builders import Tree, write_tree
from tests.support.packages import COMMON, JOBS, as_files

Open = Callable[[Tree], Registry]

INDEX = """\
apiVersion: mlstack.dev/v1
kind: Registry
name: own
summary: Our packages
packages:
- name: jobs
  summary: Training jobs
  versions:
  - {{version: 0.1.0, path: packages/jobs, digest: "{jobs}"}}
  - {{version: 0.10.0, path: packages/jobs-next, digest: "{next}"}}
"""


def next_jobs() -> dict[str, str | bytes]:
    """Give the package `jobs` in a newer version."""
    return {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("0.1.0", "0.10.0")}


def indexed(**digests: str) -> dict[str, str | bytes]:
    """Give the files of a registry with an index and two versions of `jobs`."""
    right = {"jobs": digest(as_files(JOBS)), "next": digest(as_files(next_jobs()))}
    files: dict[str, str | bytes] = {"registry.yaml": INDEX.format(**{**right, **digests})}
    files |= {f"packages/jobs/{path}": text for path, text in JOBS.items()}
    return files | {f"packages/jobs-next/{path}": text for path, text in next_jobs().items()}


def plain() -> dict[str, str | bytes]:
    """Give the files of a registry without an index: package folders alone."""
    files: dict[str, str | bytes] = {f"common/{path}": text for path, text in COMMON.items()}
    return files | {f"jobs/{path}": text for path, text in JOBS.items()} | {"docs/README.md": "x"}


def opened(address: str, *, protocol: str = "oci", root: Path = Path("/"), fresh: bool = False) -> Registry:
    """Open a registry that the app calls `own`."""
    return open_address(RegistryRef(name="own", address=address, protocol=protocol), root=root, fresh=fresh)


class RegistrySuite:
    """Inherit, and give a fixture `opened` that makes a registry of files and opens it."""

    def test_the_index_lists_packages_and_versions(self, opened: Open) -> None:
        index = opened(indexed()).index
        assert (index.name, index.summary, list(index.packages)) == ("own", "Our packages", ["jobs"])
        assert [release.version for release in index.packages["jobs"].versions] == ["0.1.0", "0.10.0"]

    def test_the_newest_version_is_fetched_unless_one_is_named(self, opened: Open) -> None:
        registry = opened(indexed())
        assert registry.fetch("jobs") == as_files(next_jobs())
        assert registry.fetch("jobs", "0.1.0") == as_files(JOBS)

    def test_without_an_index_every_package_folder_counts(self, opened: Open) -> None:
        registry = opened(plain())
        assert list(registry.index.packages) == ["common", "jobs"]
        assert registry.fetch("common") == as_files(COMMON)

    def test_a_digest_that_differs_is_an_error(self, opened: Open) -> None:
        registry = opened(indexed(jobs="sha256:" + "0" * 64))
        with pytest.raises(RegistryError, match=r"`jobs@0\.1\.0` is not what the registry's index says"):
            registry.fetch("jobs", "0.1.0")
        assert registry.fetch("jobs", "0.10.0")

    @pytest.mark.parametrize(("package", "version"), [("jobz", ""), ("jobs", "9.9.9")])
    def test_what_is_not_there_is_not_found(self, opened: Open, package: str, version: str) -> None:
        with pytest.raises(NotFoundError):
            opened(indexed()).fetch(package, version)

    def test_a_folder_that_is_missing_is_an_error(self, opened: Open) -> None:
        files = {path: text for path, text in indexed().items() if not path.startswith("packages/jobs/")}
        with pytest.raises(RegistryError, match=r"the folder of package `jobs@0\.1\.0` is missing"):
            opened(files).fetch("jobs", "0.1.0")

    def test_a_path_out_of_the_registry_is_refused(self, opened: Open) -> None:
        files = indexed()
        files["registry.yaml"] = str(files["registry.yaml"]).replace("packages/jobs,", "../../../../../etc,")
        with pytest.raises(RegistryError, match="leads out of the"):
            opened(files).fetch("jobs", "0.1.0")

    def test_neither_index_nor_package_is_an_error(self, opened: Open) -> None:
        with pytest.raises(RegistryError, match="no registry at"):
            assert opened({"README.md": "x"}).index

    @pytest.mark.parametrize("index", ["a: [", "kind: App", "apiVersion: mlstack.dev/v1\nkind: Registry\n"])
    def test_a_broken_index_is_an_error(self, opened: Open, index: str) -> None:
        with pytest.raises(RegistryError, match="the registry cannot be read"):
            assert opened({"registry.yaml": index}).index

    def test_a_link_out_of_the_package_is_refused(self, opened: Open, tmp_path: Path) -> None:
        write_tree(tmp_path, {"secret": "s"})
        registry = opened({**indexed(), "packages/jobs/link": f"LINK:{tmp_path}/secret"})
        with pytest.raises(MlstackError, match="link"):
            registry.fetch("jobs", "0.1.0")


def write_registry(root: Path, files: Tree) -> Path:
    """Write a registry's files; content `LINK:target` becomes a symbolic link."""
    links = {path: str(text)[5:] for path, text in files.items() if str(text).startswith("LINK:")}
    write_tree(root, {path: text for path, text in files.items() if path not in links})
    for path, target in links.items():
        (root / path).symlink_to(target)
    return root


# --- git repositories ---


def need_git() -> None:
    """Skip a test where git is not installed."""
    if shutil.which("git") is None:
        pytest.skip("git is not on PATH")


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder and give what it prints."""
    need_git()
    author = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"]
    command = ["git", *author, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path, files: Tree, *, below: str = "") -> str:
    """Make a repository with one commit and give the commit."""
    write_registry(folder / below, files)
    git(folder, "init", "--quiet")
    return commit(folder)


def commit(folder: Path) -> str:
    """Commit all files and give the commit."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=x")
    return git(folder, "rev-parse", "HEAD")


def fetch_all(
    refs: Sequence[RegistryRef], wanted: PackageRef, *, root: Path
) -> tuple[list[FetchedPackage], LockedRegistry]:
    """Fetch a package, first, and all that it requires."""
    catalog = AppCatalog(refs, (), root=root)
    exact = catalog.exact(wanted)
    choices = select(Requirements(app=(exact,)), catalog, preferred={})
    fetched = [catalog.fetch(choice.package, choice.version) for choice in choices]
    fetched.sort(key=lambda package: package.locked.name != wanted.name)
    return fetched, catalog.locked_registries((), {wanted.registry})[0]
