"""The command line: the table of commands, global options, the error boundary and the exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from mlstack import __version__
from mlstack.cli.adapters import Ports, Session, real_ports
from mlstack.cli.helping import nearest_option
from mlstack.cli.interruption import INTERRUPTED_EXIT_CODE, Interruption
from mlstack.cli.output import ClosedOutputError, guarded, json_escaped, say, stop_writing, write
from mlstack.cli.parsing import Group, command_of
from mlstack.errors import INTERNAL_EXIT_CODE, MlstackError
from mlstack.model import masking

USAGE_EXIT_CODE = 2
FILE_EXIT_CODE = 3

# The root of all usage faults: its place moved between typer's releases, its kinship did not.
ParserError: type[Exception] = typer.BadParameter.__base__.__base__  # type: ignore[union-attr,assignment]


class Entry(NamedTuple):
    """One command of the program: the module it is imported from when it runs, and its line of help."""

    module: str
    command: str | None
    help: str


COMMANDS: dict[str, Entry] = {
    "init": Entry("app", "init", "Create an app directory"),
    "registry": Entry("registry", None, "Where packages come from: add, list, describe, index"),
    "pkg": Entry("pkg", None, "Packages of prototypes: install, list, describe, rm"),
    "prototype": Entry("prototype", None, "What can be generated: list, search, describe, preview, use"),
    "generate": Entry("component", "generate", "Make a component from a prototype"),
    "component": Entry("component", "component", "What the app deploys: list, rm"),
    "param": Entry("param", None, "Parameters: set, unset, list, diff, explain"),
    "env": Entry("env", None, "Environments: add, list, describe, set, rm, current"),
    "render": Entry("deploy", "render", "Print the Kubernetes objects of an environment"),
    "show": Entry("deploy", "render", "The same as render"),
    "validate": Entry("deploy", "validate", "Check the objects of an environment, offline"),
    "diff": Entry("planning", "diff", "Show what apply would change in the cluster"),
    "plan": Entry("planning", "plan", "Keep what apply would do in a file, to be approved"),
    "apply": Entry("deploy", "apply", "Make the cluster match the app"),
    "delete": Entry("deploy", "delete", "Remove an environment's objects from the cluster"),
    "status": Entry("deploy", "status", "Tell whether what was applied works, and why not"),
    "history": Entry("history", None, "What was applied to an environment: list, show, diff"),
    "unlock": Entry("unlock", "unlock", "Free an environment that a dead run left locked"),
    "rollback": Entry("rollback", "rollback", "Apply an earlier revision again"),
    "elastic": Entry("elastic", None, "Elastic training jobs: run, plan, status, simulate"),
    "demo": Entry("demo", "demo", "See it all work, on a cluster in memory"),
    "schema": Entry("shell", "schema", "Print the JSON Schema of a file or of what a command prints"),
    "completion": Entry("shell", "completion", "Print the completion script of a shell"),
    "version": Entry("shell", "version", "Print the versions of mlstack and its libraries"),
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
        from mlstack.cli import complete

        write(complete.answer(command, os.environ, session))
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
