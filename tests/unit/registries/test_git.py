"""A registry may be a folder of a git repository, at a branch, tag or commit."""

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.app.app import PackageRef, RegistryRef, Retired
from mlstack.errors import NotFoundError, RegistryError
from mlstack.registries.git import parse_address
from mlstack.registries.publish import build_index
from mlstack.registries.registry import Registry
from tests.support.builders import Tree
from tests.support.packages import JOBS, as_files
from tests.support.registries import (
    Open,
    RegistrySuite,
    commit,
    fetch_all,
    git,
    indexed,
    next_jobs,
    opened,
    plain,
    repository,
    write_registry,
)


def opened_at(address: str, tmp_path: Path) -> Registry:
    return opened(address, protocol="git", root=tmp_path)


class TestGit(RegistrySuite):
    @pytest.fixture
    def opened(self, tmp_path: Path) -> Open:
        def build(files: Tree) -> Registry:
            repository(tmp_path / "repo", files, below="a/registry")
            return opened_at(f"file://{tmp_path}/repo#main:a/registry", tmp_path)

        return build


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


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["main", "v1", "feature/x", "COMMIT", "SHORT"])
def test_branch_tag_and_commit(history: tuple[Path, str], tmp_path: Path, revision: str) -> None:
    repo, first = history
    name = revision.replace("COMMIT", first).replace("SHORT", first[:10])  # which git gives out to nobody
    registry = opened_at(f"file://{repo}#{name}:reg", tmp_path)
    for same in (registry, opened_at(f"file://{repo}#main:reg", tmp_path).at(name)):
        assert same.fetch("jobs") == as_files(next_jobs() if revision == "main" else JOBS)
        assert (same.index.revision == first) == (revision != "main")


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
        fetched, _ = fetch_all(refs, wanted, root=tmp_path)
        assert [(package.locked.name, package.locked.version) for package in fetched] == [
            ("jobs", expected),
            ("common", "0.1.0"),
        ]
        assert {package.locked.revision for package in fetched} == {revision}
    with pytest.raises(NotFoundError, match=r"has no version `9\.9`"):
        fetch_all(refs, PackageRef(registry="own", name="jobs", version="9.9"), root=tmp_path)
    with pytest.raises(NotFoundError) as caught:
        fetch_all([], PackageRef(registry="own", name="jobs"), root=tmp_path)
    assert caught.value.hint == "mlstack registry add own ADDRESS"


def test_retired_names_are_locked_unless_the_registry_lies_on_this_machine(tmp_path: Path) -> None:
    retired = "retired:\n- {names: [old-job], reason: nobody runs it}\npackages:\n"
    repo = write_registry(tmp_path / "repo", plain())
    repository(repo, {"registry.yaml": build_index(repo).text.replace("packages:\n", retired)})
    refs = [
        RegistryRef(name="far", address=f"file://{repo}", protocol="git"),
        RegistryRef(name="near", address=str(repo), protocol="directory"),
    ]
    wanted = [PackageRef(registry=ref.name, name="jobs") for ref in refs]
    far, near = (fetch_all(refs, ref, root=tmp_path)[1] for ref in wanted)
    assert far.retired == (Retired(names=("old-job",), reason="nobody runs it"),)
    assert near.retired == ()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("file://REPO#nothing", "has no branch, tag or commit `nothing`"),
        ("file://REPO#main:x/y", "has no folder `x/y` at `main`"),
        ("file:///nowhere/at/all", "cannot fetch `file:///nowhere/at/all`"),
    ],
    ids=["revision", "folder", "repository"],
)
def test_what_is_missing_is_told(tmp_path: Path, address: str, message: str) -> None:
    repository(tmp_path / "repo", plain())
    with pytest.raises(RegistryError, match=message) as caught:
        assert opened_at(address.replace("REPO", f"{tmp_path}/repo"), tmp_path).index
    assert ("git ls-remote" in str(caught.value.hint)) == ("nowhere" in address)


