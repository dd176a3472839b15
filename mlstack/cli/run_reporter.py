"""What runs show: the question with the changes in view, a line an object, the summary; `status --watch`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlstack.cli import page, views_deploy
from mlstack.cli.fast import INTERRUPTED_EXIT_CODE
from mlstack.cli.output import ClosedOutputError, is_terminal, say, stop_writing, write
from mlstack.cli.page import Page, TextLine, document, emit, plain, show
from mlstack.cli.ports import operations
from mlstack.errors import ConfigError, MlstackError, UsageError

if TYPE_CHECKING:
    from mlstack.cli.ports import Session
    from mlstack.clock import Clock
    from mlstack.deploy.changes import ChangeReport, Changes, RunEvent, RunResult
    from mlstack.deploy.plan import ApplyPlan
    from mlstack.deploy.reapply import LastGood
    from mlstack.operations.status import StatusResult


# --- the question ---

# The command is not written out: its options belong to it, as the revision of a rollback does.
_REPEAT = "nothing was done; repeat with --dry-run to see what would be done, then with --yes"


def confirmed(
    plan: ApplyPlan, verb: str, session: Session, *, yes: bool | None = None, always: bool = False
) -> bool:
    """Tell whether a run may start.

    On a terminal a person is asked when something that exists changes or goes, with the changes in view (with
    `always` whatever the plan holds). Without one, deletions and recreations need `--yes`, or `yes`. A
    protected environment wants its name for every run that changes anything.
    """
    changes, environment = plan.changes, plan.changes.environment
    if is_meant(environment, session) or not changes.visible:
        return True
    interactive = session.ports.interactive()
    is_sure = session.options.yes if yes is None else yes
    if not plan.place.protected and (is_sure or not _at_stake(plan, interactive, always=always)):
        return True
    if not interactive:  # a person sees them with the changes
        for note in changes.notes:
            say(f"note: {note}")
    place = f"`{environment}` (context {changes.context}, namespace {changes.namespace})"
    counts = [
        f"{action} {n}" for action, n in changes.counts().items() if action not in ("unchanged", "kept")
    ]
    *others, last = counts
    noun = "object" if last.endswith(" 1") else "objects"
    what = f"`{verb}` would {', '.join(others)}{' and ' if others else ''}{last} {noun}"
    if plan.place.protected:
        return name_typed(environment, session, f"{what} there", f"{verb} this in {place}", plan.report)
    refusal = f"{what} in `{environment}`, and nobody is here to confirm it"
    return agreed(session, f"{verb.capitalize()} this in {place}?", refusal, _REPEAT, plan.report)


def all_confirmed(plans: Sequence[ApplyPlan], verb: str, session: Session, *, always: bool = False) -> bool:
    """Tell whether several runs may start, by one question; each protected environment wants its name."""
    meant, names = session.options.yes_i_mean, [plan.place.name for plan in plans]
    if meant is not None and meant not in names:
        is_meant(names[0] if names else "", session)
    changing = [plan for plan in plans if plan.changes.visible and plan.place.name != meant]
    if any(not confirmed(plan, verb, session) for plan in changing if plan.place.protected):
        return False
    interactive = session.ports.interactive()
    asked = [
        plan for plan in changing if not plan.place.protected and _at_stake(plan, interactive, always=always)
    ]
    listed = ", ".join(f"`{plan.place.name}`" for plan in asked)
    refusal = f"`{verb}` would change or delete what exists in {listed}, and nobody is here to confirm it"
    question = f"{verb.capitalize()} all this in {listed}?"
    return not asked or agreed(session, question, refusal, _REPEAT, *(plan.report for plan in asked))


def _at_stake(plan: ApplyPlan, interactive: bool, *, always: bool) -> bool:
    return always or (plan.changes_existing if interactive else plan.destructive)


def agreed(session: Session, question: str, refusal: str, hint: str, *changes: ChangeReport) -> bool:
    """Tell whether `--yes`, or a person who sees the changes, answers yes."""
    if session.options.yes:
        return True
    if not session.ports.interactive():
        raise UsageError(refusal, hint=hint)
    for report in changes:
        show(views_deploy.change_summary(report), to_stderr=True)
    return _noted(session.ports.ask(question))


def is_meant(environment: str, session: Session) -> bool:
    """Tell whether `--yes-i-mean` names the environment."""
    name = session.options.yes_i_mean
    if name not in (None, environment):
        hint = f"nothing was done; if you mean it: --yes-i-mean {environment}"
        raise UsageError(f"`--yes-i-mean {name}` names another environment than `{environment}`", hint=hint)
    return name is not None


def name_typed(
    environment: str, session: Session, what: str, action: str, report: ChangeReport | None = None
) -> bool:
    """Tell whether a person typed the name of a protected environment, shown the changes of `report`.

    `what` would be done, as a message says it, and `action`, as a question does.
    """
    if not session.ports.interactive():
        message = f"environment `{environment}` is protected: {what}, and nobody is here to type its name"
        hint = f"nothing was done; --yes is not enough, repeat with: --yes-i-mean {environment}"
        raise UsageError(message, hint=hint)
    if report is not None:
        show(views_deploy.change_summary(report), to_stderr=True)
    question = f"`{environment}` is protected. Type its name to {action}:"
    return _noted(session.ports.ask_text(question) == environment)


def _noted(is_yes: bool) -> bool:
    if not is_yes:
        say("nothing was done")
    return is_yes


# --- the results of several environments ---


class Results:
    """The results for several environments: told one after the other, or printed as one list at the end."""

    def __init__(self, session: Session) -> None:
        self._format, self._keeps_going = session.options.output, session.options.keep_going
        self._items: list[Any] = []  # results; mappings for those that failed
        self._code = 0

    @property
    def prints(self) -> bool:
        """Tell whether they are told one after the other."""
        return self._format == "table"

    @contextmanager
    def of(self, environment: str, *, quiet: bool = False) -> Iterator[None]:
        """Work for one environment; what fails is kept, and raised again unless the others are to go on.

        Its name stands above what is told of it; if it works in `quiet`, above its fault alone.
        """
        if self.prints and not quiet:
            write(f"--- {environment} ---")
        try:
            yield
        except (MlstackError, KeyboardInterrupt) as error:
            if quiet and self.prints:
                say(f"--- {environment} ---")
            self._items.append(_failed(environment, error))
            if isinstance(error, KeyboardInterrupt) or not self._keeps_going:
                self._print()
                raise
            say(*error.messages())
            self._code = self._code or error.exit_code

    def add(self, result: object, show: Callable[[Any, str], int] | None = emit) -> None:
        """Take a result; as a table it is printed at once, as `show` prints it."""
        self._items.append(result)
        code = show(result, "table") if self.prints and show is not None else int(not _is_ok(result))
        self._code = self._code or code

    def end(self) -> int:
        """Print the list and give the exit code: of the first that failed, else 1 if one says no."""
        self._print()
        return self._code

    def _print(self) -> None:
        if self._format == "name":
            for item in self._items:
                if not isinstance(item, dict):
                    emit(item, "name")
        elif not self.prints:
            from mlstack.deploy.changes import ResultList

            items = tuple(document(item) for item in self._items)
            emit(ResultList(ok=all(map(_is_ok, self._items)), items=items), self._format)


def _is_ok(item: Any) -> bool:
    return bool(item["ok"] if isinstance(item, dict) else getattr(item, "ok", True))


def _failed(environment: str, error: MlstackError | KeyboardInterrupt) -> dict[str, Any]:
    """Give what the list holds of an environment that failed, with what was done until then."""
    fault: dict[str, Any] = {"message": "interrupted", "exitCode": INTERRUPTED_EXIT_CODE}
    if isinstance(error, MlstackError):
        facts = {"message": error.message, "where": error.where, "hint": error.hint}
        fault = {**{key: fact for key, fact in facts.items() if fact}, "exitCode": error.exit_code}
    partial = getattr(error, "partial", None)
    done = {} if partial is None else {"partial": plain(partial)}
    return {"environment": environment, "ok": False, "error": fault, **done}


# --- the run ---

_TALK = ("waiting", "pending", "still", "warning", "note")


class Reporter:
    """Prints what happens: objects on stdout in the order of the plan, talk on stderr at once.

    Objects of one wave are written at the same time; a line waits for those before it, so that the same
    run always reads the same. Objects are printed as they come in table form alone.
    """

    def __init__(self, changes: Changes, output_format: str) -> None:
        self._awaited = [str(change.identity) for change in changes.changes]
        self._ended: dict[str, TextLine] = {}
        self._prints = output_format == "table"

    def __call__(self, event: RunEvent) -> None:
        """Take one event."""
        if event.kind in _TALK:
            # What only passes is for a terminal, what is said again for a log; the rest is for both.
            if event.kind not in ("waiting", "still") or is_terminal(sys.stderr) == (event.kind == "waiting"):
                word = "waiting" if event.kind in ("pending", "still") else event.kind
                whom = "" if event.identity is None else f"{event.identity}: "
                say(f"{word}: {whom}{event.text}")
            return
        name = str(event.identity)
        self._ended[name] = views_deploy.outcome_line(event.kind, name, event.text)
        while self._awaited and self._awaited[0] in self._ended:
            self._print(self._awaited.pop(0))

    def flush(self) -> None:
        """Print what ended although something before it did not."""
        for name in list(self._ended):
            self._print(name)

    def _print(self, name: str) -> None:
        line = self._ended.pop(name)
        if self._prints:
            _print(line)


def _print(what: TextLine | RunResult, output_format: str = "table") -> None:
    """Print a part of a run, which neither ends nor fails because nobody can read of it any more."""
    try:
        if isinstance(what, TextLine):
            show(Page((what,)))
        else:
            emit(what, output_format)
    except ClosedOutputError:
        stop_writing()
    except ConfigError as error:
        say(f"note: {error.message}; this changes nothing about the run: `mlstack status` tells of it")


LISTED = "listed"
"""The output format of a run whose result is one of a list, which is printed as a whole."""


def carry_out(plan: ApplyPlan, output_format: str, *, clock: Clock, is_second: bool = False) -> RunResult:
    """Do what was planned and confirmed, and print it; when it fails half-way, what was done until then."""
    reporter = Reporter(plan.changes, output_format)
    try:
        result = operations.deploy.apply(plan, on_event=reporter, clock=clock)
    except BaseException as error:  # an interruption carries a partial result as well
        reporter.flush()
        partial = getattr(error, "partial", None)
        if partial is not None:
            _sum_up(partial, output_format, is_second=is_second)
        raise
    reporter.flush()
    _sum_up(result, output_format, is_second=is_second)
    return result


def _sum_up(result: RunResult, output_format: str, *, is_second: bool) -> None:
    """Print the end of a run; in table form its objects were printed as they came.

    Of a run and the second one that goes back only the first gives a result for programs.
    """
    if output_format == "table":
        _print(views_deploy.summary_line(result))
    elif output_format != LISTED and not is_second:
        _print(result, output_format)
    was_written = any(row.outcome in ("created", "updated", "recreated") for row in result.objects)
    if output_format == "table" and result.ok and not result.dry_run and was_written and not is_second:
        say(f"next: mlstack status {result.environment}")


@contextmanager
def going_back(plan: ApplyPlan, output_format: str, *, clock: Clock) -> Iterator[ApplyPlan]:
    """Give the run to carry out; roll it back if it fails and that was asked for: it stays a failure."""
    if plan.options.on_failure != "rollback":
        yield plan
        return
    from mlstack.deploy.reapply import last_good

    good = last_good(plan)
    with operations.deploy.locked_to_the_end(plan) as locked:
        try:
            yield locked
        except MlstackError as error:
            _go_back(locked, error, good, output_format, clock)
            raise


def _go_back(
    plan: ApplyPlan, error: MlstackError, good: LastGood | None, output_format: str, clock: Clock
) -> None:
    say(f"failed: {error.message.partition(chr(10))[0]}")
    try:
        back = operations.deploy.plan_automatic_rollback(plan, error, good=good)
        if isinstance(back, str):
            say(f"note: {back}")
            return
        carry_out(back, output_format, clock=clock, is_second=True)
    except MlstackError as second:
        say(f"note: the rollback failed too: {second.message}")
        return
    say(f"rolled back; see `mlstack history {plan.place.name}`")


# --- `status --watch`: the whole tree again on a terminal, one line a change elsewhere ---


@contextmanager
def showing(output_format: str) -> Iterator[Callable[[StatusResult], None]]:
    """Give what shows a state; formats for programs show nothing before the end."""
    if output_format != "table":
        yield lambda result: None
    elif is_terminal(sys.stdout):
        with page.redrawing() as redraw:
            yield lambda result: redraw(page.page_of(result))
    else:
        states: dict[str, tuple[str, str]] = {}

        def print_changes(result: StatusResult) -> None:
            for row in (row for component in result.components for row in component.objects):
                if states.get(row.object) != (row.state, row.reason):
                    states[row.object] = (row.state, row.reason)
                    write(f"{row.state:<8} {row.object}{f': {row.reason}' if row.reason else ''}")

        yield print_changes
