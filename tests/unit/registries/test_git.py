"""A registry may be a folder of a git repository, at a branch, tag or commit."""

import shutil
import subprocess
from pathlib import Path

import pytest

from mlstack.app.app import PackageRef, RegistryRef, Retired
from mlstack.errors import NotFoundError, RegistryError
from mlstack.registries import registry
from mlstack.registries.directory import build_index
from mlstack.registries.git import parse_address
from mlstack.registries.registry import Registry
from tests.support.builders import Tree
from tests.support.packages import JOBS, as_files
from tests.support.registries import Open, RegistrySuite, indexed, next_jobs, plain, write_registry


def need_git() -> None:
    """Skip a test where git is not installed."""
    if shutil.which("git") is None:
        pytest.skip("git is not on PATH")


def git(folder: Path, *arguments: str) -> str:
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
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=x")
    return git(folder, "rev-parse", "HEAD")


def opened_at(address: str, tmp_path: Path) -> Registry:
    return registry.open_registry(RegistryRef(name="own", address=address, protocol="git"), root=tmp_path)


class TestGit(RegistrySuite):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Open:
        def build(files: Tree) -> Registry:
            repository(tmp_path / "repo", files, below="a/registry")
            return opened_at(f"file://{tmp_path}/repo#main:a/registry", tmp_path)

        return build


def test_the_commit_is_told(tmp_path: Path) -> None:
    head = repository(tmp_path / "repo", plain())
    assert opened_at(f"file://{tmp_path}/repo", tmp_path).index().revision == head


@pytest.fixture
def history(tmp_path: Path) -> tuple[Path, str]:
    """Make a repository: `jobs` 0.1.0 tagged `v1`, 0.10.0 on `main`, 0.1.0 on the branch `feature/x`."""
    repo = tmp_path / "repo"
    first = repository(repo, {f"reg/jobs/{path}": text for path, text in JOBS.items()})
    git(repo, "tag", "v1")
    git(repo, "branch", "feature/x")
    write_registry(repo, {f"reg/jobs/{path}": text for path, text in next_jobs().items()})
    commit(repo)
    return repo, first


@pytest.mark.parametrize(
    ("revision", "version"),
    [("main", "0.10.0"), ("v1", "0.1.0"), ("feature/x", "0.1.0"), ("COMMIT", "0.1.0")],
)
def test_branch_tag_and_commit(
    history: tuple[Path, str], tmp_path: Path, revision: str, version: str
) -> None:
    repo, first = history
    address = f"file://{repo}#{revision.replace('COMMIT', first)}:reg"
    assert opened_at(address, tmp_path).index().packages["jobs"].newest.version == version


def test_a_short_commit_is_found_even_where_the_server_gives_out_no_single_ones(
    history: tuple[Path, str], tmp_path: Path
) -> None:
    repo, first = history
    index = opened_at(f"file://{repo}#{first[:10]}:reg", tmp_path).index()
    assert index.revision == first


@pytest.mark.parametrize("revision", ["v1", "feature/x", "COMMIT"])
def test_a_registry_may_be_asked_for_another_revision(
    history: tuple[Path, str], tmp_path: Path, revision: str
) -> None:
    repo, first = history
    registry = opened_at(f"file://{repo}#main:reg", tmp_path).at(revision.replace("COMMIT", first))
    assert registry.fetch("jobs") == as_files(JOBS)
    assert registry.index().revision == first


