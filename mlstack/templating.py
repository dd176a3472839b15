"""The only door to Jinja2: sandboxed, strict, plain data in, text out.

Every `{{ expression }}` is written as one YAML-safe value on one line (mappings and lists in flow style),
so that no parameter can change the structure around it. A value inside a longer text is put together in the
expression: `{{ "prefix-" ~ x }}`. What templates themselves write (macros, blocks, the filters `raw` and
`yaml`) goes out as it is.

There is no clock, no randomness, no environment and no file but those of the package: the same parameters
give the same bytes everywhere.
"""

from __future__ import annotations

import hashlib
import marshal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import PurePosixPath
from types import BuiltinMethodType, CodeType, SimpleNamespace, TracebackType
from typing import Any, NoReturn, Protocol

from mlstack import __version__
from mlstack.errors import TemplateError, TemplateRefusedError
from mlstack.model import emit, written
from mlstack.model.libraries import Libraries
from mlstack.model.names import nearest
from mlstack.model.places import Place, mark_of, unmarked
from mlstack.model.prototype import Prototype

_REMOVED_FILTERS = (
    *("random", "pprint"),  # no two runs alike
    *("e", "escape", "forceescape", "safe", "striptags", "urlize", "xmlattr"),  # for HTML
)
_READING = frozenset({"get", "items", "keys", "values"})  # methods of a mapping that leave it as it is
_NUMBERS = frozenset({int, float})
_REMEMBERING = ("cycler", "joiner")  # globals that make what changes when it is used
_LARGEST_PRODUCT = 1_000_000
_LARGEST_EXPONENT = 1_000


