"""The command line: how commands are declared and parsed, their table, the error boundary, the exit codes."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from mlstack import __version__
from mlstack.cli.interruption import INTERRUPTED_EXIT_CODE, Interruption
from mlstack.cli.output import ClosedOutputError, emit, guarded, json_escaped, say, stop_writing, write
from mlstack.cli.ports import Ports, Session, real_ports
from mlstack.errors import INTERNAL_EXIT_CODE, MlstackError, UsageError
from mlstack.names import nearest
from mlstack.objects import masking

Function = TypeVar("Function", bound=Callable[..., Any])

# --- help that differs from typer's own ---


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


def nearest_option(name: str, params: Sequence[Any]) -> str | None:
    """Find the long option that a mistyped one most likely stands for."""
    known = {option[2:]: option for param in params for option in param.opts if option.startswith("--")}
    near = nearest(name.lstrip("-"), known)
    return known[near] if near is not None else None


# --- groups, free options, values with dashes ---


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
        options: list[str] = []
        words: list[str] = []
        quoted: list[str] = []  # what stands behind `--`
        rest = list(args)
        while rest:
            word = rest.pop(0)
            count = _value_count(self.get_params(ctx), word)
            if word == "--":
                quoted, rest = rest, []
            elif count is None:
                words.append(word)
            else:
                options += [word, *rest[:count]]
                del rest[:count]
        words += quoted
        for word in () if ctx.resilient_parsing else words[:-1] or words[: len(words) < 2]:
            if word.startswith("-") and len(word) > 1 and word not in quoted:
                self._refuse_option(ctx, word.partition("=")[0])
        return super().parse_args(ctx, [*options, "--", *words])

    def _refuse_option(self, ctx: Any, name: str) -> NoReturn:
        near = nearest_option(name, self.params)
        hint = f"did you mean `{near}`?" if near else f"{ctx.command_path} --help"
        raise UsageError(f"`{ctx.command_path}` has no option `{name}`", hint=hint)


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
            count = _value_count(self.get_params(ctx), word)
            if word == "--":
                rewritten += ["--", *rest]
                rest = []
            elif count is not None:
                rewritten += [word, *rest[:count]]
                del rest[:count]
            elif word.startswith("--"):
                has_value = "=" not in word and rest and not rest[0].startswith("--")
                rewritten += ["--set", f"{word[2:]}={rest.pop(0)}" if has_value else word[2:]]
            else:
                rewritten.append(word)
        return super().parse_args(ctx, rewritten)


def _value_count(params: Sequence[Any], word: str) -> int | None:
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


# --- how commands are declared ---


class Family(typer.Typer):
    """A group whose commands are of our own kind."""

    def command(
        self,
        name: str | None = None,
        *,
        cls: type[TyperCommand] | None = Command,
        takes: str = "folder output",
        examples: Sequence[str] = (),
        **facts: Any,
    ) -> Callable[[Function], Function]:
        """Register a command: a function of the session and of what this command alone takes.

        What it returns is its exit code, or a result that is printed as `-o` says. The options that it shares
        with other commands it finds in `session.given`.

        Args:
            name: the command; None takes the function's name.
            cls: how it is parsed.
            takes: shared options (`options.SHARED`) in the order of the help; the function's own parameters
                stand before them, those that are named here in their place.
            examples: command lines for the end of the help.
            facts: for typer.
        """
        from mlstack.cli.options import example

        facts.setdefault("epilog", example(*examples))
        register = super().command(name, cls=cls, **facts)

        def add(function: Function) -> Function:
            register(_with_shared_options(function, takes.split()))
            return function

        return add


def _with_shared_options(function: Callable[..., Any], order: Sequence[str]) -> Callable[..., Any]:
    from mlstack.cli.options import SHARED

    own = dict(inspect.signature(function, eval_str=True).parameters)
    del own["session"]

    def run(ctx: Any, **values: Any) -> int:
        session: Session = ctx.obj
        session.ctx, session.given = ctx, {name: values.pop(name) for name in order if name not in own}
        result = function(session, **values)
        return result if isinstance(result, int) else emit(result, session.given["output"])

    parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    for name in (*(name for name in own if name not in order), *order):
        annotation, default = (own[name].annotation, own[name].default) if name in own else SHARED[name]
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        )
    run.__name__, run.__doc__, run.__annotations__ = function.__name__, function.__doc__, {}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer looks at
    return run


def family(help_text: str = "", *, cls: type[Group] = Group) -> Family:
    """Make a group of commands."""
    group = Family(
        cls=cls,
        help=help_text,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    group.callback()(_no_options)
    return group


def _no_options() -> None:
    """Keep a group a group even when it has one command."""


def command_of(group: typer.Typer, name: str | None) -> Any:
    """Give one command of a group in the form that a parent group takes, or the group itself."""
    built = _built(group)
    return built if name is None else built.commands[name]


@cache
def _built(group: typer.Typer) -> Any:
    """Make the parser of a group, once a process: `demo` and tests run many command lines in one."""
    return typer.main.get_command(group)


# --- the table of commands ---

USAGE_EXIT_CODE = 2
FILE_EXIT_CODE = 3

# The root of all usage faults: its place moved between typer's releases, its kinship did not.
ParserError: type[Exception] = typer.BadParameter.__base__.__base__  # type: ignore[union-attr,assignment]


class CommandEntry(NamedTuple):
    """One command: the module of `cli.commands` and the group in it where it is found when it runs."""

    module: str
    group: str
    command: str | None  # None is the group itself
    help: str


COMMANDS: dict[str, CommandEntry] = {
    "init": CommandEntry("app", "top", "init", "Create an app directory"),
    "registry": CommandEntry(
        "packages", "registry", None, "Where packages come from: add, list, describe, index"
    ),
    "pkg": CommandEntry("packages", "pkg", None, "Packages of prototypes: install, list, describe, rm"),
    "prototype": CommandEntry(
        "packages", "prototype", None, "What can be generated: list, search, describe, preview, use"
    ),
    "generate": CommandEntry("packages", "top", "generate", "Make a component from a prototype"),
    "component": CommandEntry("packages", "component", None, "What the app deploys: list, rm"),
    "param": CommandEntry("param", "param", None, "Parameters: set, unset, list, diff, explain"),
    "env": CommandEntry("app", "env", None, "Environments: add, list, describe, set, rm, current"),
    "render": CommandEntry("deploy", "top", "render", "Print the Kubernetes objects of an environment"),
    "show": CommandEntry("deploy", "top", "render", "The same as render"),
    "validate": CommandEntry("deploy", "top", "validate", "Check the objects of an environment, offline"),
    "diff": CommandEntry("deploy", "top", "diff", "Show what apply would change in the cluster"),
    "plan": CommandEntry("deploy", "top", "plan", "Keep what apply would do in a file, to be approved"),
    "apply": CommandEntry("deploy", "top", "apply", "Make the cluster match the app"),
    "delete": CommandEntry("deploy", "top", "delete", "Remove an environment's objects from the cluster"),
    "status": CommandEntry("deploy", "top", "status", "Tell whether what was applied works, and why not"),
    "history": CommandEntry(
        "deploy", "history", None, "What was applied to an environment: list, show, diff"
    ),
    "unlock": CommandEntry("deploy", "top", "unlock", "Free an environment that a dead run left locked"),
    "rollback": CommandEntry("deploy", "top", "rollback", "Apply an earlier revision again"),
    "elastic": CommandEntry(
        "elastic", "commands", None, "Elastic training jobs: run, plan, status, simulate"
    ),
    "demo": CommandEntry("demo", "top", "demo", "See it all work, on a cluster in memory"),
    "schema": CommandEntry(
        "shell", "top", "schema", "Print the JSON Schema of a file or of what a command prints"
    ),
    "completion": CommandEntry("shell", "top", "completion", "Print the completion script of a shell"),
    "version": CommandEntry("shell", "top", "version", "Print the versions of mlstack and its libraries"),
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
        return command_of(getattr(module, entry.group), entry.command)

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


# --- one command line ---


def main(argv: Sequence[str] | None = None, *, ports: Ports | None = None) -> int:
    """Run one command line and give its exit code; no exception leaves.

    Args:
        argv: the words after the program's name; None takes those of the process.
        ports: the ways out of the process; None takes the real ones.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    session = Session(ports=ports or real_ports())
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
            say(interruption.word)
            return interruption.exit_code
        except MlstackError as error:
            return _fail(words, error.exit_code, error)
        except ParserError as error:
            return _fail(words, USAGE_EXIT_CODE, _usage_error(error))
        except OSError as error:
            reason = (error.strerror or str(error) or type(error).__name__).lower()
            place = str(error.filename) if error.filename else None
            hint = "check the path, its rights and the disk"
            return _fail(words, FILE_EXIT_CODE, MlstackError(reason, where=place, hint=hint))
        except Exception as error:  # the boundary: whatever gets here is a fault of ours
            return _fail(words, INTERNAL_EXIT_CODE, _internal_fault(error, words, session))


