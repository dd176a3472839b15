"""The command line: how commands are declared and parsed, the error boundary, the exit codes."""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import cleandoc
from itertools import pairwise, zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from mlstack import __version__
from mlstack.cli import options
from mlstack.cli.commands import COMMANDS, NEXT_STEP, OPTIONS, SUMMARY, program_help
from mlstack.cli.fast import INTERRUPTED_EXIT_CODE, Interruption
from mlstack.cli.options import MISSING, NAMES, SHARED, Options, is_list, parameter, prototype_options
from mlstack.cli.output import ClosedOutputError, guarded, json_escaped, say, stop_writing, write
from mlstack.cli.page import emit
from mlstack.cli.ports import Ports, Session
from mlstack.errors import INTERNAL_EXIT_CODE, MlstackError, UsageError
from mlstack.names import nearest
from mlstack.objects import masking

Function = TypeVar("Function", bound=Callable[..., Any])

# What kubectl, Helm and ksonnet call things, and what it may be here: the first that a group has.
OTHER_WORDS: Mapping[str, Sequence[str]] = {
    "add": ("install", "generate"),
    "build": ("render",),
    "clone": ("copy",),
    "create": ("add", "generate"),
    "deploy": ("apply",),
    "destroy": ("rm", "delete"),
    "delete": ("rm", "unset"),
    "describe": ("status",),
    "get": ("describe", "status", "list"),
    "info": ("describe",),
    "lint": ("validate",),
    "logs": ("status",),
    "install": ("add", "pkg install"),
    "ls": ("list", "component list"),
    "new": ("init", "add"),
    "plan": ("diff",),
    "remove": ("rm", "delete"),
    "rename": ("set",),
    "repo": ("registry",),
    "scale": ("param set",),
    "search": ("prototype search", "list"),
    "set": ("param set",),
    "targets": ("set",),
    "template": ("render",),
    "uninstall": ("rm", "delete"),
    "update": ("install", "set", "apply"),
    "upgrade": ("update", "install", "set"),
    "use": ("current",),
}


def nearest_option(name: str, params: Sequence[Any]) -> str | None:
    """Find the long option that a mistyped one most likely stands for."""
    options = {option[2:]: option for param in params for option in param.opts if option.startswith("--")}
    return options.get(nearest(name.lstrip("-"), options) or "")


# --- how commands are parsed, where typer does it otherwise ---


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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read a switch with a value as kubectl and ksonnet do: `--create=false` is `--no-create`."""
        flags = [param for param in self.params if getattr(param, "is_flag", False)]
        opposites = {name: flag.secondary_opts[:1] for flag in flags for name in flag.opts}
        opposites |= {name: flag.opts[:1] for flag in flags for name in flag.secondary_opts}
        rewritten: list[str] = []
        for kind, piece in self.pieces(ctx, args):
            name, equals, text = piece[0].partition("=")
            if kind == "option" and equals and name in opposites:
                piece = [name] if _is_true(name, text) else opposites[name]
            rewritten += piece
        try:
            return super().parse_args(ctx, rewritten)
        except ParserError as error:  # whose it is, the parser leaves out of some
            error.ctx = getattr(error, "ctx", None) or ctx  # type: ignore[attr-defined]
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, with the names that may stand behind them in their help."""
        for param in self.params:
            text = getattr(param, "help", None) or ""
            if NAMES in text:
                names = [item.value for item in param.shell_complete(ctx, "")]
                either = " or ".join(", ".join(names).rsplit(", ", 1))
                param.help = text.replace(NAMES, f": {either}")  # type: ignore[attr-defined]
        super().format_options(ctx, formatter)

    def pieces(self, ctx: Any, args: Sequence[str], *, free: bool = False) -> Iterator[tuple[str, list[str]]]:
        """Part words into declared options, free ones, each with its value, words, and what is `quoted`.

        A free option is a long one that is not declared, where there may be such.
        """
        rest = list(args)
        while rest:
            word = rest[0]
            count = _value_count(self.get_params(ctx), word)
            if word == "--":
                kind, length = "quoted", len(rest)
            elif count is not None:
                kind, length = "option", 1 + count
            elif free and word.startswith("--"):
                has_value = "=" not in word and len(rest) > 1 and not rest[1].startswith("--")
                kind, length = "free", 1 + has_value
            else:
                kind, length = "word", 1
            yield kind, rest[:length]
            del rest[:length]


