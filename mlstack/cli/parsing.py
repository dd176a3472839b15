"""The parts of the command line that typer leaves to us: groups, free options, values with dashes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from mlstack.cli.helping import Command, PlainHelp, nearest_command, nearest_option
from mlstack.errors import UsageError

Function = TypeVar("Function", bound=Callable[..., Any])


class Group(PlainHelp, TyperGroup):
    """A group of commands that shows its help when called alone and names the nearest command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Answer a call without a command with the help, on stderr because nothing was done.

        `help COMMAND` is `COMMAND --help`.
        """
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(2)
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed.

        Raises:
            UsageError: there is none of that name; the hint carries the nearest one.
        """
        name, known = args[0], self.list_commands(ctx)
        if name in known or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = nearest_command(name, known)
        hint = f"did you mean `{ctx.command_path} {near}`?" if near else f"{ctx.command_path} --help"
        raise UsageError(f"no command `{ctx.command_path} {name}`", hint=hint)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the whole first line of its help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, (command.help or "").partition("\n")[0].rstrip("."))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class ListingGroup(Group):
    """A group whose name alone lists: `history gke` is `history list gke`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `list` before anything that is no command of the group."""
        if not args and ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        if not args or args[0] not in (*self.list_commands(ctx), "help", "--help", "-h"):
            args = ["list", *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offer the commands, and what `list` takes."""
        listing: Any = self.get_command(ctx, "list")
        inner = listing.make_context("list", [], parent=ctx, resilient_parsing=True)
        words = [param for param in listing.params if param.param_type_name == "argument"]
        offered = [item for param in words for item in param.shell_complete(inner, incomplete)]
        return [*super().shell_complete(ctx, incomplete), *offered]


class DashedValueCommand(Command):
    """A command whose last word is a value that may start with `-` (`param set cnn args --steps=9`)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the options to the front, so that the value is never taken for one."""
        found = split(self.get_params(ctx), args)
        for word in () if ctx.resilient_parsing else found.words[:-1] or found.words[: len(found.words) < 2]:
            if word.startswith("-") and len(word) > 1 and word not in found.quoted:
                refuse_option(ctx, word, self.params)
        return super().parse_args(ctx, [*found.options, "--", *found.words])


class FreeOptionsCommand(Command):
    """A command that takes the parameters of a prototype as options (`--model_path=gs://models`).

    An option that the command does not declare itself becomes `--set NAME=VALUE`; without a value
    `--set NAME`, which only a boolean parameter takes.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write unknown long options as `--set`."""
        rewritten: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if word == "--":
                rewritten += ["--", *rest]
                break
            taken = _known(self.get_params(ctx), word)
            if taken is not None:
                rewritten += [word, *(rest.pop(0) for _ in range(min(taken, len(rest))))]
            elif word.startswith("--"):
                rewritten += ["--set", _free(word[2:], rest)]
            else:
                rewritten.append(word)
        return super().parse_args(ctx, rewritten)


@dataclass(frozen=True)
class Split:
    """A command line, taken apart.

    Attributes:
        options: declared options with their values.
        words: everything else.
        quoted: the words that stood behind `--`.
    """

    options: list[str]
    words: list[str]
    quoted: list[str]


def split(params: Sequence[Any], args: Sequence[str]) -> Split:
    """Take declared options and all other words apart, each in the order they were typed."""
    found = Split([], [], [])
    rest = list(args)
    while rest:
        word = rest.pop(0)
        taken = _known(params, word)
        if word == "--":
            found.quoted.extend(rest)
            found.words.extend(rest)
            break
        if taken is None:
            found.words.append(word)
        else:
            found.options.extend([word, *(rest.pop(0) for _ in range(min(taken, len(rest))))])
    return found


def refuse_option(ctx: Any, word: str, params: Sequence[Any]) -> NoReturn:
    """Say that a command has no such option.

    Raises:
        UsageError: always; the hint carries the nearest option.
    """
    name = word.partition("=")[0]
    near = nearest_option(name, params)
    hint = f"did you mean `{near}`?" if near else f"{ctx.command_path} --help"
    raise UsageError(f"`{ctx.command_path}` has no option `{name}`", hint=hint)


class Family(typer.Typer):
    """A group whose commands are of our own kind."""

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **facts: Any
    ) -> Callable[[Function], Function]:
        """Register a command."""
        return super().command(name, cls=cls, **facts)


def family(help_text: str, *, cls: type[Group] = Group) -> Family:
    """Make a group of commands."""
    made = Family(
        cls=cls,
        help=help_text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    made.callback()(_no_options)
    return made


def command_of(group: typer.Typer, name: str | None) -> Any:
    """Give one command of a group in the form that a parent group takes, or the group itself."""
    built = _built(group)
    return built if name is None else built.commands[name]


@cache
def _built(group: typer.Typer) -> Any:
    """Make the parser of a group, once a process: `demo` and tests run many command lines in one."""
    return typer.main.get_command(group)


def _no_options() -> None:
    """Keep a group a group even when it has one command."""


def _known(params: Sequence[Any], word: str) -> int | None:
    """Tell how many further words a declared option takes; None when it is not declared."""
    name, equals, _ = word.partition("=")
    for param in params:
        if param.param_type_name != "option":
            continue
        spellings = [*param.opts, *param.secondary_opts]
        if name in spellings:
            return 0 if equals or param.is_flag else 1
        if not word.startswith("--") and any(
            word.startswith(short) for short in spellings if len(short) == 2
        ):
            return 0
    return None


def _free(text: str, rest: list[str]) -> str:
    if "=" in text or not rest or rest[0].startswith("--"):
        return text
    return f"{text}={rest.pop(0)}"