def _run(words: list[str], session: Session) -> int:
    command = command_of(program, None)
    if os.environ.get("_MLSTACK_COMPLETE"):
        from mlstack.cli import options

        write(options.answer(command, os.environ, session))
        return 0
    code = command.main(args=words, prog_name="mlstack", standalone_mode=False, obj=session)
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _fail(words: Sequence[str], code: int, error: MlstackError) -> int:
    if any(word in _JSON_WORDS for word in words) or any(pair in _JSON_PAIRS for pair in pairwise(words)):
        import json

        facts = {"message": error.message, "where": error.where, "hint": error.hint, "exitCode": code}
        document = {"error": {key: fact for key, fact in facts.items() if fact is not None}}
        say(json_escaped(json.dumps(masking.scrubbed_value(document), ensure_ascii=False)))
    else:
        say(*error.messages())
    return code


_JSON_WORDS = ("-ojson", "-o=json", "--output=json")
_JSON_PAIRS = (("-o", "json"), ("--output", "json"))


def _internal_fault(error: Exception, words: Sequence[str], session: Session) -> MlstackError:
    if session.debug:
        import traceback

        say("".join(traceback.format_exception(error)).rstrip())
    again = f"run it again as `mlstack --debug {words[0] if words else ''} …`, and report what it prints"
    message = f"internal fault: {type(error).__name__}: {error}"
    return MlstackError(message, hint=None if session.debug else again)


def _usage_error(error: Any) -> MlstackError:
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
    return MlstackError(text[:1].lower() + text[1:], hint=hint)
