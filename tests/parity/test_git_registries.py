"""Rows R: registries in git repositories, read by the user's own git."""

from pathlib import Path

import pytest

from tests.support.builders import read_tree
from tests.support.cli import Runner
from tests.support.registries import commit, git, repository
from tests.support.registry import REGISTRY

pytestmark = pytest.mark.slow

TREE = "https://github.com/owner/repo/tree"


@pytest.fixture
def heads(demo: Path, tmp_path: Path, home: Path) -> dict[str, str]:
    """Give revisions of a repository that GitHub's address leads to, with the commit of each.

    `tools` is 1.2.0 at the tag `v1.2.0` and on the branch `feature/with/slash`, 1.3.0 on `main`.
    """
    repo = tmp_path / "repo"
    first = repository(repo, {path[9:]: text for path, text in REGISTRY.items()}, below="sub/dir")
    git(repo, "tag", "v1.2.0")
    git(repo, "branch", "feature/with/slash")
    package = repo / "sub/dir/tools/package.yaml"
    package.write_text(package.read_text().replace("1.2.0", "1.3.0"))
    newest = commit(repo)
    (home / ".gitconfig").write_text(
        f'[url "file://{repo}"]\n\tinsteadOf = https://github.com/owner/repo.git\n'
    )
    return {"main": newest, "v1.2.0": first, "feature/with/slash": first, newest: newest, first[:8]: first}


def test_r3_a_tree_address_takes_branch_tag_or_commit_and_folder(
    demo: Path, run: Runner, heads: dict[str, str]
) -> None:
    for number, (revision, head) in enumerate(heads.items()):
        run.ok(f"registry add far{number} {TREE}/{revision}/sub/dir")
        registry = run(f"registry describe far{number} -o json").json
        version = "1.3.0" if head == heads["main"] else "1.2.0"
        versions = {package["name"]: package["version"] for package in registry["packages"]}
        assert (registry["revision"], versions["tools"]) == (head, version)
    for wrong in ("nope/sub/dir", "main/no/dir"):
        assert run(f"registry add wrong {TREE}/{wrong}").code == 5


def test_r4_any_git_address_works_with_the_users_settings(
    demo: Path, run: Runner, tmp_path: Path, home: Path, heads: dict[str, str]
) -> None:
    rules = "".join(
        f"\tinsteadOf = {address}\n"
        for address in ("ssh://git@git.example.org/ml/repo", "git@git.example.org:ml/repo")
    )
    (home / ".gitconfig").write_text(f'[url "file://{tmp_path}/repo"]\n{rules}')
    addresses = (
        "ssh://git@git.example.org/ml/repo",
        "git@git.example.org:ml/repo",
        f"file://{tmp_path}/repo",
    )
    for number, address in enumerate(addresses):
        run.ok(f"registry add far{number} {address}#main:sub/dir")
        assert "1.3.0" in run.ok(f"registry describe far{number}")


def test_r6_a_registry_comes_in_one_transfer(
    demo: Path, run: Runner, tmp_path: Path, heads: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE", str(trace))
    run.ok(f"registry add far {TREE}/main/sub/dir")
    run.ok("pkg install far/tools")
    fetches = [line for line in trace.read_text().splitlines() if "built-in: git fetch" in line]
    assert len(fetches) == 1


def test_r15_no_token_is_needed_and_a_wrong_one_does_no_harm(
    demo: Path, run: Runner, heads: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "wrong")
    run.ok(f"registry add far {TREE}/main/sub/dir")
    assert b"wrong" not in b"".join(read_tree(demo).values())
