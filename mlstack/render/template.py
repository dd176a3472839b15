"""The templates of a prototype: plain data in, text and the origins of its lines out."""

from __future__ import annotations

import hashlib
import marshal
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mlstack import __version__
from mlstack.app.prototype import Prototype
from mlstack.errors import TemplateError
from mlstack.render.limits import LARGEST_TEMPLATE, LimitedError, Limits

if TYPE_CHECKING:
    from mlstack.render.sandbox import Libraries


# --- where lines of rendered text come from: marks that templates put before them, and their reading ---

# Around file and line; private characters that no template writes itself.
_OPEN, _CLOSE = "\ue000", "\ue001"


class TemplatePlace(NamedTuple):
    """A line of a template, from 1, and its file as messages show it."""

    file: str
    line: int


def mark_of(file: str, line: int) -> str:
    """Write the mark of a line, to stand before its text."""
    return f"{_OPEN}{file}:{line}{_CLOSE}"


def unmarked(text: str) -> tuple[str, list[TemplatePlace | None]]:
    """Take the marks out of a text: the text, and the place of each of its lines."""
    lines: list[str] = []
    places: list[TemplatePlace | None] = []
    last: TemplatePlace | None = None
    for marked in text.split("\n"):
        line, *parts = marked.split(_OPEN)
        for part in parts:
            mark, _, rest = part.partition(_CLOSE)
            if not line.strip():  # what comes after the first visible character says nothing of the line
                file, _, number = mark.rpartition(":")
                last = TemplatePlace(file, int(number)) if number.isdigit() else None
            line += rest
        lines.append(line)
        places.append(last)
    return "\n".join(lines), places


# --- the templates of a prototype, rendered for one component after the other ---


def check_plain(value: Any, path: str) -> None:
    """Raise TypeError for what is no plain value: templates could reach anything through an object."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None or kind is float:
        return
    if kind is dict or (isinstance(value, Mapping) and not path):
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"the key {key!r} of `{path}` is no string")
            check_plain(item, f"{path}.{key}" if path else key)
    elif kind is list:
        for item in value:
            check_plain(item, path)
    else:
        raise TypeError(f"`{path}` is a {kind.__name__}, templates take plain values only")


class CodeStore(Protocol):
    """Where compiled templates are remembered."""

    def get(self, key: str) -> bytes | None:
        """Give the bytes of a key, or None."""

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, if possible."""


class Engine:
    """Jinja2's environments, shared by all prototypes of a run; one thread at a time."""

    def __init__(self, store: CodeStore | None = None) -> None:
        self.store = store
        self._environments: dict[bool, Any] = {}

    def environment(self, *, marking: bool) -> Any:
        """Give the environment whose templates mark the origin of their lines, or the plain one."""
        if marking not in self._environments:
            from mlstack.render import sandbox

            self._environments[marking] = sandbox.environment(marking=marking)
        return self._environments[marking]


