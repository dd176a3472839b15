"""The options that commands share, and what the shell offers when Tab is pressed.

Names are found by listing folders, which are other people's: only what the rules of names allow is offered,
and nothing that any shell would read as more than a word leaves `answer`. The scripts evaluate nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from mlstack import clock, names
from mlstack.cli.output import FORMATS, OBJECT_FORMATS
from mlstack.errors import UsageError
from mlstack.names import nearest

# The completion scripts of shells; that of PowerShell is typer's.
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

# --- completion ---

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


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _root() -> Path | None:
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "app.yaml").is_file()), None)


def _allowed(names: Iterable[str], check: Callable[[str], object]) -> Iterator[str]:
    for name in names:
        with suppress(UsageError):
            check(name)
            yield name


def _environments(root: Path) -> Iterator[str]:
    base = root / "environments"
    folders = (file.parent.relative_to(base).as_posix() for file in base.rglob("environment.yaml"))
    return _allowed(folders, names.check_environment_name)


def _components(root: Path) -> Iterator[str]:
    base = root / "components"
    files = (file for file in base.rglob("*") if file.suffix in (".yaml", ".yml", ".json"))
    paths = (file.relative_to(base).with_suffix("") for file in files if file.name != "params.yaml")
    return _allowed((".".join(path.parts) for path in paths), names.check_app_name)


def _prototypes(root: Path) -> Iterator[str]:
    folders = (file.parent.name for file in (root / "vendor").glob("*/*/*/prototype.yaml"))
    return _allowed(folders, names.check_package_name)


def _packages(root: Path) -> Iterator[str]:
    from mlstack.app.app import parse_package_ref

    folders = (file.parent for file in (root / "vendor").glob("*/*/package.yaml"))
    packages = (f"{folder.parent.name}/{folder.name.partition('@')[0]}" for folder in folders)
    return _allowed(packages, parse_package_ref)


def _parameters(component: str) -> Iterable[str]:
    from mlstack.app.app import Component
    from mlstack.app.app_dir import AppDir

    app = AppDir.find(Path.cwd())
    known = app.component(component)
    return app.prototype(known.prototype).params if isinstance(known, Component) else ()


def _completer(names_of: Callable[[Path], Iterable[str]]) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        root = _root()
        return _matching(names_of(root), incomplete) if root is not None else []

    return complete


environments = _completer(_environments)
components = _completer(_components)
prototypes = _completer(_prototypes)
packages = _completer(_packages)


def formats(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names of the output formats."""
    return _matching(FORMATS, incomplete)


