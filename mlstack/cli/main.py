"""How help looks where it differs from typer's own, and what people type who come from other tools."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from mlstack import __version__
from mlstack.cli.interruption import INTERRUPTED_EXIT_CODE, Interruption
from mlstack.cli.output import ClosedOutputError, guarded, json_escaped, say, stop_writing, write
from mlstack.cli.ports import Ports, Session, real_ports
from mlstack.errors import INTERNAL_EXIT_CODE, MlstackError, UsageError
from mlstack.names import nearest
from mlstack.objects import masking

# --- How help looks where it differs from typer's own, and what people type who come from other
# tools


class PlainHelp:
    """A command whose usage line and examples can be typed as they stand."""

    epilog: str | None

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Write required words without braces."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]  # beside a command
        return [piece[1:-1] if piece.startswith("{") and piece.endswith("}") else piece for piece in pieces]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write examples from the margin on, so that long ones fit."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(cleandoc(self.epilog))


class Command(PlainHelp, TyperCommand):
    """A command of the program."""


def nearest_option(name: str, params: Sequence[Any]) -> str | None:
    """Find the long option that a mistyped one most likely stands for."""
    known = {option[2:]: option for param in params for option in param.opts if option.startswith("--")}
    near = nearest(name.lstrip("-"), known)
    return known[near] if near is not None else None


# What kubectl, Helm and ksonnet call things, and what it may be here: the first that a group has.
OTHER_WORDS: Mapping[str, Sequence[str]] = {
    "add": ("install", "generate"),
    "create": ("add", "generate"),
    "deploy": ("apply",),
    "destroy": ("rm", "delete"),
    "delete": ("rm", "unset"),
    "describe": ("status",),
    "get": ("describe", "status"),
    "import": ("generate",),
    "info": ("describe",),
    "install": ("add", "pkg install"),
    "ls": ("list",),
    "new": ("init", "add"),
    "plan": ("diff",),
    "remove": ("rm", "delete"),
    "set": ("param set",),
    "template": ("render",),
    "uninstall": ("rm", "delete"),
    "update": ("install", "set", "apply"),
    "upgrade": ("install", "set", "apply"),
    "use": ("current",),
}


def nearest_command(name: str, known: Sequence[str]) -> str | None:
    """Find the command of a group that a word most likely stands for, itself or a command below one."""
    meant = (word for word in OTHER_WORDS.get(name.lower(), ()) if word.split(" ")[0] in known)
    return next(meant, None) or nearest(name, known)


# --- The parts of the command line that typer leaves to us: groups, free options, values with
# dashes

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


# --- The command line: the table of commands, global options, the error boundary and the exit codes ---

USAGE_EXIT_CODE = 2
FILE_EXIT_CODE = 3

# The root of all usage faults: its place moved between typer's releases, its kinship did not.
ParserError: type[Exception] = typer.BadParameter.__base__.__base__  # type: ignore[union-attr,assignment]


class CommandEntry(NamedTuple):
    """One command of the program: the module it is imported from when it runs, and its line of help."""

    module: str
    command: str | None
    help: str


COMMANDS: dict[str, CommandEntry] = {
    "init": CommandEntry("app", "init", "Create an app directory"),
    "registry": CommandEntry("registry", None, "Where packages come from: add, list, describe, index"),
    "pkg": CommandEntry("pkg", None, "Packages of prototypes: install, list, describe, rm"),
    "prototype": CommandEntry(
        "prototype", None, "What can be generated: list, search, describe, preview, use"
    ),
    "generate": CommandEntry("component", "generate", "Make a component from a prototype"),
    "component": CommandEntry("component", "component", "What the app deploys: list, rm"),
    "param": CommandEntry("param", None, "Parameters: set, unset, list, diff, explain"),
    "env": CommandEntry("env", None, "Environments: add, list, describe, set, rm, current"),
    "render": CommandEntry("deploy", "render", "Print the Kubernetes objects of an environment"),
    "show": CommandEntry("deploy", "render", "The same as render"),
    "validate": CommandEntry("deploy", "validate", "Check the objects of an environment, offline"),
    "diff": CommandEntry("planning", "diff", "Show what apply would change in the cluster"),
    "plan": CommandEntry("planning", "plan", "Keep what apply would do in a file, to be approved"),
    "apply": CommandEntry("deploy", "apply", "Make the cluster match the app"),
    "delete": CommandEntry("deploy", "delete", "Remove an environment's objects from the cluster"),
    "status": CommandEntry("deploy", "status", "Tell whether what was applied works, and why not"),
    "history": CommandEntry("history", None, "What was applied to an environment: list, show, diff"),
    "unlock": CommandEntry("unlock", "unlock", "Free an environment that a dead run left locked"),
    "rollback": CommandEntry("rollback", "rollback", "Apply an earlier revision again"),
    "elastic": CommandEntry("elastic", None, "Elastic training jobs: run, plan, status, simulate"),
    "demo": CommandEntry("demo", "demo", "See it all work, on a cluster in memory"),
    "schema": CommandEntry("shell", "schema", "Print the JSON Schema of a file or of what a command prints"),
    "completion": CommandEntry("shell", "completion", "Print the completion script of a shell"),
    "version": CommandEntry("shell", "version", "Print the versions of mlstack and its libraries"),
}


class Root(Group):
    """The program itself: knows its commands by name and imports one when it runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Give the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = import_module(f"mlstack.cli.commands.{entry.module}")
        return command_of(module.commands, entry.command)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands with their help, without importing one of them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


