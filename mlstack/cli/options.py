"""The options that commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mlstack.cli import complete
from mlstack.cli.output import FORMATS
from mlstack.errors import UsageError
from mlstack.model import durations
from mlstack.model.names import nearest

ON_FAILURE = ("stop", "rollback")
OBJECT_FORMATS = ("yaml", "json", "name")


def check_format(value: str) -> str:
    """Give back the name of an output format.

    Raises:
        UsageError: no format has that name.
    """
    return _choice(value, FORMATS.names())


def check_object_format(value: str) -> str:
    """Give back the name of a format that whole objects can be printed in.

    Raises:
        UsageError: it is none.
    """
    return _choice(value, OBJECT_FORMATS)


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
        return durations.seconds(str(text))
    except ValueError as error:
        raise UsageError(str(error)) from error


def check_on_failure(value: str) -> str:
    """Give back what is to be done when an apply fails.

    Raises:
        UsageError: it is neither of the two.
    """
    if value in ON_FAILURE:
        return value
    raise UsageError(f"`--on-failure {value}` means nothing", hint="use stop or rollback")


def _choice(value: str, known: tuple[str, ...]) -> str:
    if value in known:
        return value
    raise UsageError(
        f"no output format `{value}`", hint=f"use `-o {nearest(value, known) or '|'.join(known)}`"
    )


Dir = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The app directory, or a folder in it. Default: here."),
]
Output = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="How the result is printed: table, yaml, json or name.",
        callback=check_format,
        autocompletion=complete.formats,
    ),
]
ObjectOutput = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FORMAT",
        help="How the objects are printed: yaml, json or name.",
        callback=check_object_format,
        autocompletion=complete.formats,
    ),
]
EnvArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[ENV]",
        help="The environment. Default: the one chosen by `env current --set`.",
        autocompletion=complete.environments,
    ),
]
EnvName = Annotated[
    str, typer.Argument(metavar="ENV", help="The environment.", autocompletion=complete.environments)
]
EnvOption = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="ENV",
        help="As it is in this environment. Default: what all share.",
        autocompletion=complete.environments,
    ),
]
Components = Annotated[
    list[str] | None,
    typer.Option(
        "--component",
        "-c",
        metavar="NAME",
        help="Only this component or module; `-c A,B` and `-c A -c B` take several.",
        callback=split_names,
        autocompletion=complete.component_lists,
    ),
]
PrototypeName = Annotated[
    str | None,
    typer.Argument(metavar="PROTOTYPE", help="The prototype.", autocompletion=complete.prototypes),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="Another kubectl context, for this run; it must lead to the same cluster.",
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NAME", help="Another namespace, for this run.")
]
Create = Annotated[
    bool, typer.Option("--create/--no-create", help="Whether objects that are missing are created.")
]
Adopt = Annotated[
    bool, typer.Option("--adopt", help="Take over objects of other apps, environments and tools.")
]
ForceConflicts = Annotated[
    bool, typer.Option("--force-conflicts", help="Take fields from the programs that own them too.")
]
KeepForeignFields = Annotated[
    bool, typer.Option("--keep-foreign-fields", help="Leave what people set by hand and no file has.")
]
AllowDestructive = Annotated[
    bool,
    typer.Option("--allow-destructive-crds", help="Let definitions lose fields and versions that exist."),
]
AllowLargePrune = Annotated[
    bool, typer.Option("--allow-large-prune", help="Also delete more than half of what was deployed.")
]
Kubeconfig = Annotated[
    str | None,
    typer.Option("--kubeconfig", metavar="FILE", help="Kubeconfig file. Default: `$KUBECONFIG`."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Answer the question with yes.")]
YesIMean = Annotated[
    str | None,
    typer.Option("--yes-i-mean", metavar="ENV", help="The name of the protected environment you mean."),
]
LockTimeout = Annotated[
    float | None,
    typer.Option(
        "--lock-timeout",
        metavar="DURATION",
        parser=duration,
        help="How long to wait for another run on the environment; 0 refuses at once. Default: 30s.",
        show_default=False,
    ),
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait", help="Whether to return only when everything works, and what was deleted is gone."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        parser=duration,
        help="How long to wait for anything (90s, 5m, 1h): until it works, until it is gone."
        " Default: 5m, and 2m in which nothing goes.",
        show_default=False,
    ),
]
WaitForJobs = Annotated[
    bool, typer.Option("--wait-for-jobs", help="Wait also for training jobs and the like, until they run.")
]
Prune = Annotated[
    bool,
    typer.Option("--prune/--no-prune", help="Whether objects that the files no longer bring are deleted."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="The server says what would be done; nothing is written.")
]
OnFailure = Annotated[
    str,
    typer.Option(
        "--on-failure",
        metavar="stop|rollback",
        help="After a failure: stop, or apply the last revision that worked again.",
        callback=check_on_failure,
    ),
]
SetValues = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="[COMPONENT.]KEY=VALUE", help="A parameter for this run; repeatable."),
]
ValuesFiles = Annotated[
    list[Path] | None,
    typer.Option("--values", metavar="FILE", help="A YAML file of parameters for this run; repeatable."),
]


def example(*lines: str) -> str:
    """Write the example at the end of a command's help."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