def test_fetching_a_requirement_at_a_revision_locks_that_commit(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    first = repository(repo, plain())
    git(repo, "tag", "v1")
    write_registry(repo, {f"jobs/{path}": text for path, text in next_jobs().items()})
    second = commit(repo)
    refs = [RegistryRef(name="own", address=f"file://{repo}", protocol="git")]
    for version, expected, revision in (
        ("v1", "0.1.0", first),
        ("", "0.10.0", second),
        ("0.10.0", "0.10.0", second),
    ):
        wanted = PackageRef(registry="own", name="jobs", version=version)
        fetched, locked = registry.fetch_all(refs, wanted, root=tmp_path)
        assert [(each.locked.name, each.locked.version) for each in fetched] == [
            ("jobs", expected),
            ("common", "0.1.0"),
        ]
        assert locked.revision == revision


def test_retired_names_are_locked_unless_the_registry_lies_on_this_machine(tmp_path: Path) -> None:
    retired = "retired:\n- {names: [old-job], reason: nobody runs it}\npackages:\n"
    repo = write_registry(tmp_path / "repo", plain())
    repository(repo, {"registry.yaml": build_index(repo).replace("packages:\n", retired)})
    refs = [
        RegistryRef(name="far", address=f"file://{repo}", protocol="git"),
        RegistryRef(name="near", address=str(repo), protocol="directory"),
    ]
    wanted = [PackageRef(registry=ref.name, name="jobs") for ref in refs]
    far, near = (registry.fetch_all(refs, each, root=tmp_path)[1] for each in wanted)
    assert far.retired == (Retired(names=("old-job",), reason="nobody runs it"),)
    assert near.retired == ()


def test_a_requirement_of_neither_version_nor_revision_is_not_found(tmp_path: Path) -> None:
    repository(tmp_path / "repo", plain())
    refs = [RegistryRef(name="own", address=f"file://{tmp_path}/repo", protocol="git")]
    with pytest.raises(NotFoundError, match=r"has no version `9\.9`"):
        registry.fetch_all(refs, PackageRef(registry="own", name="jobs", version="9.9"), root=tmp_path)


def test_a_requirement_of_an_unknown_registry_says_how_to_add_it(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        registry.fetch_all([], PackageRef(registry="own", name="jobs"), root=tmp_path)
    assert caught.value.hint == "mlstack registry add own ADDRESS"


def test_a_missing_revision_is_told(tmp_path: Path) -> None:
    repository(tmp_path / "repo", plain())
    with pytest.raises(RegistryError, match="has no branch, tag or commit `nothing`"):
        opened_at(f"file://{tmp_path}/repo#nothing", tmp_path).index()


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    repository(tmp_path / "repo", plain())
    with pytest.raises(RegistryError, match="has no folder `x/y` at `main`"):
        opened_at(f"file://{tmp_path}/repo#main:x/y", tmp_path).index()


def test_a_missing_repository_is_told(tmp_path: Path) -> None:
    need_git()
    with pytest.raises(RegistryError, match="cannot fetch `file:///nowhere/at/all`") as caught:
        opened_at("file:///nowhere/at/all", tmp_path).index()
    assert "git ls-remote" in str(caught.value.hint)


def test_without_git_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RegistryError, match="the program `git` is needed and is not installed") as caught:
        opened_at("file:///x", tmp_path).index()
    assert "install git" in str(caught.value.hint)


def test_history_is_not_transferred_and_nothing_is_left_behind(
    history: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gc
    import tempfile

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    registry = opened_at(f"file://{history[0]}#main:reg", tmp_path)
    registry.index()
    (store,) = scratch.iterdir()
    assert git(store, "rev-list", "--count", "FETCH_HEAD") == "1"
    del registry
    gc.collect()
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("address", "url", "first", "last"),
    [
        (
            "github.com/google/kubeflow/tree/master/kubeflow",
            "https://github.com/google/kubeflow.git",
            ("master", "kubeflow"),
            ("master/kubeflow", ""),
        ),
        (
            "https://github.com/o/r/tree/v1.0",
            "https://github.com/o/r.git",
            ("v1.0", ""),
            ("v1.0", ""),
        ),
        (
            "https://gitlab.com/group/sub/repo/-/tree/feature/x/packages",
            "https://gitlab.com/group/sub/repo.git",
            ("feature", "x/packages"),
            ("feature/x/packages", ""),
        ),
        ("github.com/o/r", "https://github.com/o/r.git", ("HEAD", ""), ("HEAD", "")),
        ("https://example.org/r.git#v1", "https://example.org/r.git", ("v1", ""), ("v1", "")),
        ("git@example.org:o/r.git#main:a/b", "git@example.org:o/r.git", ("main", "a/b"), ("main", "a/b")),
        ("ssh://git@example.org:22/r", "ssh://git@example.org:22/r", ("HEAD", ""), ("HEAD", "")),
    ],
)
def test_addresses_are_taken_apart(
    address: str, url: str, first: tuple[str, str], last: tuple[str, str]
) -> None:
    parsed = parse_address(address)
    assert (parsed.url, parsed.revisions[0], parsed.revisions[-1]) == (url, first, last)


@pytest.mark.parametrize(
    "address",
    ["ext::sh -c touch% x", "-oProxyCommand=x", "https://h/r#--upload-pack=x", "fd::17", "--help", ""],
)
def test_addresses_that_would_run_something_are_refused(address: str) -> None:
    with pytest.raises(RegistryError, match="is no git address"):
        parse_address(address)


def test_a_branch_with_slashes_is_found_in_a_tree_address(
    history: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, first = history
    home_config = f'[url "file://{repo}"]\n\tinsteadOf = https://github.com/o/r.git\n'
    (Path.home() / ".gitconfig").write_text(home_config)
    index = opened_at("github.com/o/r/tree/feature/x/reg", tmp_path).index()
    assert index.revision == first


def test_an_index_with_a_stale_digest_never_gives_files(tmp_path: Path) -> None:
    repository(tmp_path / "repo", indexed(next="sha256:" + "1" * 64))
    refs = [RegistryRef(name="own", address=f"file://{tmp_path}/repo", protocol="git")]
    with pytest.raises(RegistryError, match="is not what the registry's index says"):
        registry.fetch_all(refs, PackageRef(registry="own", name="jobs"), root=tmp_path)
