"""What `apply` and `delete` show: the question with the changes in view, a line an object, the summary."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from mlstack.cli import views_changes
from mlstack.cli.output import emit, is_terminal, say, show
from mlstack.cli.page import Line, Page
from mlstack.errors import UsageError

if TYPE_CHECKING:
    from mlstack.cli.adapters import Ports
    from mlstack.model.events import Event, OnEvent
    from mlstack.model.report import ChangeReport, RunResult

QUIET = ("waiting", "warning", "note")


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
        """Tell whether the environment wants every change confirmed."""


def confirmed(plan: Plan, *, verb: str, ports: Ports, yes: bool, always: bool = False) -> bool:
    """Tell whether a run may start.

    On a terminal a person is asked when something that exists changes or goes, with the changes in view.
    Without one, deletions, recreations and protected environments need `--yes`.

    Args:
        plan: what would be done.
        verb: the command, for the question.
        ports: who can be asked.
        yes: whether `--yes` was given.
        always: ask whatever the plan holds, as `delete` does.

    Raises:
        UsageError: nobody can be asked, and `--yes` was not given.
    """
    report = plan.report
    if yes or report.ok or not _needs_answer(plan, always=always, interactive=ports.interactive()):
        return True
    if not ports.interactive():
        look = f"mlstack {verb} {report.environment} --dry-run"
        raise UsageError(
            f"`{verb}` would {_what(report)} in `{report.environment}`, and nobody is here to confirm it",
            hint=f"nothing was done; see `{look}`, then repeat with --yes",
        )
    show(views_changes.change_summary(report), to_stderr=True)
    place = f"`{report.environment}` (context {report.context}, namespace {report.namespace})"
    if ports.ask(f"{verb.capitalize()} this in {place}?"):
        return True
    say("nothing was done")
    return False


def _needs_answer(plan: Plan, *, always: bool, interactive: bool) -> bool:
    if always or plan.protected:
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
        self._ended: dict[str, Line] = {}
        self._prints = output_format == "table"

    def __call__(self, event: Event) -> None:
        """Take one event."""
        if event.kind in QUIET:
            if event.kind != "waiting" or is_terminal(sys.stderr):
                say(f"{event.kind}: {_sentence(event)}")
            return
        name = str(event.identity)
        self._ended[name] = views_changes.outcome_line(event.kind, name, event.text)
        while self._waiting and self._waiting[0] in self._ended:
            self._print(self._waiting.pop(0))

    def flush(self) -> None:
        """Print what ended although something before it did not."""
        for name in list(self._ended):
            self._print(name)

    def _print(self, name: str) -> None:
        line = self._ended.pop(name)
        if self._prints:
            show(Page((line,)))


def _sentence(event: Event) -> str:
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


WRITTEN = ("created", "updated", "recreated")


def finish(result: RunResult, output_format: str) -> int:
    """Print the end of a run; in table form its objects were printed as they came."""
    if output_format != "table":
        return emit(result, output_format)
    show(Page((views_changes.summary_line(result),)))
    if result.ok and not result.dry_run and any(row.outcome in WRITTEN for row in result.objects):
        say(f"next: mlstack status {result.environment}")
    return 0 if result.ok else 1