def test_without_git_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RegistryError, match="the program `git` is needed and is not installed") as caught:
        assert opened_at("file:///x", tmp_path).index
    assert "install git" in str(caught.value.hint)


def test_a_hook_of_another_repository_may_ask(
    history: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DIR", "WORK_TREE", "OBJECT_DIRECTORY", "QUARANTINE_PATH", "NAMESPACE"):
        monkeypatch.setenv(f"GIT_{name}", str(tmp_path / "mine"))
    assert opened_at(f"file://{history[0]}#main:reg", tmp_path).index.packages
    assert not (tmp_path / "mine").exists()


def test_history_is_not_transferred_and_nothing_is_left_behind(
    history: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    head = opened_at(f"file://{history[0]}#main:reg", tmp_path).index.revision
    (store,) = (Path.home() / ".cache/mlstack/git").iterdir()
    assert git(store, "rev-list", "--count", head) == "1"
    assert list(scratch.iterdir()) == []


def test_without_a_cache_a_store_goes_with_its_registry(
    history: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    registry = opened_at(f"file://{history[0]}#main:reg", tmp_path)
    assert registry.index
    assert len(list(scratch.iterdir())) == 1
    del registry
    gc.collect()
    assert list(scratch.iterdir()) == []


# --- the cache ---


@pytest.fixture
def fetches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count what was asked of repositories since the last time, by git's own account."""
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE", str(trace))

    def count() -> int:
        lines = trace.read_text().splitlines() if trace.exists() else []
        trace.unlink(missing_ok=True)
        return sum("trace: built-in: git fetch" in line for line in lines)

    return count


def moved_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ten minutes pass."""
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 601)


def fresh(address: str, tmp_path: Path) -> Registry:
    return opened(address, protocol="git", root=tmp_path, fresh=True)


def test_r6_a_registry_is_one_transfer_and_then_none(
    history: tuple[Path, str], tmp_path: Path, fetches: Callable[[], int]
) -> None:
    address = f"file://{history[0]}#main:reg"
    first = opened_at(address, tmp_path)
    assert first.fetch("jobs") == as_files(next_jobs())
    assert fetches() == 1
    again = opened_at(address, tmp_path)
    assert (again.fetch("jobs"), again.index.revision) == (as_files(next_jobs()), first.index.revision)
    assert fetches() == 0


def test_a_branch_is_asked_again_after_ten_minutes_and_when_it_is_wished(
    history: tuple[Path, str], tmp_path: Path, fetches: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, address = history[0], f"file://{history[0]}#main:reg"
    before = opened_at(address, tmp_path).index.revision
    write_registry(repo, {"reg/README.md": "moved"})
    head = commit(repo)
    assert opened_at(address, tmp_path).index.revision == before
    assert fresh(address, tmp_path).index.revision == head
    assert fetches() == 2
    assert opened_at(address, tmp_path).index.revision == head
    moved_clock(monkeypatch)
    assert opened_at(address, tmp_path).index.revision == head
    assert fetches() == 1


def test_a_commit_that_was_locked_is_had_without_the_repository(
    history: tuple[Path, str], tmp_path: Path, fetches: Callable[[], int]
) -> None:
    repo, first = history
    own = opened_at(f"file://{repo}#main:reg", tmp_path)
    assert own.at(first).fetch("jobs") == as_files(JOBS)
    repo.rename(tmp_path / "gone")
    fetches()
    assert own.at(first).fetch("jobs", "0.1.0") == as_files(JOBS)
    assert fetches() == 0


def test_r7_a_repository_that_is_away_is_the_one_that_was_asked_last_and_says_so(
    history: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo, address = history[0], f"file://{history[0]}#main:reg"
    assert opened_at(address, tmp_path).index.note == ""
    repo.rename(tmp_path / "gone")
    moved_clock(monkeypatch)
    index = opened_at(address, tmp_path).index
    assert "cannot fetch" in index.note
    assert "what it said on 20" in index.note
    assert "\n" not in index.note
    assert "jobs" in index.packages
    with pytest.raises(RegistryError, match="cannot fetch"):
        assert fresh(address, tmp_path).index
    with pytest.raises(RegistryError, match="cannot fetch"):
        assert opened_at(f"file://{repo}#other:reg", tmp_path).index


def test_a_branch_that_is_gone_is_not_taken_from_the_cache(
    history: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = history[0]
    address = f"file://{repo}#feature/x:reg"
    assert opened_at(address, tmp_path).index
    git(repo, "branch", "-D", "feature/x")
    moved_clock(monkeypatch)
    with pytest.raises(RegistryError, match="has no branch, tag or commit"):
        assert opened_at(address, tmp_path).index


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["HEAD", "objects", "objects/pack", "refs"])
def test_a_store_that_is_broken_is_made_anew(history: tuple[Path, str], tmp_path: Path, lost: str) -> None:
    address = f"file://{history[0]}#main:reg"
    assert opened_at(address, tmp_path).index
    (store,) = (Path.home() / ".cache/mlstack/git").iterdir()
    shutil.rmtree(store / lost) if (store / lost).is_dir() else (store / lost).write_text("x")
    for _ in range(2):
        assert opened_at(address, tmp_path).fetch("jobs") == as_files(next_jobs())
        assert fresh(address, tmp_path).fetch("jobs") == as_files(next_jobs())


def test_a_store_that_another_fetch_writes_to_is_not_waited_for(
    history: tuple[Path, str], tmp_path: Path
) -> None:
    repo, address = history[0], f"file://{history[0]}#main:reg"
    assert opened_at(address, tmp_path).index
    (store,) = (Path.home() / ".cache/mlstack/git").iterdir()
    (store / "shallow.lock").touch()
    write_registry(repo, {"reg/README.md": "moved"})
    head = commit(repo)
    assert fresh(address, tmp_path).index.revision == head


@pytest.mark.parametrize(
    ("address", "url", "first", "last"),
    [
        (
            "github.com/google/kubeflow/tree/master/kubeflow",
            "https://github.com/google/kubeflow.git",
            ("master", "kubeflow"),
            ("master/kubeflow", ""),
        ),
        *(
            (address, "https://ghe.example.org/o/r.git", ("main", "reg"), ("main/reg", ""))
            for address in (
                "https://ghe.example.org/o/r/tree/main/reg",
                "ghe.example.org/o/r/blob/main/reg/registry.yaml",
            )
        ),
        ("https://github.com/o/r/tree/v1.0", "https://github.com/o/r.git", ("v1.0", ""), ("v1.0", "")),
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
    index = opened_at("github.com/o/r/tree/feature/x/reg", tmp_path).index
    assert index.revision == first


def test_an_index_with_a_stale_digest_never_gives_files(tmp_path: Path) -> None:
    repository(tmp_path / "repo", indexed(next="sha256:" + "1" * 64))
    refs = [RegistryRef(name="own", address=f"file://{tmp_path}/repo", protocol="git")]
    with pytest.raises(RegistryError, match="is not what the registry's index says"):
        fetch_all(refs, PackageRef(registry="own", name="jobs"), root=tmp_path)


@pytest.mark.parametrize("kind", ["a submodule", "a link", "a pointer of Git LFS"])
def test_what_git_holds_in_the_place_of_files_is_refused(tmp_path: Path, kind: str) -> None:
    first = repository(repo := tmp_path / "repo", {f"jobs/{path}": text for path, text in JOBS.items()})
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
    (repo / "data").write_text("package.yaml" if kind == "a link" else pointer)
    text = git(repo, "hash-object", "-w", "data")
    entry = {"a submodule": f"160000,{first}", "a link": f"120000,{text}"}.get(kind, f"100644,{text}")
    git(repo, "update-index", "--add", "--cacheinfo", f"{entry},jobs/data")
    git(repo, "commit", "--quiet", "--message=x")
    with pytest.raises(RegistryError, match=kind) as refused:
        opened_at(f"file://{repo}", tmp_path).fetch("jobs")
    assert "jobs/data" in str(refused.value) and "commit the files themselves" in str(refused.value.hint)
