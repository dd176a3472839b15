"""How help looks where it differs from typer's own, and what people type who come from other tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import Any

from typer.core import TyperCommand

from mlstack.model.names import nearest


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