class Renderer:
    """Renders the templates of one prototype, for as many components as there are.

    Args:
        prototype: its templates, libraries and files.
        engine: of the run.
    """

    def __init__(self, prototype: Prototype, engine: Engine | None = None) -> None:
        self.prototype = prototype
        self._engine = engine or Engine()
        self._loaders: dict[bool, Any] = {}
        self._templates: dict[tuple[str, bool], Any] = {}
        names = sorted(prototype.templates)
        self.names = tuple(name for name in names if not PurePosixPath(name).name.startswith("_"))
        """The templates that bring objects; libraries start with `_`."""

    def rendering(self, variables: Mapping[str, Any]) -> Rendering:
        """Begin to render for one component.

        Raises:
            TypeError: a variable is no dict, list, str, int, float, bool or None, or holds something else.
        """
        check_plain(variables, "")
        return Rendering(self, variables)

    def render(self, name: str, variables: Mapping[str, Any]) -> str:
        """Render one template alone; raises as `rendering` and `Rendering.render`."""
        return self.rendering(variables).render(name)

    def run(self, name: str, rendering: Rendering, *, marking: bool) -> str:
        """Render one template for a component; when marking, lines begin with the mark of their origin."""
        from mlstack.render import sandbox

        environment = self._engine.environment(marking=marking)
        if marking not in self._loaders:
            self._loaders[marking] = sandbox.TemplateLoader(partial(self._code, marking=marking))
        environment.begin(self._loaders[marking], rendering, marking=marking)
        try:
            with rendering.limits.running():
                if (name, marking) not in self._templates:
                    self._templates[name, marking] = environment.get_template(name)
                template = self._templates[name, marking]
                context = environment.context_class(environment, rendering.known, name, template.blocks)
                text: str = environment.written(template.root_render_func(context))
                return text
        except Exception as error:  # a template can raise anything that its expressions can
            raise sandbox.explained(error, name, rendering) from error

    def source(self, name: str) -> str:
        """Give the file of a template, for messages."""
        return self.prototype.sources.get(name, name)

    def _code(self, environment: Any, name: str, *, marking: bool) -> CodeType:
        """Compile a template, or take its code from the store."""
        text, store, source = self.prototype.templates[name], self._engine.store, self.source(name)
        if len(text) > LARGEST_TEMPLATE:
            raise LimitedError(f"a template of more than {LARGEST_TEMPLATE // 1024 // 1024} MiB")
        key = _code_key(text, name, source) if store is not None and not marking else ""
        stored = store.get(key) if store is not None and key else None
        if stored is not None and stored.startswith(_CODE_MARK):
            with suppress(ValueError, EOFError, TypeError):  # nothing that was stored here
                known = marshal.loads(stored[len(_CODE_MARK) :])
                if isinstance(known, CodeType) and "root" in known.co_names:
                    return known
        code: CodeType = environment.compile(text, name, source)
        if store is not None and key:
            store.put(key, _CODE_MARK + marshal.dumps(code))
        return code


class Rendering:
    """The templates of a prototype with the variables of one component; begun by `Renderer.rendering`."""

    def __init__(self, renderer: Renderer, variables: Mapping[str, Any]) -> None:
        self.renderer, self.variables = renderer, variables
        self.limits = Limits()
        self.known: Mapping[str, Any] = {}  # the variables, and the names that all templates have
        self.libraries: dict[bool, Libraries] = {}
        self.notes: dict[str, None] = {}
        """What templates rendered so far told with `note("…")`, each remark once."""
        self.reads: set[str] = set()
        """The names that templates rendered so far have looked up."""

    def render(self, name: str) -> str:
        """Render one template, one of the renderer's `names`.

        Raises:
            TemplateError: the template does not compile, uses a name that is not defined, calls `fail`, does
                what the sandbox forbids, or more than `Limits` let it; names file and line.
        """
        return self.renderer.run(name, self, marking=False)

    def render_with_places(self, name: str) -> tuple[str, list[TemplatePlace | None]]:
        """Render one template, and give the line of a template that each line of the text came from.

        Text that another template brings has its place there. Places that cannot be told are None. Meant
        for messages: the template is compiled anew for it.

        Raises:
            TemplateError: as `render`.
        """
        text = self.render(name)
        try:
            marked, places = unmarked(self.renderer.run(name, self, marking=True))
        except TemplateError:  # a template that measures its own text may take offence at the marks
            marked, places = "", []
        return text, places if marked == text else [None] * (text.count("\n") + 1)


_CODE = "counted"  # names what compiled templates expect of their environment
_CODE_MARK = (
    b"code of a template\0"  # marshal makes gigabytes of a few odd bytes: it reads only what we wrote
)


def _code_key(text: str, name: str, source: str) -> str:
    from mlstack.render import sandbox

    versions = (__version__, _CODE, sandbox.JINJA, sys.implementation.cache_tag, str(sys.hexversion))
    parts = "\0".join((*versions, name, source, text))
    return "template:" + hashlib.blake2b(parts.encode("utf-8", "surrogatepass")).hexdigest()
