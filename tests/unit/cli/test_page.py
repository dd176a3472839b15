"""Lines and tables: their width, their folding, and their colours on a terminal."""

import re
from collections.abc import Callable

import pytest

from mlstack.cli import page
from mlstack.cli.page import Page, TextLine, TextTable, fold, layout, one_line, shorten, text_width


@pytest.mark.parametrize(
    ("text", "width"), [("abc", 3), ("日本", 4), ("e\N{COMBINING ACUTE ACCENT}", 1), ("🚀", 2), ("", 0)]
)
def test_width_counts_terminal_columns(text: str, width: int) -> None:
    assert text_width(text) == width


def test_shortened_text_fits_and_says_so() -> None:
    assert shorten("日本語日本語", 7) == "日本語…"
    assert shorten("short", 7) == "short"


def test_control_characters_are_shown_not_sent() -> None:
    assert one_line("a\nb\x1b[31mc") == "a\\nb\\x1b[31mc"


def test_columns_align_whatever_the_width_of_the_characters() -> None:
    table = TextTable(("NAME", "VALUE"), (("日本", "x"), ("ab", "y")))
    assert list(layout(table)) == ["NAME  VALUE", "日本  x", "ab    y"]


def test_no_line_ends_in_blanks() -> None:
    table = TextTable(("NAME", "VALUE"), (("a", ""), ("long name", "")))
    assert all(line == line.rstrip() for line in layout(table))


def test_last_column_wraps_at_spaces() -> None:
    table = TextTable(("NAME", "SUMMARY"), (("tf-cnn", "word " * 40),))
    lines = list(layout(table))
    assert len(lines) > 2
    assert all(text_width(line) <= 80 for line in lines)
    assert lines[2].startswith("        word")


def test_column_to_cut_is_shortened_before_others() -> None:
    table = TextTable(("NAME", "VALUE", "FROM"), (("a", "x" * 200, "components/cnn.yaml:4"),), cut="VALUE")
    header, row = layout(table)
    assert text_width(row) <= 80
    assert row.endswith("components/cnn.yaml:4")
    assert "…" in row
    assert header.startswith("NAME")


def test_column_to_wrap_loses_nothing_before_the_last_one() -> None:
    what = "apply of the plan of 2026-11-28T16:37:37Z"
    rows = [(what, "done", "1 created, 20 unchanged and 3 updated")]
    table = TextTable(("WHAT", "RESULT", "OBJECTS"), tuple(rows), wrap="WHAT")
    lines = list(layout(table, width=60))
    assert max(map(len, lines)) <= 60
    assert " ".join(line[: lines[0].index("RESULT")].strip() for line in lines[1:]).split() == what.split()
    assert lines[1].endswith("done    1 created, 20 unchanged and 3")


def test_what_finds_no_room_in_the_last_column_stands_below_its_row() -> None:
    names, kinds = ("kubeflow-core", "prototype", "kubeflow-core", "kubeflow/core@0.1.0"), "StatefulSet, " * 9
    table = TextTable(("COMPONENT", "TYPE", "PROTOTYPE", "FROM", "KINDS"), ((*names, kinds), (*names, "Job")))
    header, row, *below, last = layout(table, width=72)
    assert (header.split()[-1], row.split(), last.split()) == ("KINDS", [*names], [*names, "Job"])
    assert max(map(len, below)) <= 72 and " ".join(map(str.strip, below)) == kinds.strip()


def test_last_column_is_one_line_when_it_is_the_one_to_cut() -> None:
    header, row = layout(TextTable(("NAME", "DEFAULT"), (("a", "word " * 40),), cut="DEFAULT"))
    assert header == "NAME  DEFAULT"
    assert text_width(row) == 80
    assert row.endswith("…")


def test_a_word_that_cannot_be_broken_stays_whole() -> None:
    address = "https://" + "a" * 100
    assert list(layout(TextTable(("ADDRESS",), ((address,),))))[1] == address


def test_a_line_is_broken_only_where_it_says_how() -> None:
    text = "  waiting  TFJob default/cnn: " + "日本 " * 40
    assert list(fold(TextLine(text))) == [text]
    lines = list(fold(TextLine(text, hang=11)))
    assert all(text_width(line) <= 80 for line in lines)
    assert lines[0].startswith("  waiting")
    assert lines[1].startswith(" " * 11 + "日本")


def test_commands_are_never_broken() -> None:
    hint = "  hint: add GPU nodes with the device plugin to this cluster (see `mlstack env set --help`), or: "
    command = "mlstack param set --env=gke cnn num_gpus 0"
    assert list(fold(TextLine(hint + command, hang=8))) == [
        "  hint: add GPU nodes with the device plugin to this cluster (see",
        "        `mlstack env set --help`), or:",
        "        " + command,
    ]


def test_a_paragraph_has_no_line_ends_of_its_own() -> None:
    assert list(fold(TextLine("one\ntwo\n", hang=0))) == ["one two"]
    assert list(fold(TextLine("one\ntwo"))) == ["one\\ntwo"]


PAGE = Page(
    (
        TextLine("+ create ConfigMap ml/front", "add"),
        TextLine("a [bold]tag[/bold] and a \x1b[31mtrick"),
        TextTable(
            ("PARAM", "VALUE", "FROM"), (("日本", "x" * 100, "environments/gke/params.yaml:12"),), cut="VALUE"
        ),
    )
)


@pytest.fixture
def page_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def show(**environ: str) -> str:
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in {"COLUMNS": "80", "TERM": "xterm-256color", "FORCE_COLOR": "1", **environ}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(page.output, "is_terminal", lambda stream: True)
        page.show(PAGE)
        return capsys.readouterr().out

    return show


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_tables_fit_and_only_the_named_column_is_cut(page_text: Callable[..., str]) -> None:
    lines = plain(page_text()).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "environments/gke/params.yaml:12" in lines[-1]
    assert "…" in lines[-1]


def test_markup_and_control_characters_are_shown_as_they_are(page_text: Callable[..., str]) -> None:
    text = page_text()
    assert "[bold]tag[/bold]" in text
    assert "\\x1b[31mtrick" in text


def test_colour_only_where_it_is_wanted(page_text: Callable[..., str]) -> None:
    assert "\x1b[32m" in page_text()
    assert "\x1b[32m" not in page_text(NO_COLOR="1")


def test_waiting_is_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with page.waiting("comparing"):
        pass
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
