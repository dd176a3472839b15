"""On a terminal: the same words, in a table that fits, coloured only when colour is wanted."""

import re
from collections.abc import Callable

import pytest

from mlstack.cli import page
from mlstack.cli.page import Page, TextLine, TextTable

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
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def show(**environ: str) -> str:
        monkeypatch.delenv("NO_COLOR", raising=False)
        for name, value in {"COLUMNS": "80", "TERM": "xterm-256color", "FORCE_COLOR": "1", **environ}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(page, "is_terminal", lambda stream: True)
        page.show(PAGE)
        return capsys.readouterr().out

    return show


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_tables_fit_and_only_the_named_column_is_cut(shown: Callable[..., str]) -> None:
    lines = plain(shown()).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "environments/gke/params.yaml:12" in lines[-1]
    assert "…" in lines[-1]


def test_markup_and_control_characters_are_shown_as_they_are(shown: Callable[..., str]) -> None:
    text = shown()
    assert "[bold]tag[/bold]" in text
    assert "\\x1b[31mtrick" in text


def test_colour_only_where_it_is_wanted(shown: Callable[..., str]) -> None:
    assert "\x1b[32m" in shown()
    assert "\x1b[32m" not in shown(NO_COLOR="1")


def test_waiting_is_silent_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    with page.waiting("comparing"):
        pass
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