class CodeStore(Protocol):
    """Where compiled templates are remembered; `files.cache.Cache` is one."""

    def get(self, key: str) -> bytes | None:
        """Give the bytes of a key, or None."""

    def put(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, if possible."""


class Renderer:
    """Renders the templates of one prototype, for as many components as there are.

    Args:
        prototype: its templates, libraries and files.
        store: remembers compiled templates between runs.
    """

    def __init__(self, prototype: Prototype, *, store: CodeStore | None = None) -> None:
        self._prototype = prototype
        self._store = store
        self._environments: dict[bool, Any] = {}
        self._told: dict[str, None] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Give the templates that bring objects, in the order of their names; libraries start with `_`."""
        names = sorted(self._prototype.templates)
        return tuple(name for name in names if not PurePosixPath(name).name.startswith("_"))

    def rendering(self, variables: Mapping[str, Any]) -> Rendering:
        """Begin to render for one component.

        Args:
            variables: dict, list, str, int, float, bool and None only.

        Raises:
            TypeError: a variable is no plain value.
        """
        written.check_plain(variables, "")
        return Rendering(self, variables)

    def render(self, name: str, variables: Mapping[str, Any]) -> str:
        """Render one template alone.

        Raises:
            TemplateError: as `Rendering.render`.
            TypeError: a variable is no plain value.
        """
        return self.rendering(variables).render(name)

    def run(self, name: str, rendering: Rendering, *, marking: bool) -> str:
        """Render one template for a component; when marking, lines begin with the mark of their origin."""
        environment, variables = self._environment(marking=marking), rendering.variables
        environment.libraries = rendering.libraries(environment.globals, marking=marking)
        self._told = rendering.told
        try:
            template = environment.get_template(name)
            return "".join(template.root_render_func(template.new_context(variables)))
        except Exception as error:  # a template can raise anything that its expressions can
            raise self._explained(error, name, variables) from error

    def _explained(self, error: Exception, name: str, variables: Mapping[str, Any]) -> TemplateError:
        import jinja2

        if isinstance(error, jinja2.TemplateSyntaxError):
            place = Place(self._source(error.name or name), error.lineno)
        else:
            place = _template_line(error.__traceback__, self._source) or Place(self._source(name), 1)
        message, hint = _wording(error, variables, self._prototype.templates)
        kind = TemplateRefusedError if isinstance(error, _Refused) else TemplateError
        return kind(message, where=f"{place.file}:{place.line}", hint=hint)

    def _source(self, name: str) -> str:
        return self._prototype.sources.get(name, name)

    def _environment(self, *, marking: bool) -> Any:
        if marking not in self._environments:
            self._environments[marking] = self._new_environment(marking=marking)
        return self._environments[marking]

    def _new_environment(self, *, marking: bool) -> Any:
        kit = _kit()
        environment = kit.Environment(
            loader=kit.Loader(partial(self._code, marking=marking)),
            undefined=kit.Undefined,
            finalize=kit.finalize,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            auto_reload=False,
        )
        environment.globals |= {"file": self._file, "note": self._note}
        if marking:
            environment.extensions["marks"] = kit.Marks(environment, self._source)
        return environment

    def _code(self, environment: Any, name: str, *, marking: bool) -> CodeType:
        """Compile a template, or take its code from the store."""
        text = self._prototype.templates[name]
        if marking or self._store is None:
            return _compiled(environment, text, name, self._source(name))
        key = _code_key(text, name, self._source(name))
        stored = self._store.get(key)
        if stored is not None:
            code = marshal.loads(stored)
            if isinstance(code, CodeType):
                return code
        code = _compiled(environment, text, name, self._source(name))
        self._store.put(key, marshal.dumps(code))
        return code

    def _note(self, message: object) -> str:
        """Remember a remark for people, and write nothing: `{{ note("…") }}` in templates."""
        self._told[str(message)] = None
        return written.Raw("")

    def _file(self, name: str) -> str:
        """Give the text of a file of the prototype: `file("…")` in templates."""
        if name not in self._prototype.files:
            raise _Failed(f"the prototype has no file `{name}`", near=nearest(name, self._prototype.files))
        return self._prototype.files[name]


class Rendering:
    """The templates of a prototype with the variables of one component; begun by `Renderer.rendering`.

    Args:
        renderer: of the prototype.
        variables: of the component, checked.
    """

    def __init__(self, renderer: Renderer, variables: Mapping[str, Any]) -> None:
        self._renderer = renderer
        self._libraries: dict[bool, Libraries] = {}
        self.variables = variables
        self.told: dict[str, None] = {}
        """What templates rendered so far told with `note("…")`, each remark once."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Give the remarks of the templates rendered so far."""
        return tuple(self.told)

    def libraries(self, known: Mapping[str, Any], *, marking: bool) -> Libraries:
        """Give what the templates share, for the next one; `known` are the names that all templates have."""
        if marking not in self._libraries:
            self._libraries[marking] = Libraries({**known, **self.variables})
        self._libraries[marking].begin()
        return self._libraries[marking]

    def render(self, name: str) -> str:
        """Render one template.

        Args:
            name: one of the renderer's `names`.

        Raises:
            TemplateError: the template does not compile, uses a name that is not defined, calls `fail`, or
                does what the sandbox forbids; names file and line.
        """
        return self._renderer.run(name, self, marking=False)

    def render_with_places(self, name: str) -> tuple[str, list[Place | None]]:
        """Render one template, and give the line of a template that each line of the text came from.

        Text that another template brings has its place there. Places that cannot be told are None. Meant
        for messages: the template is compiled anew for it.

        Raises:
            TemplateError: as `render`.
        """
        text = self.render(name)
        try:
            marked, places = unmarked(self._renderer.run(name, self, marking=True))
        except TemplateError:  # a template that measures its own text may take offence at the marks
            marked, places = "", []
        return text, places if marked == text else [None] * (text.count("\n") + 1)


def _compiled(environment: Any, text: str, name: str, source: str) -> CodeType:
    code: CodeType = environment.compile(text, name, source)
    return code


def _code_key(text: str, name: str, source: str) -> str:
    import jinja2

    versions = (__version__, jinja2.__version__, sys.implementation.cache_tag, str(sys.hexversion))
    parts = "\0".join((*versions, name, source, text))
    return "template:" + hashlib.blake2b(parts.encode("utf-8", "surrogatepass")).hexdigest()


class _Failed(Exception):
    """Raised by functions that templates call."""

    def __init__(self, message: object, near: str | None = None) -> None:
        super().__init__(str(message))
        self.near = near


class _Refused(_Failed):
    """Raised by `fail` in a template."""


def _fail(message: object) -> NoReturn:
    raise _Refused(message)


@cache
def _kit() -> SimpleNamespace:
    """Make the classes that stand on Jinja2's, once it is needed."""
    import jinja2
    from jinja2.environment import TemplateModule
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension
    from jinja2.filters import FILTERS
    from jinja2.lexer import Token, TokenStream
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace, missing

    class Environment(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset({"*", "**"})

        @staticmethod
        def concat(parts: Iterable[str]) -> str:
            return written.Raw("".join(parts))

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.libraries = Libraries({})
            self.filters = filters
            self.globals: dict[str, Any] = {**self.globals, "fail": _fail, "state": self._state}
            self.globals |= {name: partial(self._remembering, self.globals[name]) for name in _REMEMBERING}
            for name in ("lipsum", "namespace"):
                del self.globals[name]

        def _state(self, *given: Any, **values: Any) -> State:
            """Make an object whose attributes templates set."""
            made = State(*given, **values)
            object.__setattr__(made, "made_by", (self.libraries, self.libraries.frame))
            return made

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
            if type(function) is BuiltinMethodType:
                for own_option in ("_loop_vars", "_block_vars"):
                    options.pop(own_option, None)
                return function(*args, **options)
            return super().call(context, function, *args, **options)

        def getitem(self, obj: Any, argument: Any) -> Any:
            """Look up a key: a method is no item."""
            if obj.__class__ is dict:
                return obj[argument] if argument in obj else self.undefined(obj=obj, name=argument)
            return super().getitem(obj, argument)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            """Refuse products and powers that only exhaust the memory."""
            if operator == "*" and type(left) in _NUMBERS and type(right) in _NUMBERS:
                return left * right
            sizes = [len(side) for side in (left, right) if isinstance(side, str | list | tuple)]
            counts = [side for side in (left, right) if isinstance(side, int)]
            if operator == "*" and sizes and counts and sizes[0] * counts[0] > _LARGEST_PRODUCT:
                raise SecurityError(f"a text or list of more than {_LARGEST_PRODUCT} items")
            if operator == "**" and any(abs(count) > _LARGEST_EXPONENT for count in counts):
                raise SecurityError(f"a power above {_LARGEST_EXPONENT}")
            return super().call_binop(context, operator, left, right)

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

        def __init__(self, environment: Any, source: Callable[[str], str]) -> None:
            super().__init__(environment)
            self._source = source

        def filter_stream(self, stream: Any) -> Any:
            return TokenStream(self._marked(stream), stream.name, stream.filename)

        def _marked(self, stream: Any) -> Iterator[Token]:
            file = self._source(stream.name)
            for token in stream:
                if token.type == "variable_begin":
                    yield Token(token.lineno, "data", mark_of(file, token.lineno))
                elif token.type == "data":
                    lines = token.value.split("\n")
                    marked = [f"{mark_of(file, token.lineno + n)}{line}" for n, line in enumerate(lines)]
                    token = Token(token.lineno, "data", "\n".join(marked))
                yield token

    def finalize(value: Any) -> str:
        if isinstance(value, written.Raw):
            return value
        if isinstance(value, jinja2.Undefined):
            return str(value)  # raises
        return emit.to_flow(value)

    filters = {name: rule for name, rule in FILTERS.items() if name not in _REMOVED_FILTERS}
    filters |= {"scalar": written.scalar, "raw": written.Raw, "yaml": written.to_yaml}
    filters |= {"sha256": written.sha256, "b64": written.b64}
    filters |= {"json": emit.to_compact_json, "tojson": emit.to_compact_json, "pretty_json": emit.to_json}
    filters |= {name: written.keeping(FILTERS[name]) for name in ("indent", "trim")}
    own = frozenset({State, TemplateModule})  # hold what templates put there
    Environment.template_class = Template
    return SimpleNamespace(
        Environment=Environment, Undefined=Undefined, Loader=Loader, Marks=Marks, finalize=finalize
    )


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
    elif not isinstance(error, ValueError | jinja2.TemplateError):
        message = f"{type(error).__name__}: {message}"
    return message, f"did you mean `{near}`?" if near else None


def _template_line(trace: TracebackType | None, source: Callable[[str], str]) -> Place | None:
    """Find the innermost line of a template in a traceback."""
    found = None
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if template is not None:
            found = Place(source(template.name), template.get_corresponding_lineno(trace.tb_lineno))
        trace = trace.tb_next
    return found
