"""The git commit that an app's files are at, and whether they are as it has them."""

from __future__ import annotations

from pathlib import Path

from mlstack import programs
from mlstack.app.environment import Environment
from mlstack.dataclass import dataclass
from mlstack.errors import UsageError
from mlstack.events import listed

_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class GitState:
    """What git says of an app directory."""

    commit: str = ""  # the whole hash; empty where there is none
    changed: tuple[str, ...] = ()  # files that are not as the commit has them, from the top of the repository


NOWHERE = GitState()


def of_folder(root: Path) -> GitState:
    """Ask git about an app directory; nothing where there is no git or no repository."""
    question = ["git", "-C", str(root), "status", "--porcelain=v2", "--branch", "-z", "--", "."]
    try:
        answer = programs.run(question, settings={"GIT_OPTIONAL_LOCKS": "0"}, timeout_s=_TIMEOUT_S).stdout
    except programs.ProgramError:
        return NOWHERE
    commit, changed, entries = "", [], answer.decode(errors="replace").split("\0")
    while entries:
        entry = entries.pop(0)
        if entry.startswith("# branch.oid "):
            commit = entry.removeprefix("# branch.oid ").replace("(initial)", "")
        elif entry[:1] in ("1", "2", "u", "?"):
            changed.append(entry.split(" ", {"1": 8, "2": 9, "u": 10, "?": 1}[entry[0]])[-1])
            if entry[0] == "2":  # behind a renamed file stands what it was called
                del entries[:1]
    return GitState(commit=commit, changed=tuple(changed))


def refuse_changed(place: Environment, source: GitState) -> None:
    """Raise for a protected environment if what would be applied is in no commit."""
    if place.protected and source.changed:
        raise UsageError(
            f"environment `{place.name}` is protected, and files of the app are not committed:"
            f" {listed(source.changed)}",
            hint="nothing was done; commit them, or add --allow-dirty",
        )
