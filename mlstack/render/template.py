"""The only door to Jinja2: sandboxed, strict, bounded; plain data in, text and its origins out."""

from __future__ import annotations

import hashlib
import marshal
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial, wraps
from itertools import chain, count
from pathlib import PurePosixPath
from string import Formatter
from time import monotonic
from types import BuiltinMethodType, CodeType, SimpleNamespace, TracebackType
from typing import Any, NamedTuple, NoReturn, Protocol

from mlstack import __version__
from mlstack.app.prototype import Prototype
from mlstack.errors import TemplateError, TemplateRefusedError
from mlstack.names import nearest
from mlstack.yaml import write

# --- what templates write: values that stay values, and text that goes out as it is ---


class Raw(str):
    """Text of a template, written as it is; every other string is a value."""

    __slots__ = ()


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


def to_yaml(value: Any, indent: int = 0) -> str:
    """Write a value in block style; every line starts `indent` spaces further right."""
    lines = write.to_yaml(value)[:-1].split("\n")
    return Raw("\n".join(f"{' ' * indent}{line}" if line else "" for line in lines))


def keeping(rewrite: Callable[..., str]) -> Callable[..., str]:
    """Let a filter on text of a template give text of a template."""

    def kept(text: str, *args: Any, **options: Any) -> str:
        found = rewrite(text, *args, **options)
        return Raw(found) if isinstance(text, Raw) else found

    return kept


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
        module = self._made(make)
        if comparable and self._shares:
            # The values are kept, so that no other object gets the identity of one of them.
            self._modules[key] = module, tuple(value for _, value in added)
        return module

    def _made(self, make: Callable[[], Any]) -> Any:
        frame, self.frame = self.frame, next(self._numbers)
        try:
            return make()
        finally:
            self.frame = frame

    def written(self, frame: int) -> None:
        """Note that a state was written which the template `frame` made."""
        if frame != self.frame:
            self.stop()

    def stop(self) -> None:
        """Share nothing from now on."""
        self._shares = False
        self._modules.clear()


# --- what templates may do, and how much of it ---
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