class PolicyCommand(Command):
    """A command whose `--policy` may stand without a value, before another option or at the end."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write the value that it has then."""
        whole = [
            "--policy=all" if word == "--policy" and following.startswith("-") else word
            for word, following in zip_longest(args, args[1:], fillvalue="-")
        ]
        return super().parse_args(ctx, whole)


class DashedValueCommand(Command):
    """A command whose last word is a value that may start with `-` (`param set cnn args --steps=9`)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the options to the front, so that the value is never taken for one."""
        parts: dict[str, list[str]] = {"option": [], "word": [], "quoted": []}
        for kind, piece in self.pieces(ctx, args):
            parts[kind] += piece
        words, quoted = parts["word"], parts["quoted"][1:]
        before_value = words if quoted else words[:-1] or words[: len(words) < 2]
        for word in () if ctx.resilient_parsing else before_value:
            if word.startswith("-") and len(word) > 1:
                name = word.partition("=")[0]
                near = nearest_option(name, self.params)
                hint = f"did you mean `{near}`?" if near else f"{ctx.command_path} --help"
                raise UsageError(f"`{ctx.command_path}` has no option `{name}`", hint=hint)
        return super().parse_args(ctx, [*parts["option"], "--", *words, *quoted])


class FreeOptionsCommand(Command):
    """A command that takes the parameters of a prototype as options (`--model_path=gs://models`).

    An option that the command does not declare itself becomes `--set NAME=VALUE`; without a value
    `--set NAME`, which only a boolean parameter takes.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write unknown long options as `--set`."""
        rewritten: list[str] = []
        for kind, piece in self.pieces(ctx, args, free=True):
            rewritten += ["--set", "=".join(piece)[2:]] if kind == "free" else piece
        return super().parse_args(ctx, rewritten)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offer the options, and the parameters of the prototype."""
        names = prototype_options(ctx.params.get(self.params[0].name), incomplete)
        return [*super().shell_complete(ctx, incomplete), *(SimpleNamespace(value=n, help="") for n in names)]


def _is_true(name: str, text: str) -> bool:
    word = text.lower()
    if word not in ("true", "false", "yes", "no", "1", "0"):
        raise UsageError(f"`{name}` takes true or false, got `{text}`", hint=f"{name}, or {name}=false")
    return word in ("true", "yes", "1")


def _value_count(params: Sequence[Any], word: str) -> int | None:
    """Tell how many further words a declared option takes; None when it is not declared."""
    name, equals, _ = word.partition("=")
    for param in params:
        spellings = [*param.opts, *param.secondary_opts] if param.param_type_name == "option" else []
        if name in spellings:
            return 0 if equals or param.is_flag else 1
        shorts = [spelling for spelling in spellings if len(spelling) == 2]
        if not word.startswith("--") and word.startswith(tuple(shorts)):
            return 0
    return None


_GROUP_EXAMPLES = 4


class Group(PlainHelp, TyperGroup):
    """A group of commands that shows its help when called alone and names the nearest command."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Make the parser of a command when it is asked for: one run needs one of them."""
        make: Any = self.commands.get(cmd_name)
        return make and make()

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
        """Find the command that was typed; a UsageError names the nearest one of the group or below one."""
        name, commands = args[0], self.list_commands(ctx)
        if name in commands or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        meant = (word for word in OTHER_WORDS.get(name.lower(), ()) if word.split(" ")[0] in commands)
        near = next(meant, None) or nearest(name, commands)
        hint = f"did you mean `{ctx.command_path} {near}`?" if near else f"{ctx.command_path} --help"
        raise UsageError(f"no command `{ctx.command_path} {name}`", hint=hint)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the first example of its commands."""
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        shown = [command for command in commands if command and command.epilog and not command.hidden]
        examples = [cleandoc(command.epilog or "").splitlines()[2] for command in shown]
        self.epilog = "\n".join(["\b", "Example:", *examples[:_GROUP_EXAMPLES]])
        super().format_epilog(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each command with the whole first line of its help."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                (name, (command.help or "").partition("\n")[0].rstrip("."))
                for name, command in commands
                if command is not None and not command.hidden
            )


class ListingGroup(Group):
    """A group whose name alone lists: `history gke` is `history list gke`."""

    default = "list"  # the command that is meant where none is named

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default before anything that is no command of the group."""
        is_command = args and args[0] in (*self.list_commands(ctx), "help", "--help", "-h")
        if not is_command and (args or not ctx.resilient_parsing):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offer the commands, and what the default takes."""
        listing: Any = self.get_command(ctx, self.default)
        inner = listing.make_context(self.default, [], parent=ctx, resilient_parsing=True)
        words = [param for param in listing.params if param.param_type_name == "argument"]
        offered = [item for param in words for item in param.shell_complete(inner, incomplete)]
        return [*super().shell_complete(ctx, incomplete), *offered]


class Program(Group):
    """The program itself: knows its commands by name and imports one when it runs."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Give the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        module, group, *command = COMMANDS[cmd_name][0].split(".")
        built = getattr(import_module(f"mlstack.cli.commands.{module}"), group).group
        return built.get_command(ctx, command[0]) if command else built

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without importing a command."""
        formatter.write(program_help(formatter.width + 2))


@cache
def built_program() -> Any:
    """Make the parser, once a process: `demo` and tests run many command lines in one."""
    return typer.main.get_command(program)


# --- how commands are declared ---


class Family:
    """A group of commands, which functions become; without a name these are commands of the program."""

    def __init__(self, name: str = "", help_text: str = "", *, cls: type[Group] = Group) -> None:
        self._path = f"mlstack {name}".rstrip()  # what is typed before a command
        self.group = cls(name=name, help=help_text, rich_markup_mode=None)

    def command(
        self,
        name: str | None = None,
        /,
        *,
        cls: type[TyperCommand] = Command,
        takes: str = "folder output",
        examples: Sequence[str] = ("",),
        hidden: bool = False,
        add_help_option: bool = True,
        shared: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> Callable[[Function], Function]:
        """Register a command: a function of the session and of what this command alone takes.

        The defaults of its parameters are declarations (`options.option`, `options.word`). What it returns is
        its exit code, or a result to print as `-o` says. Options that others have too: `session.options`.

        Args:
            name, cls: the command, None takes the function's name; how it is parsed.
            takes: shared options (`options.Options`) in the order of the help; the function's own parameters
                stand before them, those that are named here in their place.
            examples: command lines for the end of the help; what begins otherwise stands behind the command.
            hidden, add_help_option: whether no help lists it; whether `--help` is handled for it.
            shared: further options by name, type and declaration, that the function takes as `**settings`.
        """

        def add(function: Function) -> Function:
            word = name or function.__name__
            facts: dict[str, Any] = {"cls": cls, "hidden": hidden, "add_help_option": add_help_option}

            @cache
            def make() -> Any:
                facts["epilog"] = _epilog(f"{self._path} {word}", examples)
                info = CommandInfo(word, callback=_parsed(function, takes.split(), shared or {}), **facts)
                return get_command_from_info(info, pretty_exceptions_short=False, rich_markup_mode=None)

            self.group.commands[word] = make  # type: ignore[assignment]  # see `get_command`
            return function

        return add


def _epilog(path: str, examples: Sequence[str]) -> str:
    lines = [text if text.startswith("mlstack ") else f"{path} {text}".rstrip() for text in examples]
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def _parsed(
    function: Callable[..., Any], order: Sequence[str], further: Mapping[str, tuple[Any, Any]]
) -> Callable[..., int]:
    """Give the function that typer calls: of the context, and of every option as a parameter."""
    declared = inspect.signature(function, eval_str=True).parameters.values()
    own = {
        option.name: (option.annotation, option.default)
        for option in declared
        if option.default is not MISSING
    }
    own |= further
    taken = {
        name: own.get(name) or SHARED[name] for name in (*(name for name in own if name not in order), *order)
    }

    def run(ctx: Any, **values: Any) -> int:
        session: Session = ctx.obj
        for name, (kind, _) in taken.items():
            values[name] = tuple(values[name] or ()) if is_list(kind) else values[name]
        shared = {name: values.pop(name) for name in order if name not in own}
        shared = {"output" if name.endswith("output") else name: value for name, value in shared.items()}
        session.ctx, session.options, session.arguments = ctx, Options(**shared), {**values, **shared}
        result = function(session, **values)
        return result if isinstance(result, int) else emit(result, session.options.output)

    parameters = [parameter(name, kind, declaration) for name, (kind, declaration) in taken.items()]
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    run.__name__, run.__doc__, run.__annotations__ = function.__name__, function.__doc__, {}
    run.__signature__ = inspect.Signature([context, *parameters])  # type: ignore[attr-defined]  # for typer
    return run


program = typer.Typer(
    cls=Program,
    help=SUMMARY,
    epilog=NEXT_STEP,
    context_settings={"help_option_names": ["--help", "-h"]},
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
        write(f"mlstack {__version__}")
        raise typer.Exit


@program.callback()
def root(
    ctx: typer.Context,
    folder: Annotated[Path | None, typer.Option("--dir", metavar="DIR", help=OPTIONS["--dir DIR"])] = None,
    debug: Annotated[bool, typer.Option("--debug", help=OPTIONS["--debug"])] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help=OPTIONS["--version"])
    ] = False,
) -> None:
    """Take the options that stand before the command."""
    session: Session = ctx.obj
    session.folder, session.debug = folder, debug


# --- one command line ---

FILE_EXIT_CODE = 3

# The root of all usage faults: its place moved between typer's releases, its kinship did not.
ParserError: type[Exception] = typer.BadParameter.__base__.__base__  # type: ignore[union-attr,assignment]


def main(argv: Sequence[str] | None = None, *, ports: Ports | None = None) -> int:
    """Run one command line and give its exit code; no exception leaves.

    Args:
        argv: the words after the program's name; None takes those of the process.
        ports: the ways out of the process; None takes the real ones.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    session = Session(ports=ports or Ports())
    interruption = Interruption.of_process()
    with guarded(), masking.collecting():
        try:
            with interruption:
                code = _run(words, session)
            if code == INTERRUPTED_EXIT_CODE:
                raise KeyboardInterrupt
            return code
        except (ClosedOutputError, BrokenPipeError):
            return stop_writing()
        except (KeyboardInterrupt, typer.Abort):
            if not interruption.is_told:  # else by a command of the demo
                say(interruption.word)
            interruption.is_told = True
            return interruption.exit_code
        except MlstackError as error:
            return _fail(words, error.exit_code, error)
        except ParserError as error:
            return _fail(words, UsageError.exit_code, _usage_error(error))
        except OSError as error:
            reason = (error.strerror or str(error) or type(error).__name__).lower()
            place = str(error.filename) if error.filename else None
            hint = "check the path, its rights and the disk"
            return _fail(words, FILE_EXIT_CODE, MlstackError(reason, where=place, hint=hint))
        except Exception as error:  # the boundary: whatever gets here is a fault of ours
            return _fail(words, INTERNAL_EXIT_CODE, _internal_fault(error, words, session))


