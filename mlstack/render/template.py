"""The templates of a prototype: plain data in, text and the origins of its lines out, within limits.

What they were compiled to, and what they gave, is remembered between runs in two stored files: a file for
each component would cost more than rendering it again.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import chain, count
from pathlib import PurePosixPath
from time import monotonic
from types import CodeType
from typing import Any, NamedTuple, NoReturn

from mlstack import __version__, disk_cache
from mlstack.app.prototype import Prototype
from mlstack.dataclass import Record
from mlstack.disk_cache import NO_STORE, ByteStore
from mlstack.errors import TemplateError

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


class FailedError(Exception):
    """Raised by functions that templates call."""

    def __init__(self, message: object, near: str | None = None) -> None:
        super().__init__(str(message))
        self.near = near


class LimitedError(FailedError):
    """Raised when a template does or makes more than it may."""


class RefusedError(FailedError):
    """Raised by `fail` in a template."""


# --- how much templates may do ---
# Every `{{ expression }}` is written as one YAML-safe value on one line (mappings and lists in flow style),
# so that no parameter can change the structure around it. A value inside a longer text is put together in the
# expression: `{{ "prefix-" ~ x }}`. What templates themselves write (macros, blocks, the filters `raw` and
# `yaml`) goes out as it is.
#
# There is no clock, no randomness, no environment and no file but those of the package: the same parameters
# give the same bytes everywhere.
#
# Packages are other people's code, so a render is bounded. Python cannot stop a call into C that runs for
# hours, so none begins: every value is kept small (`Limits`), what multiplies is asked for its result's size
# first, and all that templates do is counted. An alarm ends what counting misses.

_TEXTS = (str, bytes)
_COLLECTIONS = (list, tuple, dict)
_SMALL = frozenset({float, bool, type(None), type({}.items()), type({}.keys()), type({}.values())})
_LARGEST_INTEGER = 1 << 4096
_LARGEST_COUNT = 100_000  # as a width, a number of parts or of repetitions
_LARGEST_CROSS = 100_000_000  # size of a text or list times the size of what a filter or method adds to it
LARGEST_TEMPLATE = 1024 * 1024
_LARGE = 64 * 1024


class Limits:
    """What the templates of one component may still do.

    A value weighs its characters, and 16 for each node of lists and maps, shared parts as often as they
    occur.
    """

    LARGEST_VALUE = 8 * 1024 * 1024
    MOST_WORK = 100_000_000  # characters made, 100 for each step: seconds, and less than a gigabyte
    LONGEST_S = 10.0
    STEP = 100
    _NODE = 16

    def __init__(self) -> None:
        self._work = self._next_look = self.MOST_WORK
        self._seconds = self.LONGEST_S
        self._until = float("inf")
        self._stop_alarm: Callable[[], None] | None = None
        self._weights: dict[int, tuple[int, object]] = {}  # the object is kept, so that its identity is

    def start(self) -> None:
        """Let time pass, until `stop`."""
        self._until = monotonic() + self._seconds

    def stop(self) -> None:
        """Let no more time pass."""
        if self._stop_alarm is not None:
            self._stop_alarm()
            self._stop_alarm = None
        self._seconds = max(self._until - monotonic(), 0.001)
        self._until = float("inf")

    def _arm(self) -> None:
        """Set an alarm, once there is something large: only then a step can take long."""
        if self._stop_alarm is None and self._until != float("inf"):
            self._stop_alarm = _alarm(self._until - monotonic(), self._end)

    def _end(self) -> NoReturn:
        raise LimitedError(f"the templates take more than {self.LONGEST_S:g} seconds")

    def spend(self, work: int) -> None:
        """Count work, in characters."""
        self._work -= work
        if self._work < self._next_look:
            self._look()

    def _look(self) -> None:
        """Look whether work and time are left, once in a while."""
        self._next_look = max(self._work - self.MOST_WORK // 1000, 0)
        if self._work < 0:
            steps, size = self.MOST_WORK // self.STEP, self.MOST_WORK // 1_000_000
            raise LimitedError(f"the templates do more than {steps:,} steps, or make more than {size} MB")
        if monotonic() > self._until:
            self._end()

    def check(self, weight: int) -> None:
        """Refuse a value that weighs too much."""
        if weight > _LARGE:
            self._arm()
        if weight > self.LARGEST_VALUE:
            raise LimitedError(f"a text, list or map of more than {self.LARGEST_VALUE // 1024 // 1024} MiB")

    def weight(self, value: Any) -> int:
        """Give the weight of a value; values that are no plain ones weigh nothing."""
        if isinstance(value, _TEXTS):
            return len(value)
        if not isinstance(value, _COLLECTIONS):
            return 0
        known = self._weights.get(id(value))
        if known is None:
            parts = chain(value, value.values()) if isinstance(value, dict) else value
            weight = self._NODE
            for part in parts:
                kind = part.__class__
                if kind is str:
                    weight += len(part)
                elif kind not in _SMALL and kind is not int:
                    weight += self.weight(part)
            weight += self._NODE * len(value)
            known = weight, value
            self.check(weight)
            self.spend(self._NODE * len(value))
            self._weights[id(value)] = known
        return known[0]

    def bounded(self, value: Any) -> Any:
        """Give a new value, once it is known to be small enough."""
        if value.__class__ in _SMALL:
            return value
        if isinstance(value, _TEXTS):
            self.check(len(value))
            self.spend(len(value))
        elif isinstance(value, _COLLECTIONS):
            self.weight(value)
        elif value.__class__ is int and not -_LARGEST_INTEGER < value < _LARGEST_INTEGER:
            raise LimitedError("an integer of more than 1,200 figures")
        return value

    def check_cross(self, value: Any, others: Iterable[Any]) -> None:
        """Refuse what multiplies the size of a value with sizes and counts that are given with it."""
        factor = 1
        for other in others:
            if other.__class__ is int and abs(other) > _LARGEST_COUNT:
                raise LimitedError(f"a width or number above {_LARGEST_COUNT:,}")
            factor += abs(other) if other.__class__ is int else self.weight(other)
        cross = (1 + self.weight(value)) * factor
        if cross > _LARGE:
            self._arm()
        if cross > _LARGEST_CROSS:
            self.check(self.LARGEST_VALUE + 1)


def _alarm(seconds: float, ring: Callable[[], NoReturn]) -> Callable[[], None]:
    """Call `ring` after a time, again and again, until what is given back is called.

    Only a main thread, and not on Windows, can be woken.
    """
    import signal
    import threading

    usable = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not usable or signal.getitimer(signal.ITIMER_REAL)[0]:
        return lambda: None
    before = signal.signal(signal.SIGALRM, lambda _number, _frame: ring())
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), 0.5)

    def stop() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    return stop


# --- which library modules the templates of one component can share ---

_SCALARS = frozenset({str, int, float, bool, type(None)})
_Key = tuple[str, frozenset[tuple[str, int]]]


class Libraries:
    """The modules that one component's templates have imported, each made once.

    A library imported with its context gives the same module again when it sees the same values, which
    several templates of one component often do. It sees the component's variables, and what the importing
    template set before; that is compared by identity, and must be a scalar or a module. Whatever changes in
    place ends the sharing: a state written from outside the template that made it, and objects with a memory
    of their own.
    """

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._numbers = count()
        self._modules: dict[_Key, tuple[Any, tuple[Any, ...]]] = {}
        self._shares = True
        self.frame = next(self._numbers)
        """Number of the template that runs now: of a module while it is made, else of the one rendered."""

    def begin(self) -> None:
        """Begin with the next template that is rendered."""
        self.frame = next(self._numbers)

    def module(self, name: str, seen: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """Give the module of a library that sees `seen`, made now unless it was before."""
        added = [(key, value) for key, value in seen.items() if self._variables.get(key, self) is not value]
        kinds = _SCALARS | {type(module) for module, _ in self._modules.values()}
        comparable = self._shares and all(type(value) in kinds for _, value in added)
        key = name, frozenset((name, id(value)) for name, value in added)
        if comparable and key in self._modules:
            return self._modules[key][0]
        frame, self.frame = self.frame, next(self._numbers)
        try:
            module = make()
        finally:
            self.frame = frame
        if comparable and self._shares:
            # The values are kept, so that no other object gets the identity of one of them.
            self._modules[key] = module, tuple(value for _, value in added)
        return module

    def written(self, frame: int) -> None:
        """Note that a state was written which the template `frame` made."""
        if frame != self.frame:
            self.stop()

    def stop(self) -> None:
        """Share nothing from now on."""
        self._shares = False
        self._modules.clear()


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


class Engine:
    """Jinja2's environments, shared by all prototypes of a run; one thread at a time."""

    def __init__(self, store: ByteStore = NO_STORE) -> None:
        self.store = store
        self._environments: dict[bool, Any] = {}

    def environment(self, *, marking: bool) -> Any:
        """Give the environment whose templates mark the origin of their lines, or the plain one."""
        if marking not in self._environments:
            from mlstack.render import sandbox

            self._environments[marking] = sandbox.environment(marking=marking)
        return self._environments[marking]