program = typer.Typer(
    cls=Root,
    help="Package and deploy machine-learning stacks on Kubernetes.",
    epilog="Start with `mlstack demo`, or with `mlstack init NAME`. `mlstack help COMMAND` tells more.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _print_version(value: bool) -> None:
    if value:
        write(f"mlstack {__version__}")
        raise typer.Exit


@program.callback()
def root(
    ctx: typer.Context,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="The app directory. Default: here.")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal fault.")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before the command."""
    session: Session = ctx.obj
    session.folder, session.debug = folder, debug


def main(argv: Sequence[str] | None = None, *, ports: Ports | None = None) -> int:
    """Run one command line and give its exit code; no exception leaves.

    Args:
        argv: the words after the program's name; None takes those of the process.
        ports: the ways out of the process; None takes the real ones.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    with guarded(), masking.collecting():
        return _ended(words, Session(ports=ports or real_ports()))


def _ended(words: list[str], session: Session) -> int:
    interruption = Interruption.of_process()
    try:
        with interruption:
            code = _run(words, session)
        if code == INTERRUPTED_EXIT_CODE:
            raise KeyboardInterrupt
        return code
    except (ClosedOutputError, BrokenPipeError):
        return stop_writing()
    except (KeyboardInterrupt, typer.Abort):
        say(interruption.word)
        return interruption.exit_code
    except MlstackError as error:
        return _fail(words, error.exit_code, error.message, error.where, error.hint)
    except ParserError as error:
        return _fail(words, USAGE_EXIT_CODE, *_parser_words(error))
    except OSError as error:
        place = str(error.filename) if error.filename else None
        return _fail(words, FILE_EXIT_CODE, _reason(error), place, "check the path, its rights and the disk")
    except Exception as error:  # the boundary: whatever gets here is a fault of ours
        return _bug(words, session, error)


def _run(words: list[str], session: Session) -> int:
    command = command_of(program, None)
    if os.environ.get("_MLSTACK_COMPLETE"):
        from mlstack.cli import options

        write(options.answer(command, os.environ, session))
        return 0
    code = command.main(args=words, prog_name="mlstack", standalone_mode=False, obj=session)
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _fail(words: Sequence[str], code: int, message: str, where: str | None, hint: str | None) -> int:
    if _wants_json(words):
        import json

        facts = {"message": message, "where": where, "hint": hint, "exitCode": code}
        told = {"error": {key: fact for key, fact in facts.items() if fact is not None}}
        say(json_escaped(json.dumps(masking.scrubbed_value(told), ensure_ascii=False)))
    else:
        say(*MlstackError(message, where=where, hint=hint).messages())
    return code


def _bug(words: Sequence[str], session: Session, error: Exception) -> int:
    if session.debug:
        import traceback

        say("".join(traceback.format_exception(error)).rstrip())
    message = f"internal fault: {type(error).__name__}: {error}"
    again = f"run it again as `mlstack --debug {words[0] if words else ''} …`, and report what it prints"
    hint = None if session.debug else again
    return _fail(words, INTERNAL_EXIT_CODE, message, None, hint)


def _parser_words(error: Any) -> tuple[str, None, str]:
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    text = str(error.message if option else error.format_message()).strip().rstrip(".")
    path = context.command_path if context else "mlstack"
    hint = f"{path} --help"
    if option and context:
        params = context.command.get_params(context)
        takes_environment = any(param.human_readable_name == "[ENV]" for param in params)
        near = nearest_option(option, params)
        hint = f"did you mean `{near}`?" if near else hint
        hint = f"{path} ENV" if option == "--env" and takes_environment else hint
    return text[:1].lower() + text[1:], None, hint


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()


def _wants_json(words: Sequence[str]) -> bool:
    pairs = zip(words, [*words[1:], ""], strict=False)
    return any(
        word in ("-ojson", "-o=json", "--output=json") or pair in _JSON_PAIRS
        for pair in pairs
        for word in pair[:1]
    )


_JSON_PAIRS = (("-o", "json"), ("--output", "json"))
