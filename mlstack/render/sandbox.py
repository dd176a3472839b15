"""The only door to Jinja2: sandboxed, strict, bounded. It is imported when something is rendered."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from string import Formatter
from types import BuiltinMethodType, CodeType, TracebackType
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.compiler import CodeGenerator, optimizeconst
from jinja2.environment import TemplateModule
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import FILTERS
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, missing

from mlstack.errors import TemplateError, TemplateRefusedError
from mlstack.names import nearest
from mlstack.render.template import (
    LARGEST_TEMPLATE,
    FailedError,
    Libraries,
    LimitedError,
    Limits,
    RefusedError,
    Rendering,
    TemplatePlace,
    mark_of,
)
from mlstack.yaml import write

JINJA = jinja2.__version__


class Raw(str):
    """Text of a template, written as it is; every other string is a value."""

    __slots__ = ()


def to_yaml(value: Any, indent: int = 0) -> str:
    """Write a value in block style; every line starts `indent` spaces further right."""
    lines = write.to_yaml(value)[:-1].split("\n")
    return Raw("\n".join(f"{' ' * indent}{line}" if line else "" for line in lines))


def keeping(rewrite: Callable[..., str]) -> Callable[..., str]:
    """Let a filter on text of a template give text of a template."""

    def kept(text: str, *args: Any, **options: Any) -> str:
        rewritten = rewrite(text, *args, **options)
        return Raw(rewritten) if isinstance(text, Raw) else rewritten

    return kept


# --- an environment whose templates are bounded ---

_REMOVED_FILTERS = (
    *("random", "pprint"),  # no two runs alike
    *("e", "escape", "forceescape", "safe", "striptags", "urlize", "xmlattr"),  # for HTML
)
_READING = frozenset({"get", "items", "keys", "values"})  # methods of a mapping that leave it as it is
_NUMBERS = frozenset({int, float})
_REMEMBERING = ("cycler", "joiner")  # globals that make what changes when it is used
_LARGEST_PRODUCT = 1_000_000
_LARGEST_EXPONENT = 1_000
# Five figures or a star as the width or precision of a directive, behind its name where it has one.
_WIDTH = r"%[-#0 +]*(?:\d*\.)?(?:\d{5}|\*)"
_WIDTH_OF_NAMED = r"\)[-#0 +]*(?:\d*\.)?\d{5}"
_LONG_SPEC = r"\d{5}|\{"
# Filters whose arguments are values, compared or picked but never put together with each other.
_PICKING = frozenset(
    {
        *("attr", "d", "default", "dictsort", "float", "groupby", "int", "items", "map", "max", "min"),
        *("reject", "rejectattr", "select", "selectattr", "sort", "unique"),
    }
)
_OWN_OPTIONS = ("_loop_vars", "_block_vars")  # what compiled templates add to calls


def _fail(message: object) -> NoReturn:
    raise RefusedError(message)


class _Generator(CodeGenerator):
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


class _Reads(Context):
    """The names that a template sees; which of them it looks up decides what its text depends on."""

    def resolve_or_missing(self, key: str) -> Any:
        self.environment.rendering.reads.add(key)  # type: ignore[attr-defined]
        return super().resolve_or_missing(key)


class _Environment(ImmutableSandboxedEnvironment):
    code_generator_class = _Generator
    context_class = _Reads
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
            if size > LARGEST_TEMPLATE:
                self.limits.spend(size)
                size = 0
        self.limits.spend(size)
        return "".join(texts)

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=self._finalized, **options)
        self.limits, self.libraries = Limits(), Libraries({})
        self.filters = {name: self._limited(name, rule) for name, rule in _FILTERS.items()}
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
            raise FailedError(f"the prototype has no file `{name}`", near=nearest(name, files))
        return files[name]

    def _state(self, *given: Any, **values: Any) -> _State:
        """Make an object whose attributes templates set."""
        state = _State(*given, **values)
        object.__setattr__(state, "made_by", (self.libraries, self.libraries.frame))
        return state

    def _finalized(self, value: Any) -> str:
        """Write what an expression gave."""
        if value.__class__ is str or value.__class__ is int:  # as most are
            return write.to_flow(value)
        if isinstance(value, Raw):
            return value
        return str(value) if isinstance(value, jinja2.Undefined) else write.to_flow(value)  # the first raises

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
            if re.search(_WIDTH, text) or ("%(" in text and re.search(_WIDTH_OF_NAMED, text)):
                raise LimitedError("a format with a width above 9,999, or one that is a value itself")
            self.limits.check((1 + text.count("%")) * (1 + self.limits.weight(values)))

    def wrap_str_format(self, value: Any) -> Any:
        """Bound `format` of a string as well."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        @wraps(wrapped)
        def limited(*args: Any, **options: Any) -> str:
            specs = [spec or "" for _, _, spec, _ in Formatter().parse(value.__self__)]
            if any(re.search(_LONG_SPEC, spec) for spec in specs):
                raise LimitedError("a format with a width above 9,999, or one that is a value itself")
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
        if attribute in _READING if kind is dict else kind in _OWN and attribute[:1] != "_":
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