class Renderer:
    """Renders the templates of one prototype, for as many components as there are."""

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

    def run(self, name: str, rendering: Rendering, *, marking: bool) -> str:
        """Render one template for a component; when marking, lines begin with the mark of their origin."""
        from mlstack.render import sandbox

        environment = self._engine.environment(marking=marking)
        if marking not in self._loaders:
            self._loaders[marking] = sandbox.TemplateLoader(partial(self._code, marking=marking))
        environment.begin(self._loaders[marking], rendering, marking=marking)
        rendering.limits.start()
        try:
            if (name, marking) not in self._templates:
                self._templates[name, marking] = environment.get_template(name)
            template = self._templates[name, marking]
            context = environment.context_class(environment, rendering.known, name, template.blocks)
            text: str = environment.written(template.root_render_func(context))
            return text
        except Exception as error:  # a template can raise anything that its expressions can
            raise sandbox.explained(error, name, rendering) from error
        finally:
            rendering.limits.stop()

    def source(self, name: str) -> str:
        """Give the file of a template, for messages."""
        return self.prototype.sources.get(name, name)

    def _code(self, environment: Any, name: str, *, marking: bool) -> CodeType:
        """Compile a template, or take its code from the store."""
        text, store, source = self.prototype.templates[name], self._engine.store, self.source(name)
        if len(text) > LARGEST_TEMPLATE:
            raise LimitedError(f"a template of more than {LARGEST_TEMPLATE // 1024 // 1024} MiB")
        key = "" if marking else _code_key(text, name, source)
        stored = store.get(key) if key else None
        if stored is not None and stored.startswith(_CODE_MARK):
            with suppress(ValueError, EOFError, TypeError):  # nothing that was stored here
                known = marshal.loads(stored[len(_CODE_MARK) :])
                if isinstance(known, CodeType) and "root" in known.co_names:
                    return known
        code: CodeType = environment.compile(text, name, source)
        if key:
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
        lines = text.split("\n")
        try:
            marked, places = unmarked(self.renderer.run(name, self, marking=True))
        except TemplateError:  # a template that measures its own text may take offence at the marks
            marked, places = "", []
        # The filter `indent` takes a line of nothing but a mark for text.
        is_same = [*map(str.strip, marked.split("\n"))] == [*map(str.strip, lines)]
        return text, places if is_same else [None] * len(lines)


