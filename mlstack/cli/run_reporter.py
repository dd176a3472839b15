"""What `apply` and `delete` show: the question with the changes in view, a line an object, the summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from mlstack.cli import views_deploy
from mlstack.cli.output import ClosedOutputError, emit, is_terminal, say, stop_writing, write
from mlstack.cli.page import Page, TextLine, show
from mlstack.errors import ConfigError, MlstackError, UsageError

if TYPE_CHECKING:
    from mlstack.cli.ports import Ports
    from mlstack.clock import Clock
    from mlstack.deploy.deployment import ApplyPlan
    from mlstack.deploy.result import ChangeReport, RunResult
    from mlstack.deploy.rollback import KnownGood
    from mlstack.events import OnEvent, RunEvent


# --- What `apply` and `delete` show: the question with the changes in view, a line an object, the
# summary

QUIET = ("waiting", "pending", "still", "warning", "note")


class Plan(Protocol):
    """What has to be known about a run before it starts."""

    @property
    def report(self) -> ChangeReport:
        """Give what would be done."""

    @property
    def destructive(self) -> bool:
        """Tell whether something is deleted, if only to be made anew."""

    @property
    def changes_existing(self) -> bool:
        """Tell whether something that exists changes or goes."""

    @property
    def protected(self) -> bool:
        """Tell whether the environment wants its name typed for every change."""


def confirmed(
    plan: Plan,
    *,
    verb: str,
    ports: Ports,
    yes: bool,
    yes_i_mean: str | None = None,
    always: bool = False,
) -> bool:
    """Tell whether a run may start.

    On a terminal a person is asked when something that exists changes or goes, with the changes in view.
    Without one, deletions and recreations need `--yes`. A protected environment wants its name, typed on a
    terminal or given by `--yes-i-mean`, for every run that changes anything.

    Args:
        plan: what would be done.
        verb: the command, for the question.
        ports: who can be asked.
        yes: whether `--yes` was given.
        yes_i_mean: the environment's name, if `--yes-i-mean` was given.
        always: ask whatever the plan holds, as `delete` does.

    Raises:
        UsageError: nobody can be asked, and no option answers; or `--yes-i-mean` names another environment.
    """
    report = plan.report
    check_meant(report.environment, yes_i_mean)
    if report.ok or yes_i_mean is not None:
        return True
    place = f"`{report.environment}` (context {report.context}, namespace {report.namespace})"
    needs_answer = plan.protected or (
        not yes and _needs_answer(plan, always=always, interactive=ports.interactive())
    )
    if needs_answer and not ports.interactive():  # a person sees them with the changes
        for note in report.notes:
            say(f"note: {note}")
    if plan.protected:
        return named(
            report.environment,
            f"`{verb}` would {_what(report)} there",
            f"{verb} this in {place}",
            ports=ports,
            first=lambda: show(views_deploy.change_summary(report), to_stderr=True),
        )
    if not needs_answer:
        return True
    if not ports.interactive():
        look = f"mlstack {verb} {report.environment} --dry-run"
        raise UsageError(
            f"`{verb}` would {_what(report)} in `{report.environment}`, and nobody is here to confirm it",
            hint=f"nothing was done; see `{look}`, then repeat with --yes",
        )
    show(views_deploy.change_summary(report), to_stderr=True)
    if ports.ask(f"{verb.capitalize()} this in {place}?"):
        return True
    say("nothing was done")
    return False


def check_meant(environment: str, yes_i_mean: str | None) -> None:
    """Raise if `--yes-i-mean` was given another name than the environment's.

    Raises:
        UsageError: it was.
    """
    if yes_i_mean not in (None, environment):
        raise UsageError(
            f"`--yes-i-mean {yes_i_mean}` names another environment than `{environment}`",
            hint=f"nothing was done; if you mean it: --yes-i-mean {environment}",
        )


def named(
    environment: str, what: str, doing: str, *, ports: Ports, first: Callable[[], None] = lambda: None
) -> bool:
    """Tell whether a person typed the name of a protected environment.

    Args:
        environment: the name.
        what: what would be done, for a message.
        doing: what would be done, for the question.
        ports: who can be asked.
        first: shows what would be done.

    Raises:
        UsageError: nobody can be asked.
    """
    if not ports.interactive():
        raise UsageError(
            f"environment `{environment}` is protected: {what}, and nobody is here to type its name",
            hint=f"nothing was done; --yes is not enough, repeat with: --yes-i-mean {environment}",
        )
    first()
    if ports.ask_text(f"`{environment}` is protected. Type its name to {doing}:") == environment:
        return True
    say("nothing was done")
    return False


def _needs_answer(plan: Plan, *, always: bool, interactive: bool) -> bool:
    if always:
        return True
    return plan.changes_existing if interactive else plan.destructive


def _what(report: ChangeReport) -> str:
    words = [
        f"{action} {count}" for action, count in report.counts.items() if action not in ("unchanged", "kept")
    ]
    objects = "object" if words[-1].endswith(" 1") else "objects"
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) + f" {objects}"


class Reporter:
    """Prints what happens: objects on stdout in the order of the plan, talk on stderr at once.

    Objects of one wave are written at the same time; a line waits for those before it, so that the same
    run always reads the same.

    Args:
        report: what would be done.
        output_format: objects are printed as they come in table form alone.
    """

    def __init__(self, report: ChangeReport, output_format: str) -> None:
        """Begin with nothing done."""
        self._waiting = [row.object for row in report.objects]
        self._ended: dict[str, TextLine] = {}
        self._prints = output_format == "table"

    def __call__(self, event: RunEvent) -> None:
        """Take one event."""
        if event.kind in QUIET:
            # What only passes is for a terminal, what is said again for a log; the rest is for both.
            if event.kind not in ("waiting", "still") or is_terminal(sys.stderr) == (event.kind == "waiting"):
                word = "waiting" if event.kind in ("pending", "still") else event.kind
                say(f"{word}: {_sentence(event)}")
            return
        name = str(event.identity)
        self._ended[name] = views_deploy.outcome_line(event.kind, name, event.text)
        while self._waiting and self._waiting[0] in self._ended:
            self._print(self._waiting.pop(0))

    def flush(self) -> None:
        """Print what ended although something before it did not."""
        for name in list(self._ended):
            self._print(name)

    def _print(self, name: str) -> None:
        line = self._ended.pop(name)
        if self._prints:
            _print_of_run(lambda: show(Page((line,))))


def _print_of_run(write: Callable[[], object]) -> None:
    """Print something of a run, which neither ends nor fails because nobody can read of it any more."""
    try:
        write()
    except ClosedOutputError:
        stop_writing()
    except ConfigError as error:
        say(f"note: {error.message}; this changes nothing about the run: `mlstack status` tells of it")


def _sentence(event: RunEvent) -> str:
    return f"{event.identity}: {event.text}" if event.identity is not None else event.text


@contextmanager
def reporting(plan: Plan, output_format: str) -> Iterator[OnEvent]:
    """Give what prints a run's events; when it fails half-way, what was done is summed up first."""
    reporter = Reporter(plan.report, output_format)
    try:
        yield reporter
    except BaseException as error:  # an interruption carries a partial result as well
        reporter.flush()
        partial = getattr(error, "partial", None)
        if partial is not None:
            finish(partial, output_format)
        raise
    reporter.flush()