class _Template(jinja2.Template):
    def make_module(self, vars: Any = None, shared: bool = False, locals: Any = None) -> Any:
        """Make a module, as `import` needs it, unless another template of the component made the same."""
        given = {name: value for name, value in (locals or {}).items() if value is not missing}
        make = partial(super().make_module, vars, shared, given)
        libraries: Libraries = self.environment.libraries  # type: ignore[attr-defined]
        return libraries.module(str(self.name), {**(vars or {}), **given}, make)


class _State(Namespace):
    """What `state(…)` gives: `{% set s.a = 1 %}` sets an attribute."""

    def __setitem__(self, name: str, value: Any) -> None:
        libraries, frame = object.__getattribute__(self, "made_by")
        libraries.written(frame)
        super().__setitem__(name, value)


class _Undefined(jinja2.StrictUndefined):
    __slots__ = ()

    def __init__(
        self, hint: str | None = None, obj: Any = missing, name: Any = None, exc: Any = None
    ) -> None:
        known = list(obj) if isinstance(obj, dict) else None
        raised: Any = exc or partial(_UndefinedName, name, known, hint)
        super().__init__(hint, obj, name, raised)


class _UndefinedName(jinja2.UndefinedError):
    def __init__(self, name: Any, known: Sequence[str] | None, hint: str | None, message: str) -> None:
        super().__init__(hint or message)
        self.name, self.known, self.hint = name, known, hint


class TemplateLoader(jinja2.BaseLoader):
    """Gives templates as code, which it is given the way to: `code(environment, name)`."""

    def __init__(self, code: Callable[[Any, str], CodeType]) -> None:
        self._code = code

    def load(self, environment: Any, name: str, globals: Any = None) -> Any:
        """Give a template; raises TemplateNotFound."""
        try:
            code = self._code(environment, name)
        except KeyError:
            raise jinja2.TemplateNotFound(name) from None
        return environment.template_class.from_code(environment, code, globals or {}, None)


class _Marks(Extension):
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


_FILTERS = {name: rule for name, rule in FILTERS.items() if name not in _REMOVED_FILTERS}
_FILTERS |= {"scalar": lambda value: Raw(write.to_flow(value)), "raw": Raw, "yaml": to_yaml}
_FILTERS |= {"sha256": lambda text: hashlib.sha256(text.encode()).hexdigest()}
_FILTERS |= {"b64": lambda text: b64encode(text.encode()).decode("ascii")}
_FILTERS |= {"json": write.to_compact_json, "tojson": write.to_compact_json, "pretty_json": write.to_json}
_FILTERS |= {name: keeping(FILTERS[name]) for name in ("indent", "trim")}
_OWN = frozenset({_State, TemplateModule})  # hold what templates put there
_Environment.template_class = _Template


def environment(*, marking: bool) -> _Environment:
    """Make an environment whose templates mark the origin of their lines, or a plain one."""
    environment = _Environment(
        undefined=_Undefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        cache_size=-1,
    )
    if marking:
        environment.extensions["marks"] = _Marks(environment)
    return environment


# --- what went wrong, and where ---