# marshal makes gigabytes of a few odd bytes: it reads only what we wrote
_CODE_MARK = b"code of a template\0"


def _code_key(text: str, name: str, source: str) -> str:
    from mlstack.render import sandbox

    expects = "counted"  # of the environment
    versions = (__version__, expects, sandbox.JINJA, sys.implementation.cache_tag, str(sys.hexversion))
    parts = "\0".join((*versions, name, source, text))
    return "template:" + hashlib.blake2b(parts.encode("utf-8", "surrogatepass")).hexdigest()


# --- what is remembered between runs ---

_LARGEST_BYTES = 64 * 1024 * 1024
_MARK = b"entries\0"


class Pack(ByteStore):
    """Many small entries in one stored file, which is called `key`; without a store it stays empty."""

    def __init__(self, store: ByteStore, key: str) -> None:
        self._store, self._key = store, key
        self._entries: dict[str, bytes] | None = None
        self._used: dict[str, bytes] = {}
        self._is_new = False

    def get(self, key: str) -> bytes | None:
        """Give the bytes of a key, or None."""
        if self._entries is None:
            self._entries = self._read()
        data = self._used.get(key) or self._entries.get(key)
        if data is not None:
            self._used[key] = data
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, from `save` on."""
        self._used[key], self._is_new = data, True

    def save(self) -> None:
        """Store what is new; what this run had no use for goes once it is the larger part."""
        if self._store is NO_STORE or not self._is_new:
            return
        kept = {**(self._read() if self._entries is None else self._entries), **self._used}
        if len(kept) > 2 * len(self._used) + 1000:
            kept = self._used
        data = _MARK + marshal.dumps(kept)
        if len(data) <= _LARGEST_BYTES:
            self._store.put(self._key, data)
        self._is_new = False

    def _read(self) -> dict[str, bytes]:
        data = self._store.get(self._key)
        try:
            entries = marshal.loads(data[len(_MARK) :]) if data and data.startswith(_MARK) else {}
        except (ValueError, EOFError, TypeError):  # nothing that was stored here
            return {}
        return entries if isinstance(entries, dict) else {}


class Render(Record):
    """What the templates of one component gave."""

    objects: Sequence[tuple[str, Mapping[str, Any]]]  # each with the name of its template, in order
    notes: Sequence[str]  # what the templates told people
    reads: Set[str]  # the names that the templates looked up: others may change


class Renders:
    """The last render of each component of an environment; never one with a secret."""

    def __init__(self, pack: Pack) -> None:
        self._pack = pack
        # component → what was read, and its key now
        self._asked: dict[str, tuple[frozenset[str], bytes]] = {}

    def get(self, component: str, prototype: Prototype, variables: Mapping[str, Any]) -> Render | None:
        """Give what a component's templates gave, if what they read of the variables is as it was."""
        data = self._pack.get(component)
        if data is None:
            return None
        reads, key, content = data.split(b"\n", 2)
        names = frozenset(reads.decode().split())
        self._asked[component] = names, render_key(prototype, variables, names)
        if key != self._asked[component][1]:
            return None
        objects, notes = marshal.loads(content)
        return Render(objects=objects, notes=notes, reads=names)

    def put(self, component: str, prototype: Prototype, variables: Mapping[str, Any], render: Render) -> None:
        """Remember a render, unless a secret may be in it, or nothing says what its prototype is."""
        has_secret = any(data.get("kind") == "Secret" for _, data in render.objects)
        names = frozenset(render.reads & variables.keys())
        asked, key = self._asked.pop(component, (None, b""))
        key = key if asked == names else render_key(prototype, variables, names)
        if key and not has_secret and not prototype.has_secrets(variables["params"]):
            content = marshal.dumps((list(render.objects), list(render.notes)))
            self._pack.put(component, b"\n".join((" ".join(sorted(names)).encode(), key, content)))


def render_key(prototype: Prototype, variables: Mapping[str, Any], reads: Set[str]) -> bytes:
    """Give a hash of all that decides a render; empty where nothing does."""
    seen = {name: value for name, value in variables.items() if name in reads}
    try:
        text = json.dumps([disk_cache.program_identity(), prototype.digest, seen])
    except OSError:
        return b""
    return hashlib.blake2b(text.encode(), digest_size=32).hexdigest().encode() if prototype.digest else b""