_REMOVED_FILTERS = (
    *("random", "pprint"),  # no two runs alike
    *("e", "escape", "forceescape", "safe", "striptags", "urlize", "xmlattr"),  # for HTML
)
_READING = frozenset({"get", "items", "keys", "values"})  # methods of a mapping that leave it as it is
_NUMBERS = frozenset({int, float})
_TEXTS = (str, bytes)
_COLLECTIONS = (list, tuple, dict)
_SMALL = frozenset({float, bool, type(None), type({}.items()), type({}.keys()), type({}.values())})
_REMEMBERING = ("cycler", "joiner")  # globals that make what changes when it is used
_LARGEST_PRODUCT = 1_000_000
_LARGEST_EXPONENT = 1_000
_LARGEST_INTEGER = 1 << 4096
_LARGEST_COUNT = 100_000  # as a width, a number of parts or of repetitions
_LARGEST_CROSS = 100_000_000  # size of a text or list times the size of what a filter or method adds to it
_LARGEST_TEMPLATE = 1024 * 1024
_LARGE = 64 * 1024
# Five figures or a star as the width or precision of a directive, behind its name where it has one.
_WIDTH = re.compile(r"%[-#0 +]*(?:\d*\.)?(?:\d{5}|\*)")
_WIDTH_OF_NAMED = re.compile(r"\)[-#0 +]*(?:\d*\.)?\d{5}")
_LONG_SPEC = re.compile(r"\d{5}|\{")
# Filters whose arguments are values, compared or picked but never put together with each other.
_PICKING = frozenset(
    {
        *("attr", "d", "default", "dictsort", "float", "groupby", "int", "items", "map", "max", "min"),
        *("reject", "rejectattr", "select", "selectattr", "sort", "unique"),
    }
)
_OWN_OPTIONS = ("_loop_vars", "_block_vars")  # what compiled templates add to calls
_CODE = "counted"  # names what compiled templates expect of their environment


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

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let time pass."""
        self._until = monotonic() + self._seconds
        try:
            yield
        finally:
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
        raise _Limited(f"the templates take more than {self.LONGEST_S:g} seconds")

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
            raise _Limited(f"the templates do more than {steps:,} steps, or make more than {size} MB")
        if monotonic() > self._until:
            self._end()

    def check(self, weight: int) -> None:
        """Refuse a value that weighs too much."""
        if weight > _LARGE:
            self._arm()
        if weight > self.LARGEST_VALUE:
            raise _Limited(f"a text, list or map of more than {self.LARGEST_VALUE // 1024 // 1024} MiB")

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
            raise _Limited("an integer of more than 1,200 figures")
        return value

    def check_cross(self, value: Any, others: Iterable[Any]) -> None:
        """Refuse what multiplies the size of a value with sizes and counts that are given with it."""
        factor = 1
        for other in others:
            if other.__class__ is int and abs(other) > _LARGEST_COUNT:
                raise _Limited(f"a width or number above {_LARGEST_COUNT:,}")
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


# --- the templates of a prototype, rendered for one component after the other ---


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
            kit = _kit()
            self._environments[marking] = environment = kit.Environment(
                undefined=kit.Undefined,
                trim_blocks=True,
                lstrip_blocks=True,
                keep_trailing_newline=True,
                auto_reload=False,
                cache_size=-1,
            )
            if marking:
                environment.extensions["marks"] = kit.Marks(environment)
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
        environment = self._engine.environment(marking=marking)
        if marking not in self._loaders:
            self._loaders[marking] = _kit().Loader(partial(self._code, marking=marking))
        environment.begin(self._loaders[marking], rendering, marking=marking)
        try:
            with rendering.limits.running():
                template = environment.get_template(name)
                context = environment.context_class(environment, rendering.known, name, template.blocks)
                text: str = environment.written(template.root_render_func(context))
                return text
        except Exception as error:  # a template can raise anything that its expressions can
            raise self._explained(error, name, rendering.variables) from error

    def _explained(self, error: Exception, name: str, variables: Mapping[str, Any]) -> TemplateError:
        import jinja2

        if isinstance(error, jinja2.TemplateSyntaxError):
            place = TemplatePlace(self.source(error.name or name), error.lineno)
        else:
            place = _template_line(error.__traceback__, self.source) or TemplatePlace(self.source(name), 1)
        message, hint = _wording(error, variables, self.prototype.templates)
        kind = TemplateRefusedError if isinstance(error, _Refused) else TemplateError
        return kind(message, where=f"{place.file}:{place.line}", hint=hint)

    def source(self, name: str) -> str:
        """Give the file of a template, for messages."""
        return self.prototype.sources.get(name, name)

    def _code(self, environment: Any, name: str, *, marking: bool) -> CodeType:
        """Compile a template, or take its code from the store."""
        text, store, source = self.prototype.templates[name], self._engine.store, self.source(name)
        if len(text) > _LARGEST_TEMPLATE:
            raise _Limited(f"a template of more than {_LARGEST_TEMPLATE // 1024 // 1024} MiB")
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


_CODE_MARK = (
    b"code of a template\0"  # marshal makes gigabytes of a few odd bytes: it reads only what we wrote
)


def _code_key(text: str, name: str, source: str) -> str:
    import jinja2

    versions = (__version__, _CODE, jinja2.__version__, sys.implementation.cache_tag, str(sys.hexversion))
    parts = "\0".join((*versions, name, source, text))
    return "template:" + hashlib.blake2b(parts.encode("utf-8", "surrogatepass")).hexdigest()


class _Failed(Exception):
    """Raised by functions that templates call."""

    def __init__(self, message: object, near: str | None = None) -> None:
        super().__init__(str(message))
        self.near = near


class _Limited(_Failed):
    """Raised when a template does or makes more than it may."""


class _Refused(_Failed):
    """Raised by `fail` in a template."""


def _fail(message: object) -> NoReturn:
    raise _Refused(message)


@cache
def _kit() -> SimpleNamespace:
    """Make the classes that stand on Jinja2's, once it is needed."""
    import jinja2
    from jinja2 import nodes
    from jinja2.compiler import CodeGenerator, optimizeconst
    from jinja2.environment import TemplateModule
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension
    from jinja2.filters import FILTERS
    from jinja2.lexer import Token, TokenStream
    from jinja2.runtime import Context, LoopContext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace, missing

    class Generator(CodeGenerator):
        """Compiles loops, texts that are put together, lists and maps so that they are counted."""

        def visit_For(self, node: Any, frame: Any) -> None:
            node.iter = nodes.Call(nodes.EnvironmentAttribute("counted"), [node.iter], [], None, None)
            super().visit_For(node, frame)

        @optimizeconst
        def visit_Concat(self, node: Any, frame: Any) -> None:
            self.write("environment.joined((")
            for part in node.nodes:
                self.visit(part, frame)
                self.write(", ")
            self.write("))")

        def visit_List(self, node: Any, frame: Any) -> None:
            self._within(super().visit_List, node, frame)

        def visit_Dict(self, node: Any, frame: Any) -> None:
            self._within(super().visit_Dict, node, frame)

        def visit_Tuple(self, node: Any, frame: Any) -> None:
            if node.ctx == "load":
                self._within(super().visit_Tuple, node, frame)
            else:  # the names that a value is taken apart into
                super().visit_Tuple(node, frame)

        def _within(self, visit: Callable[[Any, Any], None], node: Any, frame: Any) -> None:
            self.write("environment.limits.bounded(")
            visit(node, frame)
            self.write(")")

    class Reads(Context):
        """The names that a template sees; which of them it looks up decides what its text depends on."""

        def resolve_or_missing(self, key: str) -> Any:
            self.environment.rendering.reads.add(key)  # type: ignore[attr-defined]
            return super().resolve_or_missing(key)

    class Environment(ImmutableSandboxedEnvironment):
        code_generator_class = Generator
        context_class = Reads
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def concat(self, parts: Iterable[str]) -> str:
            """Join what a macro or block wrote."""
            whole = list(parts)
            self.limits.check(sum(map(len, whole)))
            return Raw(self.limits.bounded("".join(whole)))

        def joined(self, parts: Iterable[Any]) -> str:
            """Put a text together: `a ~ b`."""
            texts, size = [], 0
            for part in parts:
                text = part if part.__class__ is str else str(part)
                size += len(text)
                self.limits.check(size)
                texts.append(text)
            self.limits.spend(size + self.limits.STEP)
            return "".join(texts)

        def counted(self, values: Any) -> Any:
            """Count the rounds of a loop before it begins, or as it goes where nobody knows how many."""
            if hasattr(values, "__len__"):
                self.limits.spend(self.limits.STEP * (1 + len(values)))
                return values
            return self._counting(values)

        def _counting(self, values: Iterable[Any]) -> Iterator[Any]:
            for value in values:
                self.limits.spend(self.limits.STEP)
                yield value

        def written(self, parts: Iterable[str]) -> str:
            """Join what a template wrote; unlike values, it may be long."""
            texts, size = [], 0
            for part in parts:
                texts.append(part)
                size += len(part) + 1
                if size > _LARGEST_TEMPLATE:
                    self.limits.spend(size)
                    size = 0
            self.limits.spend(size)
            return "".join(texts)

        def __init__(self, **options: Any) -> None:
            super().__init__(finalize=self._finalized, **options)
            self.limits, self.libraries = Limits(), Libraries({})
            self.filters = {name: self._limited(name, rule) for name, rule in filters.items()}
            own = {"fail": _fail, "state": self._state, "file": self._file, "note": self._note}
            self.globals: dict[str, Any] = {**self.globals, **own}
            self.globals |= {name: partial(self._remembering, self.globals[name]) for name in _REMEMBERING}
            for name in ("lipsum", "namespace"):
                del self.globals[name]

        def begin(self, loader: Any, rendering: Rendering, *, marking: bool) -> None:
            """Turn to the next template, of any prototype and component."""
            self.loader, self.rendering, self.limits = loader, rendering, rendering.limits
            if marking not in rendering.libraries:
                rendering.known = {**self.globals, **rendering.variables}
                rendering.libraries[marking] = Libraries(rendering.known)
            self.libraries = rendering.libraries[marking]
            self.libraries.begin()

        def _note(self, message: object) -> str:
            """Remember a remark for people, and write nothing: `{{ note("…") }}` in templates."""
            self.rendering.notes[str(message)] = None
            return Raw("")

        def _file(self, name: str) -> str:
            """Give the text of a file of the prototype: `file("…")` in templates."""
            files = self.rendering.renderer.prototype.files
            if name not in files:
                raise _Failed(f"the prototype has no file `{name}`", near=nearest(name, files))
            return files[name]

        def _state(self, *given: Any, **values: Any) -> State:
            """Make an object whose attributes templates set."""
            made = State(*given, **values)
            object.__setattr__(made, "made_by", (self.libraries, self.libraries.frame))
            return made

        def _finalized(self, value: Any) -> str:
            """Write what an expression gave."""
            if isinstance(value, Raw):
                return value
            if isinstance(value, jinja2.Undefined):
                return str(value)  # raises
            return write.to_flow(value)

        def _limited(self, name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
            """Make a filter that is bounded."""
            # Some take the context or the environment first.
            first = 1 if hasattr(rule, "jinja_pass_arg") else 0

            @wraps(rule)
            def limited(*args: Any, **options: Any) -> Any:
                limits = self.limits
                limits.spend(limits.STEP)
                if (len(args) > first + 1 or options) and name not in _PICKING:
                    others = [*args[first + 1 :], *options.values()]
                    if name == "sum" and any(isinstance(other, list | tuple) for other in others):
                        raise SecurityError("`sum` adds numbers")
                    if name == "format":
                        self._check_format(args[first], others)
                    limits.check_cross(args[first] if len(args) > first else None, others)
                return limits.bounded(rule(*args, **options))

            return limited

        def _check_format(self, text: Any, values: Any) -> None:
            """Refuse what makes a long text of a short one: widths, and a value put in again and again."""
            if isinstance(text, bytes):
                text = text.decode("latin-1")
            if isinstance(text, str):
                if _WIDTH.search(text) or ("%(" in text and _WIDTH_OF_NAMED.search(text)):
                    raise _Limited("a format with a width above 9,999, or one that is a value itself")
                self.limits.check((1 + text.count("%")) * (1 + self.limits.weight(values)))

        def wrap_str_format(self, value: Any) -> Any:
            """Bound `format` of a string as well."""
            wrapped = super().wrap_str_format(value)
            if wrapped is None:
                return None

            @wraps(wrapped)
            def limited(*args: Any, **options: Any) -> str:
                specs = [spec or "" for _, _, spec, _ in Formatter().parse(value.__self__)]
                if any(_LONG_SPEC.search(spec) for spec in specs):
                    raise _Limited("a format with a width above 9,999, or one that is a value itself")
                values = self.limits.weight([*args, *options.values()])
                self.limits.check((1 + len(specs)) * (1 + values))
                text: str = self.limits.bounded(wrapped(*args, **options))
                return text

            return limited

        def _load_template(self, name: Any, globals: Any) -> Any:
            self.limits.spend(10 * self.limits.STEP)
            return super()._load_template(name, globals)

        def _remembering(self, kind: Callable[..., Any], *args: Any) -> Any:
            """Make an object that changes when it is used."""
            self.libraries.stop()
            return kind(*args)

        def getattr(self, obj: Any, attribute: str) -> Any:
            """Look in a mapping first: a parameter may be called `items`.

            What templates ask for all the time is known to be harmless, and spared the sandbox's questions.
            """
            kind = type(obj)
            if kind is dict and attribute in obj:
                return obj[attribute]
            if attribute in _READING if kind is dict else kind in own and attribute[:1] != "_":
                with suppress(AttributeError):
                    return getattr(obj, attribute)
            return super().getattr(obj, attribute)

        def call(self, context: Any, function: Any, *args: Any, **options: Any) -> Any:
            """Call a method of a plain value without asking whether it wants the context."""
            limits = self.limits
            limits.spend(limits.STEP)
            owner = getattr(function, "__self__", None)
            if isinstance(owner, (str, bytes, int)):
                given = [*args, *(options[name] for name in options if name not in _OWN_OPTIONS)]
                if given:
                    limits.check_cross(owner, given)
            if type(function) is BuiltinMethodType:
                for own_option in _OWN_OPTIONS:
                    options.pop(own_option, None)
                return limits.bounded(function(*args, **options))
            if type(function) is LoopContext and args:
                args = (self.counted(args[0]), *args[1:])
            return limits.bounded(super().call(context, function, *args, **options))

        def getitem(self, obj: Any, argument: Any) -> Any:
            """Look up a key: a method is no item."""
            if obj.__class__ is dict:
                return obj[argument] if argument in obj else self.undefined(obj=obj, name=argument)
            return super().getitem(obj, argument)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            """Refuse sums, products and powers that only exhaust the memory."""
            limits, kinds = self.limits, (type(left), type(right))
            if operator == "**":
                if isinstance(right, int) and abs(right) > _LARGEST_EXPONENT:
                    raise SecurityError(f"a power above {_LARGEST_EXPONENT}")
            elif not _NUMBERS.issuperset(kinds):
                sizes = [limits.weight(side) for side in (left, right)]
                if operator == "+":
                    limits.check(sum(sizes))
                elif operator == "%":
                    self._check_format(left, right)
                else:
                    counts = [side for side in (left, right) if isinstance(side, int)]
                    lengths = [len(side) for side in (left, right) if hasattr(side, "__len__")]
                    if lengths and counts and lengths[0] * counts[0] > _LARGEST_PRODUCT:
                        raise SecurityError(f"a text or list of more than {_LARGEST_PRODUCT} items")
                    limits.check(max(sizes) * max(counts, default=1))
            return limits.bounded(super().call_binop(context, operator, left, right))

    class Template(jinja2.Template):
        def make_module(self, vars: Any = None, shared: bool = False, locals: Any = None) -> Any:
            """Make a module, as `import` needs it, unless another template of the component made the same."""
            given = {name: value for name, value in (locals or {}).items() if value is not missing}
            make = partial(super().make_module, vars, shared, given)
            libraries: Libraries = self.environment.libraries  # type: ignore[attr-defined]
            return libraries.module(str(self.name), {**(vars or {}), **given}, make)

    class State(Namespace):
        """What `state(…)` gives: `{% set s.a = 1 %}` sets an attribute."""

        def __setitem__(self, name: str, value: Any) -> None:
            libraries, frame = object.__getattribute__(self, "made_by")
            libraries.written(frame)
            super().__setitem__(name, value)

    class Undefined(jinja2.StrictUndefined):
        __slots__ = ()

        def __init__(
            self, hint: str | None = None, obj: Any = missing, name: Any = None, exc: Any = None
        ) -> None:
            known = list(obj) if isinstance(obj, dict) else None
            raised: Any = exc or partial(UndefinedName, name, known, hint)
            super().__init__(hint, obj, name, raised)

    class UndefinedName(jinja2.UndefinedError):
        def __init__(self, name: Any, known: Sequence[str] | None, hint: str | None, message: str) -> None:
            super().__init__(hint or message)
            self.name, self.known, self.hint = name, known, hint

    class Loader(jinja2.BaseLoader):
        def __init__(self, code: Callable[[Any, str], CodeType]) -> None:
            self._code = code

        def load(self, environment: Any, name: str, globals: Any = None) -> Any:
            try:
                code = self._code(environment, name)
            except KeyError:
                raise jinja2.TemplateNotFound(name) from None
            return environment.template_class.from_code(environment, code, globals or {}, None)

    class Marks(Extension):
        """Puts the file and line of its origin before each line of a template's own text."""

        def filter_stream(self, stream: Any) -> Any:
            return TokenStream(self._marked(stream), stream.name, stream.filename)

        def _marked(self, stream: Any) -> Iterator[Token]:
            environment: Any = self.environment
            file = environment.rendering.renderer.source(stream.name)
            for token in stream:
                if token.type == "variable_begin":
                    yield Token(token.lineno, "data", mark_of(file, token.lineno))
                elif token.type == "data":
                    lines = token.value.split("\n")
                    marked = [f"{mark_of(file, token.lineno + n)}{line}" for n, line in enumerate(lines)]
                    token = Token(token.lineno, "data", "\n".join(marked))
                yield token

    filters = {name: rule for name, rule in FILTERS.items() if name not in _REMOVED_FILTERS}
    filters |= {"scalar": lambda value: Raw(write.to_flow(value)), "raw": Raw, "yaml": to_yaml}
    filters |= {"sha256": lambda text: hashlib.sha256(text.encode()).hexdigest()}
    filters |= {"b64": lambda text: b64encode(text.encode()).decode("ascii")}
    filters |= {"json": write.to_compact_json, "tojson": write.to_compact_json, "pretty_json": write.to_json}
    filters |= {name: keeping(FILTERS[name]) for name in ("indent", "trim")}
    own = frozenset({State, TemplateModule})  # hold what templates put there
    Environment.template_class = Template
    return SimpleNamespace(Environment=Environment, Undefined=Undefined, Loader=Loader, Marks=Marks)


# --------------------------------------------------------------------------------------------------- errors


def _wording(
    error: Exception, variables: Mapping[str, Any], templates: Mapping[str, str]
) -> tuple[str, str | None]:
    """Give message and hint for what a template raised."""
    import jinja2

    near: str | None = None
    message = str(error)
    if isinstance(error, _Failed):
        near = error.near
    elif isinstance(error, jinja2.UndefinedError):
        name, known = getattr(error, "name", None), getattr(error, "known", None)
        if name is not None and getattr(error, "hint", None) is None:
            message = f"`{name}` is not defined"
            near = nearest(str(name), variables if known is None else known)
    elif isinstance(error, jinja2.TemplatesNotFound):
        message = f"the package has no template `{message}`"
    elif isinstance(error, jinja2.TemplateNotFound):
        message = f"the package has no template `{error.name}`"
        near = nearest(str(error.name), templates)
    elif isinstance(error, jinja2.TemplateAssertionError):
        kind, _, name = message.removeprefix("No ").removesuffix(".").partition(" named ")
        message = f"there is no {kind} `{name.strip(chr(39))}`" if name else message
        near = nearest(name.strip("'"), _kit().Environment().filters) if kind == "filter" else None
    elif isinstance(error, jinja2.TemplateSyntaxError):
        message = f"the template does not parse: {message}"
    elif isinstance(error, RecursionError):
        message = "templates, macros or values stand in each other too deeply"
    elif isinstance(error, MemoryError):
        message = "the templates need more memory than there is"
    elif not isinstance(error, ValueError | jinja2.TemplateError):
        message = f"{type(error).__name__}: {message}"
    return message, f"did you mean `{near}`?" if near else None


def _template_line(trace: TracebackType | None, source: Callable[[str], str]) -> TemplatePlace | None:
    """Find the innermost line of a template in a traceback."""
    found = None
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if template is not None and trace.tb_lineno is not None:
            found = TemplatePlace(source(template.name), template.get_corresponding_lineno(trace.tb_lineno))
        trace = trace.tb_next
    return found
