"""The plain forms of `render`, straight to the operation: no command line library is imported.

Anything unusual, and every error, is left to the plain path, which prints the same for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlstack.errors import ConfigError


def render(words: Sequence[str]) -> int | None:
    """Run `render ENV [-c NAME]…` and give its exit code, or None to let the plain path do it."""
    wanted = _plain_form(words)
    if wanted is None:
        return None
    environment, components = wanted
    from mlstack.cli import adapters, objects, output
    from mlstack.operations import render as operation

    try:
        app = adapters.app_dir(adapters.Session())
        state = operation.render(app, environment, components=components, store=adapters.code_store())
    except Exception:  # whatever it is, the plain path meets it again and tells it at its boundary
        return None
    try:
        return objects.show(state, "yaml")
    except output.ClosedOutputError:
        return output.stop_writing()
    except ConfigError as error:
        output.say(error.describe())
        return error.exit_code


def _plain_form(words: Sequence[str]) -> tuple[str, list[str]] | None:
    environments: list[str] = []
    components: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-c", "--component") and rest and not rest[0].startswith("-"):
            components.append(rest.pop(0))
        elif word.startswith("--component="):
            components.append(word.removeprefix("--component="))
        elif word.startswith("-"):
            return None
        else:
            environments.append(word)
    names = [name for word in components for name in word.split(",")]
    return (environments[0], names) if len(environments) == 1 and all(names) else None
