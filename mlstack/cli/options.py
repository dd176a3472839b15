"""The options that commands share, and what the shell offers when Tab is pressed.

Names are found by listing folders, which are other people's: only what the rules of names allow is offered,
and nothing that any shell would read as more than a word leaves `answer`. The scripts evaluate nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from copy import copy
from importlib import import_module
from inspect import Parameter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import typer
from typer import _completion_classes as shells
from typer.models import ArgumentInfo

from mlstack import names
from mlstack.cli.page import FORMATS, OBJECT_FORMATS
from mlstack.errors import MlstackError, UsageError
from mlstack.names import nearest

if TYPE_CHECKING:
    from mlstack.app.reader import AppReader
    from mlstack.disk_cache import Cache

MISSING = Parameter.empty  # what is declared without a default

# --- completion ---

# A word that every shell takes as it stands, wherever it stands.
_PLAIN_WORD = r"[A-Za-z0-9._/,:@+-][A-Za-z0-9._/,:=@+-]*"


def answer(command: Any, environ: MutableMapping[str, str], session: Any) -> str:
    """Give what a completion script asks for by its variables; nothing when it asks what cannot be.

    The scripts of earlier installations evaluate what they get (that of zsh twice), so help texts go through
    the same sieve as names.
    """
    by_name: dict[str, Any] = {
        "complete_bash": shells.BashComplete,
        "complete_zsh": shells.ZshComplete,
        "complete_fish": shells.FishComplete,
        "complete_powershell": shells.PowerShellComplete,
        "complete_pwsh": shells.PowerShellComplete,
    }
    shell = by_name.get(environ.get("_MLSTACK_COMPLETE", ""))
    if shell is None:
        return ""

    class Plain(shell):  # type: ignore[misc,valid-type]
        def get_completions(self, args: list[str], incomplete: str) -> list[Any]:
            offered = super().get_completions(args, incomplete)
            for item in offered:
                text = (item.help or "").replace(NAMES, "")
                item.help = " ".join(re.sub(r"[^\w .,;()/-]", "", text, flags=re.ASCII).split())
            return [item for item in offered if re.fullmatch(_PLAIN_WORD, item.value)]

    try:
        _join_words(environ)
        words = re.split(r"[ \n]", environ.get("COMP_WORDS", ""))
        for typed, following in pairwise([*words, ""]):  # names are looked for where `--dir` leads
            name, _, folder = typed.partition("=")
            if name == "--dir":
                os.chdir(Path(folder or following).expanduser())
        return str(Plain(command, {"obj": session}, "mlstack", "_MLSTACK_COMPLETE").complete())
    except Exception:  # whoever presses Tab is told nothing; the command itself says what is wrong
        return ""


def _join_words(environ: MutableMapping[str, str]) -> None:
    """Join what bash takes apart: it asks for `--env=g` as three words, of which `=` is one."""
    words = environ.get("COMP_WORDS", "").split("\n")
    at = int(environ.get("COMP_CWORD") or 0)
    for index in range(len(words) - 2, 0, -1):
        if words[index] == "=" and words[index - 1].startswith("--"):
            words[index - 1 : index + 2] = ["".join(words[index - 1 : index + 2])]
            at -= min(max(at - index + 1, 0), 2)
    if len(words) > 1:
        environ.update(COMP_WORDS="\n".join(words), COMP_CWORD=str(at))


Completer = Callable[[typer.Context, str], list[str]]


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _in_app(paths: Callable[[Path], Iterable[str]], check: Callable[[str], object]) -> Completer:
    """Offer the names that the app directory has, as far as the rules of names allow them."""

    def allowed() -> Iterator[str]:
        root = _root()
        for name in {*paths(root)} if root is not None else ():
            with suppress(UsageError):
                check(name)
                yield name

    return lambda ctx, incomplete: _matching(allowed(), incomplete)


def _root() -> Path | None:
    """Give the app directory that the words are typed in."""
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / "app.yaml").is_file()), None)


def _app(**options: Any) -> AppReader:
    from mlstack.app.reader import AppReader

    return AppReader(_root() or Path.cwd(), **options)


def _environments(root: Path) -> Iterator[str]:
    base = root / "environments"
    return (file.parent.relative_to(base).as_posix() for file in base.rglob("environment.yaml"))


def _components(root: Path) -> Iterator[str]:
    base = root / "components"
    files = (file for file in base.rglob("*") if file.suffix in (".yaml", ".yml", ".json"))
    paths = (file.relative_to(base).with_suffix("") for file in files if file.name != "params.yaml")
    return (".".join(path.parts) for path in paths)


def _modules(root: Path) -> Iterator[str]:
    base = root / "components"
    return (".".join(path.relative_to(base).parts) for path in base.rglob("*") if path.is_dir())


def _packages(root: Path) -> Iterator[str]:
    vendor = root / "vendor"
    folders = (file.parent.relative_to(vendor).as_posix() for file in vendor.glob("*/*/package.yaml"))
    return (package.partition("@")[0] for package in folders)


def _check_package(name: str) -> None:
    from mlstack.app.app import parse_package_ref

    parse_package_ref(name)


environments = _in_app(_environments, names.check_environment_name)
components = _in_app(_components, names.check_app_name)
modules = _in_app(_modules, names.check_module_name)
packages = _in_app(_packages, _check_package)
prototypes = _in_app(
    lambda root: (file.parent.name for file in root.glob("vendor/*/*/*/prototype.yaml")),
    names.check_package_name,
)


def examples(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the examples of the prototype that was named before."""
    root, prototype = _root(), str(ctx.params.get("prototype") or ctx.params.get("name")).rpartition("/")[2]
    if root is None or not names.names_a_package("own", prototype, ""):
        return []
    files = (root / "vendor").glob(f"*/*/{prototype}/examples/*.yaml")
    return _matching({file.stem for file in files if names.names_a_package("own", file.stem, "")}, incomplete)


