"""What the shell offers when Tab is pressed: names found by listing folders, where they tell enough.

Folders and packages are other people's: only what the rules of names allow is offered, and nothing that any
shell would read as more than a word leaves `answer`. The scripts evaluate nothing of what they get.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from mlstack.errors import UsageError
from mlstack.model import names

SCRIPTS = {
    "bash": r"""
_mlstack_completion() {
    local IFS=$'\n' line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in *[!A-Za-z0-9._/,:=@+-]*) printf -v line %q "$line" ;; esac
        COMPREPLY+=("$line")
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _MLSTACK_COMPLETE=complete_bash \
        command mlstack 2>/dev/null)
}

complete -o default -F _mlstack_completion mlstack
""",
    "zsh": r"""
#compdef mlstack

_mlstack_completion() {
    local line
    local -a values shown
    while IFS= read -r line; do
        values+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  -- }")
    done < <(_TYPER_COMPLETE_ARGS="${words[1,CURRENT]}" _TYPER_COMPLETE_FISH_ACTION=get-args \
        _MLSTACK_COMPLETE=complete_fish command mlstack 2>/dev/null)
    if (( $#values == 0 )); then
        _files
        return
    fi
    [[ $PREFIX == --*=* ]] && compset -P '--*='
    compadd -l -d shown -a values
}

if [[ ${funcstack[1]} == _mlstack ]]; then
    _mlstack_completion "$@"
else
    compdef _mlstack_completion mlstack
fi
""",
    "fish": r"""
function __mlstack_complete
    set -lx _MLSTACK_COMPLETE complete_fish
    set -lx _TYPER_COMPLETE_FISH_ACTION get-args
    set -lx _TYPER_COMPLETE_ARGS (commandline -cp | string collect)
    set -l offered (command mlstack 2>/dev/null)
    if test (count $offered) -gt 0
        printf '%s\n' $offered
    else
        __fish_complete_path (commandline -ct)
    end
end

complete --command mlstack --no-files --arguments '(__mlstack_complete)'
""",
}
"""The completion scripts of shells; that of PowerShell is typer's."""

# A word that every shell takes as it stands, wherever it stands.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9._/,:@+-][A-Za-z0-9._/,:=@+-]*")


def answer(command: Any, environ: MutableMapping[str, str], context: Any) -> str:
    """Give what a completion script asks for by its variables; nothing when it asks what cannot be.

    The scripts of earlier installations evaluate what they get (that of zsh twice), so help texts go through
    the same sieve as names.

    Args:
        command: the whole command line.
        environ: the environment of the process.
        context: what the commands find as `ctx.obj`.
    """
    from typer import _completion_classes as shells

    known = {
        "complete_bash": shells.BashComplete,
        "complete_zsh": shells.ZshComplete,
        "complete_fish": shells.FishComplete,
        "complete_powershell": shells.PowerShellComplete,
        "complete_pwsh": shells.PowerShellComplete,
    }
    asked = known.get(environ.get("_MLSTACK_COMPLETE", ""))
    if asked is None:
        return ""

    class Plain(asked):  # type: ignore[misc,valid-type]
        def get_completions(self, args: list[str], incomplete: str) -> list[Any]:
            offered = super().get_completions(args, incomplete)
            for item in offered:
                item.help = " ".join(re.sub(r"[^\w .,;()/-]", "", item.help or "", flags=re.ASCII).split())
            return [item for item in offered if _PLAIN_WORD.fullmatch(item.value)]

    try:
        mend_words(environ)
        return str(Plain(command, {"obj": context}, "mlstack", "_MLSTACK_COMPLETE").complete())
    except Exception:  # whoever presses Tab is told nothing; the command itself says what is wrong
        return ""


def formats(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names of the output formats."""
    return _matching(iter(("table", "yaml", "json", "name")), incomplete)


def environments(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names of the app's environments."""
    return _matching(_environments(_root()), incomplete)


def components(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the full names of the app's components."""
    return _matching(_components(_root()), incomplete)


def component_lists(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give what the last name of a list with commas may become, the names before it kept."""
    before, comma, last = incomplete.rpartition(",")
    names = (name for name in _components(_root()) if name.startswith(last))
    return _matching((before + comma + name for name in names), incomplete)


def prototypes(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names of the installed prototypes."""
    return _matching(_prototypes(_root()), incomplete)


def packages(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the installed packages."""
    return _matching(_packages(_root()), incomplete)


def presets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names that environments have a preset for."""
    from mlstack.files import bundled

    return _matching(iter(bundled.presets()), incomplete)


def component_and_parameter(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give components for the first word, and for the second the parameters of that component."""
    words = [word for word in ctx.params.get("words") or () if not word.startswith("-")]
    return _matching(_parameters(words[0]), incomplete) if words else components(ctx, incomplete)


def parameters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the parameters of the component that was named before."""
    return _matching(_parameters(ctx.params.get("component") or ""), incomplete)


def mend_words(environ: MutableMapping[str, str]) -> None:
    """Join what bash takes apart: it asks for `--env=g` as three words, of which `=` is one."""
    words = environ.get("COMP_WORDS", "").split("\n")
    at = int(environ.get("COMP_CWORD") or 0)
    for index in range(len(words) - 2, 0, -1):
        if words[index] == "=" and words[index - 1].startswith("--"):
            words[index - 1 : index + 2] = ["".join(words[index - 1 : index + 2])]
            at -= min(max(at - index + 1, 0), 2)
    if len(words) > 1:
        environ.update(COMP_WORDS="\n".join(words), COMP_CWORD=str(at))


def _matching(names: Iterator[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _root() -> Path | None:
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "app.yaml").is_file()), None)


def _environments(root: Path | None) -> Iterator[str]:
    if root is not None:
        base = root / "environments"
        found = (path.parent.relative_to(base).as_posix() for path in base.rglob("environment.yaml"))
        yield from _allowed(found, names.check_environment_name)


def _components(root: Path | None) -> Iterator[str]:
    if root is not None:
        base = root / "components"
        files = (path for path in base.rglob("*") if path.suffix in (".yaml", ".yml", ".json"))
        found = (path.relative_to(base).with_suffix("") for path in files if path.name != "params.yaml")
        yield from _allowed((".".join(path.parts) for path in found), names.check_app_name)


def _prototypes(root: Path | None) -> Iterator[str]:
    if root is not None:
        found = (path.parent.name for path in (root / "vendor").glob("*/*/*/prototype.yaml"))
        yield from _allowed(found, names.check_package_name)


def _packages(root: Path | None) -> Iterator[str]:
    if root is not None:
        folders = (path.parent for path in (root / "vendor").glob("*/*/package.yaml"))
        found = (f"{folder.parent.name}/{folder.name.partition('@')[0]}" for folder in folders)
        yield from _allowed(found, names.parse_package_ref)


def _parameters(component: str) -> Iterator[str]:
    from mlstack.files.appdir import AppDir
    from mlstack.model.app import Component

    app = AppDir.find(Path.cwd())
    found = app.component(component)
    if isinstance(found, Component):
        yield from app.prototype(found.prototype).params


def _allowed(found: Iterator[str], check: Callable[[str], object]) -> Iterator[str]:
    for name in found:
        with suppress(UsageError):
            check(name)
            yield name