def presets(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the names that environments have a preset for."""
    from mlstack.app import files

    return _matching(files.presets(), incomplete)


def component_lists(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give what the last name of a list with commas may become, the names before it kept."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in components(ctx, last)]


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


# --- the options that commands share ---


def check_format(value: str) -> str:
    """Give back the name of an output format.

    Raises:
        UsageError: no format has that name.
    """
    return _choice(value, tuple(FORMATS))


def check_object_format(value: str) -> str:
    """Give back the name of a format that whole objects can be printed in.

    Raises:
        UsageError: it is none.
    """
    return _choice(value, tuple(OBJECT_FORMATS))


def _choice(value: str, known: tuple[str, ...]) -> str:
    if value in known:
        return value
    raise UsageError(
        f"no output format `{value}`", hint=f"use `-o {nearest(value, known) or '|'.join(known)}`"
    )


def split_names(values: Sequence[str] | None) -> list[str]:
    """Give the names of an option that may be repeated and may hold several with commas between.

    Raises:
        UsageError: a name is empty, as that of a shell's unset variable, which must not mean everything.
    """
    names = [name.strip() for value in values or () for name in value.split(",")]
    if not all(names):
        raise UsageError("`-c` got an empty name", hint="write `-c NAME`, or `-c NAME,NAME`")
    return names


def duration(text: str | float) -> float:
    """Read a time as `5m`, `90s`, `1h30m` or a number of seconds; gives seconds.

    Raises:
        UsageError: it is none.
    """
    try:
        return clock.seconds(str(text))
    except ValueError as error:
        raise UsageError(str(error)) from error


def check_on_failure(value: str) -> str:
    """Give back what is to be done when an apply fails.

    Raises:
        UsageError: it is neither of the two.
    """
    if value in ("stop", "rollback"):
        return value
    raise UsageError(f"`--on-failure {value}` means nothing", hint="use stop or rollback")


def example(*lines: str) -> str:
    """Write the example at the end of a command's help."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def _flag(help_text: str, *names: str, default: bool = False) -> tuple[type, Any]:
    return bool, typer.Option(default, *names, help=help_text)


def _text(help_text: str, metavar: str, *names: str, **facts: Any) -> tuple[Any, Any]:
    return str | None, typer.Option(None, *names, metavar=metavar, help=help_text, **facts)


def _duration(help_text: str, name: str) -> tuple[Any, Any]:
    option = typer.Option(None, name, metavar="DURATION", parser=duration, help=help_text, show_default=False)
    return float | None, option


def _format(help_text: str, default: str, check: Callable[[str], str]) -> tuple[type, Any]:
    names = ("--output", "-o")
    return str, typer.Option(
        default, *names, metavar="FORMAT", help=help_text, callback=check, autocompletion=formats
    )


# What is declared once: name in `session.given` -> type and option. Those that are called as fields of
# `ApplyOptions` become these.
SHARED: Mapping[str, tuple[Any, Any]] = {
    "folder": (
        Path | None,
        typer.Option(
            None, "--dir", metavar="DIR", help="The app directory, or a folder in it. Default: here."
        ),
    ),
    "output": _format("How the result is printed: table, yaml, json or name.", "table", check_format),
    "object_output": _format("How the objects are printed: yaml, json or name.", "yaml", check_object_format),
    "kubeconfig": _text("Kubeconfig file. Default: `$KUBECONFIG`.", "FILE", "--kubeconfig"),
    "env": (
        str | None,
        typer.Argument(
            None,
            metavar="[ENV]",
            help="The environment. Default: the one chosen by `env current --set`.",
            autocompletion=environments,
        ),
    ),
    "components": (
        list[str] | None,
        typer.Option(
            None,
            "--component",
            "-c",
            metavar="NAME",
            help="Only this component or module; `-c A,B` and `-c A -c B` take several.",
            callback=split_names,
            autocompletion=component_lists,
        ),
    ),
    "sets": (
        list[str] | None,
        typer.Option(
            None, "--set", metavar="[COMPONENT.]KEY=VALUE", help="A parameter for this run; repeatable."
        ),
    ),
    "values": (
        list[Path] | None,
        typer.Option(
            None, "--values", metavar="FILE", help="A YAML file of parameters for this run; repeatable."
        ),
    ),
    "context": _text(
        "Another kubectl context, for this run; it must lead to the same cluster.", "NAME", "--context"
    ),
    "namespace": _text("Another namespace, for this run.", "NAME", "--namespace", "-n"),
    "create": _flag("Whether objects that are missing are created.", "--create/--no-create", default=True),
    "prune": _flag(
        "Whether objects that the files no longer bring are deleted.", "--prune/--no-prune", default=True
    ),
    "allow_large_prune": _flag("Also delete more than half of what was deployed.", "--allow-large-prune"),
    "adopt": _flag("Take over objects of other apps, environments and tools.", "--adopt"),
    "force_conflicts": _flag("Take fields from the programs that own them too.", "--force-conflicts"),
    "keep_foreign_fields": _flag("Leave what people set by hand and no file has.", "--keep-foreign-fields"),
    "allow_destructive": _flag(
        "Let definitions lose fields and versions that exist.", "--allow-destructive-crds"
    ),
    "dry_run": _flag("The server says what would be done; nothing is written.", "--dry-run"),
    "on_failure": (
        str,
        typer.Option(
            "stop",
            "--on-failure",
            metavar="stop|rollback",
            help="After a failure: stop, or apply the last revision that worked again.",
            callback=check_on_failure,
        ),
    ),
    "wait": _flag(
        "Whether to return only when everything works, and what was deleted is gone.",
        "--wait/--no-wait",
        default=True,
    ),
    "timeout_s": _duration(
        "How long to wait for anything (90s, 5m, 1h): until it works, until it is gone."
        " Default: 5m, and 2m in which nothing goes.",
        "--timeout",
    ),
    "wait_for_jobs": _flag("Wait also for training jobs and the like, until they run.", "--wait-for-jobs"),
    "lock_timeout_s": _duration(
        "How long to wait for another run on the environment; 0 refuses at once. Default: 30s.",
        "--lock-timeout",
    ),
    "yes": _flag("Answer the question with yes.", "--yes", "-y"),
    "yes_i_mean": _text("The name of the protected environment you mean.", "ENV", "--yes-i-mean"),
}

EnvName = Annotated[str, typer.Argument(metavar="ENV", help="The environment.", autocompletion=environments)]
EnvOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="ENV",
        help="As it is in this environment. Default: what all share.",
        autocompletion=environments,
    ),
]