def offered(place: str) -> Callable[[], Iterable[str]]:
    """Offer what a function of another room gives (`app.files.presets`), which is imported for Tab alone."""
    module, _, function = place.rpartition(".")
    return lambda: getattr(import_module(f"mlstack.{module}"), function)()


def registries() -> list[str]:
    """Give the registries of the app."""
    return [registry.name for registry in _app().app.registries]


def policy_sets() -> set[str]:
    """Give the sets and ids of policies, the built-in ones and the app's own."""
    from mlstack.validate.policies import ALL, all_policies

    policies = all_policies(_app().policies) if _root() is not None else {}
    return {ALL, *policies, *(name for policy in policies.values() for name in policy.sets)}


def installable() -> Iterator[str]:
    """Give the packages of the app's registries, of those far away as they are remembered."""
    from mlstack.registries.registry import is_local, kept_contents, open_registry

    app = _app()
    for ref in app.app.registries:
        with suppress(MlstackError):
            known = kept_contents(ref, app.root) or {"packages": ()}
            offered = open_registry(ref, root=app.root).index.packages if is_local(ref) else known["packages"]
            yield from (f"{ref.name}/{package}" for package in offered)


def environment_first(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give environments for the first word; behind it come numbers of revisions, which a cluster knows."""
    return [] if ctx.params.get("words") else environments(ctx, incomplete)


def formats() -> Iterable[str]:
    """Give the formats of results."""
    return FORMATS


def finding_formats() -> Iterable[str]:
    """Give those of findings too, which the module of the one command that prints them has."""
    from mlstack.cli.commands.render import FINDING_FORMATS

    return (*FORMATS, *FINDING_FORMATS)


def component_lists(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give what the last name of a list with commas may become, the names before it kept."""
    before, comma, last = incomplete.rpartition(",")
    return [before + comma + name for name in components(ctx, last)]


def component_and_parameter(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give components for the first word, and for the second the parameters of that component.

    A first word that begins no component's name may be a parameter for all.
    """
    words = [word for word in ctx.params.get("words") or () if not word.startswith("-")]
    if not words:
        return components(ctx, incomplete) or _keys(None, incomplete)
    return _keys(words[0], incomplete) if len(words) == 1 else []


def parameter_and_value(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give what `component_and_parameter` does, and then the values that a parameter may have."""
    words = [word for word in ctx.params.get("words") or () if not word.startswith("-")]
    keys = component_and_parameter(ctx, incomplete) if len(words) < 2 else []
    if keys or not words:
        return keys
    component, key = (words[0], words[1]) if len(words) > 1 else (None, words[0])
    schema = _inner(_declared(component), key)
    values = [*schema.get("enum", ()), *([True, False] if "boolean" in (schema.get("type") or ()) else [])]
    choices = (str(value).lower() if isinstance(value, bool) else value for value in values)
    return _matching((str(choice) for choice in choices if isinstance(choice, str | int)), incomplete)


def parameters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Give the parameters of the component that was named before."""
    return _keys(ctx.params.get("component") or "", incomplete)


def prototype_options(prototype: str | None, incomplete: str) -> list[str]:
    """Give the parameters of a prototype as options; nothing of one that is not here."""
    with suppress(MlstackError):
        return _matching((f"--{name}" for name in _declared("", prototype or "")), incomplete)
    return []


def _declared(component: str | None, prototype: str = "") -> Mapping[str, Any]:
    """Give the schemas of a component's or a prototype's parameters, else those of all installed prototypes.

    They are remembered for the files that decide them: to read prototypes takes longer than anybody waits.
    """
    from mlstack import disk_cache

    root = _root()
    if root is None:
        return {}
    files = [root / "app.yaml", root / "mlstack.lock"]
    files += [root / f"components/{component.replace('.', '/')}.yaml"] if component else []
    content = b"\0".join(file.read_bytes() if file.is_file() else b"" for file in files)
    identity = f"{component}\0{prototype}\0{disk_cache.program_identity()}\0".encode()
    key = f"completion:{hashlib.blake2b(identity + content).hexdigest()}"
    store = disk_cache.of_user(os.environ)
    stored = store.get(key)
    if stored is None:
        stored = json.dumps(_schemas(component, prototype, store)).encode()
        store.put(key, stored)
    schemas: dict[str, Any] = json.loads(stored)
    return schemas


def _schemas(component: str | None, prototype: str, store: Cache) -> dict[str, Any]:
    from mlstack.app.app import Component

    app = _app(store=store)
    chosen = app.component(component) if component and component in app.component_files else None
    prototype = chosen.prototype if isinstance(chosen, Component) else prototype
    params = app.vendor.declared_params() if component is None else {}
    params = {**app.prototype(prototype).params} if prototype else params
    return {name: {} if param.secret else dict(param.schema) for name, param in params.items()}


def _keys(component: str | None, incomplete: str) -> list[str]:
    """Give names of parameters, and behind a dot those of the keys in one."""
    schemas = _declared(component)
    owner, dot, _ = incomplete.rpartition(".")
    if not dot:
        return _matching(schemas, incomplete)
    return _matching((f"{owner}.{key}" for key in _inner(schemas, owner).get("properties", ())), incomplete)


def _inner(schemas: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    schema: Any = {"properties": schemas}
    for part in key.split("."):
        inner = schema.get("properties", {}).get(part) or schema.get("additionalProperties")
        schema = inner if isinstance(inner, dict) else {}
    return schema  # type: ignore[no-any-return]  # a map, whatever the file held


# --- how options are declared ---

NAMES = "{names}"
"""Stands in the help of an option for the names that Tab offers."""


def option(names: str, help_text: str, complete: Any = None, *, default: Any = MISSING, **facts: Any) -> Any:
    """Declare an option by its names and the word for its value, if it takes one: `--namespace -n NAME`."""
    words = names.split(" ")
    metavar = words.pop() if not words[-1].startswith("-") else None
    # Whether a file can be read shows when it is: one that is written need not be readable.
    facts = {"metavar": metavar, "help": help_text, "autocompletion": complete, "readable": False, **facts}
    return typer.Option(default, *words, **facts)


def word(metavar: str, help_text: str | None, complete: Any = None, *, default: Any = MISSING) -> Any:
    """Declare a word of the command line; `[NAME]` may be left out."""
    return typer.Argument(default, metavar=metavar, help=help_text, autocompletion=complete)


def parameter(name: str, kind: Any, declared: Any) -> Parameter:
    """Give the parameter that typer reads.

    What is left out has the declared default, else the one of its type: no, an empty text or nothing.
    """
    declared = copy(declared)
    has_default = declared.default is not MISSING or str(declared.metavar).startswith("[")
    is_needed = isinstance(declared, ArgumentInfo) and not has_default
    if declared.default is MISSING:
        declared.default = ... if is_needed else {bool: False, str: ""}.get(kind)
    if is_list(kind):
        kind = list[get_args(kind)] if is_needed else list[get_args(kind)] | None  # type: ignore[misc]
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=declared)


def is_list(kind: Any) -> bool:
    """Tell whether an option may be repeated."""
    return get_origin(kind) is Sequence


def duration(text: str | float) -> float:
    """Read a time as `5m`, `90s`, `1h30m` or a number of seconds; gives seconds."""
    from mlstack.clock import seconds

    try:
        return seconds(str(text))
    except ValueError as error:
        raise UsageError(str(error)) from error


def one_of(words: Iterable[str], fault: str, hint: str) -> Callable[[str], str]:
    """Give what checks that a value is one of some words."""

    def check(value: str) -> str:
        if value in words:
            return value
        raise UsageError(fault.format(value), hint=hint)

    return check


def _split_names(values: Sequence[str] | None) -> list[str]:
    """Give the names of an option that may be repeated and may hold several with commas between.

    An empty name, as that of a shell's unset variable, must not mean everything.
    """
    names = [name.strip() for value in values or () for name in value.split(",")]
    if not all(names):
        raise UsageError("`-c` got an empty name", hint="write `-c NAME`, or `-c NAME,NAME`")
    return names


_TIME: dict[str, Any] = {"parser": duration, "show_default": False}

# Names of options that several commands take: parameters of one run, the place, the cluster, the question.
GIVEN = "sets set_strings set_files values"
PLACE = "context namespace"
CLUSTER = "kubeconfig folder output"
CONFIRMED = "lock_timeout_s yes yes_i_mean"


def _output(what_is: str, offered: Callable[[], Iterable[str]], *, default: str = "table") -> Any:
    """Declare `-o` with the formats that are offered."""

    def check(value: str) -> str:
        names = [*offered()]
        if value in names:
            return value
        hint = f"use `-o {nearest(value, names) or '|'.join(names)}`"
        raise UsageError(f"no output format `{value}`", hint=hint)

    help_text = f"How the {what_is} printed{NAMES}."
    return option("--output -o FORMAT", help_text, offered, default=default, callback=check)


class Options:
    """The options that commands share, declared once; those that a command does not take have their defaults.

    Those that are called as fields of `ApplyOptions` become these. Of the outputs a command takes one, which
    is found as `output`.
    """

    folder: Path | None = option("--dir DIR", "The app directory, or a folder in it. Default: here.")
    output: str = _output("result is", formats)
    finding_output: str = _output("result is", finding_formats)  # with those of `commands/render.py`
    object_output: str = _output("objects are", lambda: OBJECT_FORMATS, default="yaml")
    kubeconfig: str | None = option("--kubeconfig FILE", "Kubeconfig file. Default: `$KUBECONFIG`.")
    env: str | None = word(
        "[ENV]", "The environment. Default: the one chosen by `env current --set`.", environments
    )
    envs: Sequence[str] = word(
        "[ENV]...",
        "The environments, by names or as in a shell (`us-*`). Default: that of `env current`.",
        environments,
    )
    every: bool = option("--all", "All environments of the app.")
    keep_going: bool = option("--keep-going", "Go on with the other environments when one fails.")
    components: Sequence[str] = option(
        "--component -c NAME",
        "Only this component or module; `-c A,B` and `-c A -c B` take several.",
        component_lists,
        callback=_split_names,
    )
    sets: Sequence[str] = option("--set [COMPONENT.]KEY=VALUE", "A parameter for this run; repeatable.")
    set_strings: Sequence[str] = option(
        "--set-string KEY=TEXT", "As `--set`, and the value is a text; repeatable."
    )
    set_files: Sequence[str] = option(
        "--set-file KEY=FILE", "As `--set`, and the value is a file's text; repeatable."
    )
    values: Sequence[Path] = option(
        "--values FILE", "A YAML file of parameters for this run, `-` is stdin; repeatable."
    )
    context: str | None = option(
        "--context NAME", "Another kubectl context, for this run; it must lead to the same cluster."
    )
    namespace: str | None = option("--namespace -n NAME", "Another namespace, for this run.")
    create: bool = option(
        "--create/--no-create", "Whether objects that are missing are created.", default=True
    )
    prune: bool = option(
        "--prune/--no-prune", "Whether objects that the files no longer bring are deleted.", default=True
    )
    allow_large_prune: bool = option(
        "--allow-large-prune", "Also delete more than half of what was deployed."
    )
    adopt: bool = option("--adopt", "Take over objects of other apps, environments and tools.")
    force_conflicts: bool = option("--force-conflicts", "Take fields from the programs that own them too.")
    keep_foreign_fields: bool = option(
        "--keep-foreign-fields", "Leave what people set by hand and no file has."
    )
    allow_destructive: bool = option(
        "--allow-destructive-crds", "Let definitions lose fields and versions that exist."
    )
    allow_dirty: bool = option(
        "--allow-dirty", "Apply files to a protected environment that are in no git commit."
    )
    check_capacity: bool = option(
        "--check-capacity",
        "Look whether nodes and quotas have room for the pods; if not, nothing is written.",
    )
    dry_run: bool = option("--dry-run", "The server says what would be done; nothing is written.")
    on_failure: str = option(
        "--on-failure stop|rollback",
        "After a failure: stop, or apply the last revision that worked again.",
        default="stop",
        callback=one_of(("stop", "rollback"), "`--on-failure {}` means nothing", "use stop or rollback"),
    )
    fail_fast: bool = option("--fail-fast", "Begin nothing more once an object has failed.")
    wait: bool = option(
        "--wait/--no-wait",
        "Whether to return only when everything works, and what was deleted is gone.",
        default=True,
    )
    timeout_s: float | None = option(
        "--timeout DURATION",
        "How long to wait for anything (90s, 5m, 1h): until it works, until it is gone."
        " Default: 5m, and 2m in which nothing goes.",
        **_TIME,
    )
    wait_for_jobs: bool = option(
        "--wait-for-jobs", "Wait also for training jobs and the like, until they run."
    )
    lock_timeout_s: float | None = option(
        "--lock-timeout DURATION",
        "How long to wait for another run on the environment; 0 refuses at once. Default: 30s.",
        **_TIME,
    )
    yes: bool = option("--yes -y", "Answer the question with yes.")
    yes_i_mean: str | None = option("--yes-i-mean ENV", "The name of the protected environment you mean.")

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)


# Type and declaration of each, in whose place the class has the default.
SHARED = {name: (kind, vars(Options)[name]) for name, kind in get_type_hints(Options).items()}
for _name, (_kind, _option) in SHARED.items():
    setattr(Options, _name, () if is_list(_kind) else parameter(_name, _kind, _option).default.default)

ENV = word("ENV", "The environment.", environments)
ENV_OPTION = option("--env ENV", "As it is in this environment. Default: what all share.", environments)