@contextmanager
def going_back(plan: ApplyPlan, output_format: str, *, clock: Clock) -> Iterator[ApplyPlan]:
    """Give the run to carry out; roll it back if it fails and that was asked for: it stays a failure.

    Args:
        plan: the run.
        output_format: what happens is printed in table form alone: one result goes to stdout.
        clock: for waits.
    """
    if plan.options.on_failure != "rollback":
        yield plan
        return
    from mlstack.operations import deploy

    known = deploy.known_good(plan, clock=clock)
    with plan.locked_to_the_end() as locked:
        try:
            yield locked
        except MlstackError as error:
            _go_back(locked, error, known, output_format, clock)
            raise


def _go_back(
    plan: ApplyPlan, error: MlstackError, known: KnownGood | None, output_format: str, clock: Clock
) -> None:
    from mlstack.operations import deploy

    say(f"failed: {error.message.partition(chr(10))[0]}")
    try:
        found = deploy.retreat(plan, error, known=known, clock=clock)
        for note in found.notes:
            say(f"note: {note}")
        if found.proposal is None:
            return
        reporter = Reporter(found.proposal.report, output_format)
        try:
            result = deploy.apply(found.proposal, clock=clock, on_event=reporter)
        except BaseException as cut_off:  # an interruption carries a partial result as well
            reporter.flush()
            _sum_up(getattr(cut_off, "partial", None), output_format)
            raise
        reporter.flush()
    except MlstackError as second:
        say(f"note: the rollback failed too: {second.message}")
        return
    _sum_up(result, output_format)
    say(f"rolled back; see `mlstack history {plan.environment}`")


def _sum_up(result: RunResult | None, output_format: str) -> None:
    if result is not None and output_format == "table":
        _print_of_run(lambda: show(Page((views_deploy.summary_line(result),))))


WRITTEN = ("created", "updated", "recreated")


def finish(result: RunResult, output_format: str) -> int:
    """Print the end of a run; in table form its objects were printed as they came."""
    if output_format != "table":
        _print_of_run(lambda: emit(result, output_format))
        return 0 if result.ok else 1
    _print_of_run(lambda: show(Page((views_deploy.summary_line(result),))))
    if result.ok and not result.dry_run and any(row.outcome in WRITTEN for row in result.objects):
        say(f"next: mlstack status {result.environment}")
    return 0 if result.ok else 1


# --- What `status --watch` shows: the whole tree again on a terminal, one line a change elsewhere ---

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlstack.deploy.result import StatusResult

    Show = Callable[[StatusResult], None]


@contextmanager
def showing(output_format: str) -> Iterator[Show]:
    """Give what shows a state; formats for programs show nothing before the end.

    Args:
        output_format: as `-o` says.
    """
    if output_format != "table":
        yield lambda result: None
    elif is_terminal(sys.stdout):
        from mlstack.cli import page, views

        with page.redrawing() as redraw:
            yield lambda result: redraw(views.page(result))
    else:
        yield ProgressLines()


class ProgressLines:
    """Prints a line for every object whose state or reason is another than before."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._known: dict[str, tuple[str, str]] = {}

    def __call__(self, result: StatusResult) -> None:
        """Take the whole state."""
        for component in result.components:
            for row in component.objects:
                if self._known.get(row.object) != (row.state, row.reason):
                    self._known[row.object] = (row.state, row.reason)
                    write(views_deploy.state_text(row.state, row.object, row.reason))
