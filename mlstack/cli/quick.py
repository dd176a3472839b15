"""The plain forms of `render`, straight to the operation: no command line library is imported.

What was printed before for the same files is printed again, with hardly any import at all. Anything unusual,
and every error, is left to the plain path, which prints the same for the rest.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from mlstack import disk_cache
from mlstack.app import layout
from mlstack.cli import output
from mlstack.render.outputs import Outputs

TYPE_CHECKING = False  # as in `typing`, which is an import
if TYPE_CHECKING:
    from mlstack.objects.kube_object import DesiredState


def render(words: Sequence[str]) -> int | None:
    """Run `render ENV [-c NAME]…` and give its exit code, or None to let the plain path do it."""
    wanted = _plain_form(words)
    if wanted is None:
        return None
    with ExitStack() as noting:
        try:
            told, text = _printed(*wanted, noting)
        except Exception:  # whatever it is, the plain path meets it again and tells it at its boundary
            return None
        return _print(told, text)


def _printed(environment: str, components: Sequence[str], noting: ExitStack) -> tuple[str, str]:
    """Give what goes to stderr and to stdout: as remembered, else rendered.

    Raises:
        Exception: for the plain path to tell.
    """
    root = layout.find_root(Path.cwd())
    if root is None:
        raise FileNotFoundError(layout.APP_FILE)
    store = disk_cache.of_user(os.environ)
    outputs, words = Outputs(root, store), ("render", environment, *components)
    key = outputs.key(words)
    remembered = outputs.get(key)
    if remembered is not None:
        return remembered
    from mlstack.objects import masking

    gc.disable()  # looking for cycles, of which there are few, takes a tenth of a large render
    noting.callback(gc.enable)
    noting.enter_context(masking.collecting())
    state = _rendered(root, store, environment, components)
    if state.has_secrets and sys.stdout.isatty():
        raise PermissionError("on a terminal secrets are hidden")

    printed = output.notes_text(state), output.objects_yaml(state.objects)
    if not state.has_secrets and outputs.key(words) == key:
        outputs.put(key, *printed)
    return printed


def _rendered(
    root: Path, store: disk_cache.Cache, environment: str, components: Sequence[str]
) -> DesiredState:
    from mlstack.app.reader import AppReader
    from mlstack.operations import render

    return render.render_environment(
        AppReader(root, store=store), environment, components=components, store=store
    )


def _print(told: str, text: str) -> int:
    try:
        if told:
            output.say(*told.split("\n"))
        output.write(text, exact=True)
    except output.ClosedOutputError:
        return output.stop_writing()
    except Exception as error:
        from mlstack.errors import ConfigError

        if not isinstance(error, ConfigError):
            raise
        output.say(*error.messages())
        return error.exit_code
    return 0


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