def explained(error: Exception, name: str, rendering: Rendering) -> TemplateError:
    """Say what a template raised, and at which line of which file."""
    renderer, reads = rendering.renderer, ""
    if isinstance(error, jinja2.TemplateSyntaxError):
        place = TemplatePlace(renderer.source(error.name or name), error.lineno)
    else:
        template, line = _template_line(error.__traceback__) or (name, 1)
        place = TemplatePlace(renderer.source(template), line)
        reads = _reads(renderer.prototype.templates.get(template, ""), line, rendering.variables)
    message, hint = _wording(error, rendering.variables, renderer.prototype.templates)
    if not isinstance(error, FailedError | jinja2.TemplateError | RecursionError | MemoryError):
        message += reads
    kind = TemplateRefusedError if isinstance(error, RefusedError) else TemplateError
    return kind(message, where=f"{place.file}:{place.line}", hint=hint)


_PARAMETER = r"""\bparams(?:\.get\(\s*["']|\[\s*["']|\.)([A-Za-z_]\w*)"""


def _reads(text: str, line: int, variables: Mapping[str, Any]) -> str:
    """Say which parameters a line of a template reads, and of which type they are."""
    lines, params = text.splitlines(), variables.get("params", {})
    names = dict.fromkeys(re.findall(_PARAMETER, lines[line - 1] if line <= len(lines) else ""))
    values = [
        f"`{name}`, which is {'not set' if params[name] is None else _TYPES.get(type(params[name]), 'set')}"
        for name in names
        if name in params
    ]
    return f"; the line reads {', and '.join(values)}" if values else ""


_TYPES: Mapping[type, str] = {
    **{str: "a string", bool: "true or false", int: "a number", float: "a number"},
    **{list: "a list", dict: "a map"},
}


def _wording(
    error: Exception, variables: Mapping[str, Any], templates: Mapping[str, str]
) -> tuple[str, str | None]:
    """Give message and hint for what a template raised."""
    near: str | None = None
    message = str(error)
    if isinstance(error, FailedError):
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
        near = nearest(name.strip("'"), _FILTERS) if kind == "filter" else None
    elif isinstance(error, jinja2.TemplateSyntaxError):
        message = f"the template does not parse: {message}"
    elif isinstance(error, RecursionError):
        message = "templates, macros or values stand in each other too deeply"
    elif isinstance(error, MemoryError):
        message = "the templates need more memory than there is"
    elif not isinstance(error, ValueError | jinja2.TemplateError):
        message = f"{type(error).__name__}: {message}"
    return message, f"did you mean `{near}`?" if near else None


def _template_line(trace: TracebackType | None) -> tuple[str, int] | None:
    """Find the innermost line of a template in a traceback."""
    innermost = None
    while trace is not None:
        template = trace.tb_frame.f_globals.get("__jinja_template__")
        if template is not None and trace.tb_lineno is not None:
            innermost = template.name, template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return innermost


# --- templates read, without rendering them ---

_VARIABLES = frozenset({"params", "name", "component", "namespace", "app", "env"})


def template_faults(name: str, text: str, declared: Collection[str] | None) -> Iterator[tuple[int, str]]:
    """Give line and message of what is wrong with a template as it stands.

    Args:
        name: of the template.
        text: of the template.
        declared: the parameters that it may use; None for a library, which sees more names.
    """
    reading = environment(marking=False)
    try:
        tree = reading.parse(text, name)
        reading.compile(text, name)
    except jinja2.TemplateSyntaxError as error:
        yield error.lineno, _wording(error, {}, {})[0]
        return
    if declared is None:
        return
    assigned = {node.name for node in tree.find_all(nodes.Name) if node.ctx == "store"}
    unknown = meta.find_undeclared_variables(tree) - reading.globals.keys() - _VARIABLES - assigned
    for node in tree.find_all(nodes.Name):
        if node.name in unknown:
            unknown.remove(node.name)
            yield node.lineno, _undefined(node.name, [*_VARIABLES, *reading.globals])
    for attribute in tree.find_all(nodes.Getattr):
        if _is_params(attribute.node) and attribute.attr not in {*declared, *_READING}:
            yield attribute.lineno, _undefined(attribute.attr, declared, "params.")
    for item in tree.find_all(nodes.Getitem):
        key = getattr(item.arg, "value", None)
        if _is_params(item.node) and isinstance(key, str) and key not in declared:
            yield item.lineno, _undefined(key, declared, "params.")


def _is_params(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "params"


def _undefined(name: str, known: Iterable[str], prefix: str = "") -> str:
    near = nearest(name, known)
    return f"`{prefix}{name}` is not declared" + (f", did you mean `{prefix}{near}`?" if near else "")