def _internal_fault(error: Exception, words: Sequence[str], session: Session) -> MlstackError:
    if session.debug:
        say("".join(traceback.format_exception(error)).rstrip())
    again = f"run it again as `mlstack --debug {words[0] if words else ''} …`, and report what it prints"
    message = f"internal fault: {type(error).__name__}: {error}"
    return MlstackError(message, hint=None if session.debug else again)


def _run(words: list[str], session: Session) -> int:
    command = built_program()
    if os.environ.get("_MLSTACK_COMPLETE"):
        write(options.answer(command, os.environ, session))
        return 0
    code = command.main(args=words, prog_name="mlstack", standalone_mode=False, obj=session)
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _fail(words: Sequence[str], code: int, error: MlstackError) -> int:
    is_json = any(word in ("-ojson", "-o=json", "--output=json") for word in words)
    if is_json or any(pair in (("-o", "json"), ("--output", "json")) for pair in pairwise(words)):
        facts = {"message": error.message, "where": error.where, "hint": error.hint, "exitCode": code}
        document = {"error": {key: fact for key, fact in facts.items() if fact is not None}}
        say(json_escaped(json.dumps(masking.scrubbed_value(document), ensure_ascii=False)))
    else:
        say(*error.messages())
    return code


def _usage_error(error: Any) -> MlstackError:
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    text = " ".join(str(error.message if option else error.format_message()).split()).rstrip(".")
    path = context.command_path if context else "mlstack"
    hint = f"{path} --help"
    if option and context:
        params = context.command.get_params(context)
        takes_environment = any(param.human_readable_name in ("[ENV]", "[ENV]...") for param in params)
        near = nearest_option(option, params)
        hint = f"did you mean `{near}`?" if near and near != option else hint
        hint = f"{path} ENV" if option == "--env" and takes_environment else hint
    return MlstackError(text[:1].lower() + text[1:], hint=hint)
