"""Components: the values that a command line gives them, those that are asked for, renamed or removed."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from mlstack.app import document as documents
from mlstack.app import layout, params
from mlstack.app.app import Component, Moved
from mlstack.app.app_dir import AppDir, write_lock
from mlstack.app.document import (
    AppDocument,
    FieldReader,
    Origin,
    decode,
    described,
    join_path,
    split_path,
    to_map,
)
from mlstack.app.edit import EditedFile, changed_texts
from mlstack.app.files import decrypt, is_encrypted, renamed
from mlstack.app.params import (
    Layer,
    ParamFault,
    Resolved,
    canonical_name,
    inner_param,
    merge,
    nested,
    overlaid,
    param_error,
    parse_text,
    spelling_table,
)
from mlstack.app.prototype import NO_EFFECT, Example, Param, Prototype
from mlstack.app.reader import AppReader
from mlstack.app.schema import check_params
from mlstack.dataclass import dataclass
from mlstack.errors import ConfigError, NotFoundError, ParamError, UsageError
from mlstack.names import check_component_name, check_module_name, did_you_mean, not_found
from mlstack.yaml.read import KeyPath

# --- values for one run: `--values FILE`, `--set KEY=VALUE` ---


@dataclass(frozen=True)
class ValuesFile:
    """A file given with `--values`: for every component, and for single ones by full name."""

    globals: Layer
    components: Mapping[str, Layer] = field(default_factory=dict)


@dataclass(frozen=True)
class SetOption:
    """One `--set`, `--set-string` or `--set-file`: the key, split at its dots, and the text of the value."""

    path: KeyPath  # an optional component's full name, the parameter, and keys inside it
    text: str  # to be typed by what the parameter declares, unless `as_string`
    as_string: bool = False
    option: str = "--set"

    @property
    def origin(self) -> Origin:
        """Give the option as typed, without its value."""
        return Origin(f"{self.option} {join_path(self.path)}")

    def split(self, components: Collection[str]) -> tuple[str | None, KeyPath]:
        """Split the longest component name off the path; something must be left for the parameter."""
        for length in range(len(self.path) - 1, 0, -1):
            name = ".".join(map(str, self.path[:length]))
            if name in components:
                return name, self.path[length:]
        return None, self.path


@dataclass(frozen=True)
class Overrides:
    """All values given for one run, in the order they were given."""

    files: tuple[ValuesFile, ...] = ()
    sets: tuple[SetOption, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.sets)

    def layers(
        self, component: str, params: Mapping[str, Param], *, components: Collection[str]
    ) -> list[Layer]:
        """Give the layers for one component, lowest first: files, `--set KEY`, `--set COMPONENT.KEY`.

        `params` is what its prototype declares; the full names of all `components` tell a component from a
        parameter.
        """
        layers: list[Layer] = []
        for values in self.files:
            layers.append(values.globals)
            layers += [values.components[component]] if component in values.components else []
        split = [(*option.split(components), option) for option in self.sets]
        for target in (None, component):
            for path, option in ((path, option) for owner, path, option in split if owner == target):
                name = str(path[0])
                declared = params.get(spelling_table(params).get(name, ""))
                inner = inner_param(declared, path[1:]) if declared else None
                value = nested(path[1:], parse_text(inner, option.text, as_string=option.as_string))
                origins: dict[KeyPath, Origin] = {(name,): option.origin}
                for_all = target is None
                layers.append(Layer("command line", {name: value}, origins, speaks_to_many=for_all))
        return layers

    def keys(self, components: Collection[str]) -> list[tuple[str | None, str, Origin]]:
        """Give every (component or None, parameter as spelled, origin), to find the ones nobody declares."""
        keys: list[tuple[str | None, str, Origin]] = []
        for values in self.files:
            for owner, layer in ((None, values.globals), *values.components.items()):
                origins = layer.origins
                keys += [(owner, name, origins.get((name,), Origin("--values"))) for name in layer.values]
        for option in self.sets:
            owner, path = option.split(components)
            keys.append((owner, str(path[0]), option.origin))
        return keys

    def refuse_undeclared(self, app: AppReader, environment: str | None) -> None:
        """Refuse values that no component of an app declares: a typed name is meant."""
        every = app.component_files
        declared: set[str] = set()
        for owner, name, origin in self.keys(every):
            if owner is not None:
                if owner not in every:
                    hint = "mlstack component list"
                    raise not_found(f"no component `{owner}`", owner, every, where=str(origin), hint=hint)
                app.component_with_params(owner)
                continue
            declared = declared or app.spellings_of(app.components(), environment)
            if name in declared:
                continue
            message, is_component = f"no component has a parameter `{name}`", name in every
            hint = did_you_mean(name, [*declared, *every], "mlstack param list")
            own = [component for component in app.components() if isinstance(component, Component)]
            charts = [c.full_name for c in own if (p := app.prototype_of(c)).chart and name in p.params]
            if charts:
                message = f"`{name}` is a value of a chart, which takes none that is meant for all components"
                hint = f"--set {charts[0]}.{name}=VALUE"
            if is_component:
                message = f"`{name}` is a component, no parameter"
                hint = f"--set {name}.PARAM=VALUE, or in a file `components: {{{name}: {{PARAM: VALUE}}}}`"
            raise param_error([ParamFault(message, str(origin), hint, names_nothing=not is_component)])

    def plain(self) -> dict[str, Any]:
        """Write them as plain data, without their origins; empty if there are none."""
        files = [
            {
                "globals": dict(values.globals.values),
                "components": {name: dict(layer.values) for name, layer in values.components.items()},
            }
            for values in self.files
        ]
        sets = [{"path": list(opt.path), "text": opt.text, "asString": opt.as_string} for opt in self.sets]
        return {"files": files, "sets": sets} if self else {}

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Overrides:
        """Give the overrides that `plain` wrote."""
        files = tuple(
            ValuesFile(
                Layer("command line", values.get("globals", {}), speaks_to_many=True),
                {name: Layer("command line", inner) for name, inner in values.get("components", {}).items()},
            )
            for values in data.get("files", ())
        )
        sets = (SetOption(tuple(opt["path"]), opt["text"], opt["asString"]) for opt in data.get("sets", ()))
        return cls(files=files, sets=tuple(sets))


def parse_set(text: str, *, option: str = "--set") -> SetOption:
    r"""Read `key=value` or `component.key=value`; `\.` is a dot inside a key.

    Of any `option` but `--set` the value is a text, whatever it looks like.
    """
    key, equals, value = text.partition("=")
    path = split_path(key)
    if not equals or "" in path:
        hint = f"write {option} num_workers=2 or {option} cnn.num_workers=2"
        raise UsageError(f"`{option} {text}` is not `key=value`", hint=hint)
    return SetOption(path, value, option != "--set", option)


def typed_values(prototype: Prototype, texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Give the values of options by canonical name, in the order they were given.

    A text is None for an option without a value. Dots lead into maps: `--image.tag=1.10`.
    """
    values: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for name, text in texts.items():
        first, *rest = split_path(name)
        param = prototype.param(canonical_name(prototype, str(first)))
        if any(isinstance(part, int) for part in rest):
            raise UsageError(f"`--{name}` is an item of a list", hint=f"give the whole list: --{first}='[…]'")
        if (other := spelled.setdefault(param.name, str(first))) != first:
            hint = f"keep --{param.name} alone"
            raise UsageError(f"`--{other}` and `--{first}` are spellings of one parameter", hint=hint)
        inner = inner_param(param, rest)
        if text is None and (inner is None or "boolean" not in inner.types):
            raise UsageError(f"`--{name}` needs a value", hint=f"write --{name}=VALUE")
        value = True if text is None else parse_text(inner, text)
        for part in reversed(rest):
            value = {part: value}
        values[param.name] = overlaid(values.get(param.name), value) if rest else value
    return values


def read_overrides(
    sets: Sequence[str], files: Sequence[Path], *, strings: Sequence[str] = (), texts: Sequence[str] = ()
) -> Overrides:
    """Read what `--set`, `--values`, `--set-string` and `--set-file` (its text) give for one run.

    Raises:
        UsageError: a `--set` is not `key=value`.
        NotFoundError: a values file does not exist.
        ConfigError: a values file is not a map of parameters.
    """
    values = tuple(read_values(file) for file in files)
    typed = [parse_set(text) for text in sets] + [parse_set(text, option="--set-string") for text in strings]
    typed += [parse_set(text, option="--set-file") for text in texts]
    return Overrides(files=values, sets=tuple(typed))


def read_values(file: Path) -> ValuesFile:
    """Read one values file, or stdin when it is called `-`; errors are those of `read_overrides`."""
    is_stdin = str(file) == "-"
    try:
        data = sys.stdin.read().encode() if is_stdin else file.read_bytes()
    except FileNotFoundError as error:
        hint = "relative paths start at the working directory"
        raise NotFoundError(f"no values file `{file}`", hint=hint) from error
    except OSError as error:
        message = f"cannot read the values file `{file}`: {(error.strerror or str(error)).lower()}"
        raise UsageError(message, hint="give a YAML file of parameters") from error
    listed = documents.read_all(data, file="stdin" if is_stdin else str(file))
    if not listed:
        return ValuesFile(Layer("command line", {}))
    if len(listed) > 1:
        raise ConfigError("a values file holds one document", where=str(listed[1].origin()))
    document, value = listed[0], listed[0].value
    if not isinstance(value, Mapping):
        raise ConfigError(f"a values file is a map, got {described(value)}", where=str(file))
    is_secret = is_encrypted(value)
    if is_secret:
        value = decrypt(file, name=document.file, data=data if is_stdin else b"")
    if not value or any(key not in ("globals", "components") for key in value):
        return ValuesFile(_layer(document, (), value, is_encrypted=is_secret))
    FieldReader(document).map("components"), FieldReader(document).map("globals")
    components = {
        name: _layer(document, ("components", name), values, for_all=False, is_encrypted=is_secret)
        for name, values in (value.get("components") or {}).items()
    }
    shared = _layer(document, ("globals",), value.get("globals"), is_encrypted=is_secret)
    return ValuesFile(shared, components)


def _layer(
    document: AppDocument, path: KeyPath, values: Any, *, for_all: bool = True, is_encrypted: bool = False
) -> Layer:
    if values is not None and not isinstance(values, Mapping):
        message = f"`{path[-1]}` must be a map of parameters, got {described(values)}"
        raise ConfigError(message, where=str(document.origin(path)))
    origins = document.origins(path)
    return Layer("command line", values or {}, origins, speaks_to_many=for_all, is_encrypted=is_encrypted)


# --- components that are asked for ---


@dataclass(frozen=True, kw_only=True)
class ComponentRequest:
    """A component as it was asked for."""

    prototype: str  # full name, alias or unique end of a name
    name: str | None = None  # with its module in front (`serving.inception`), else the parameter `name`
    module: str | None = None  # None for the one in its name
    texts: Mapping[str, str | None] = field(default_factory=dict)  # as typed; None: option without a value
    values_files: tuple[Path, ...] = ()  # later ones win over earlier, `texts` over all
    example: str | None = None  # of the prototype's, to start from


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A component that could be added to an app as it is, with the parameters that were given."""

    component: Component
    prototype: Prototype
    resolved: Resolved  # as the parameters would count, checked
    notes: tuple[str, ...] = ()  # of parameters that have no effect any more


def draft(app: AppReader, request: ComponentRequest, prototype: Prototype) -> Draft:
    """Work out a component from what was asked for, checked; nothing is written."""
    values, origins, notes = _values(prototype, request)
    module, name = _name(request, values)
    if values.get("name") == name:
        del values["name"]  # a component's name is the default
    full_name = prototype.full_name
    if "@" in request.prototype:  # a version that was asked for stays
        full_name = f"{prototype.package_version}/{prototype.name}"
    file = layout.component_file(module, name)
    component = Component(name=name, module=module, prototype=full_name, params=values, file=file)
    is_chart = prototype.chart is not None
    shared = [] if is_chart else app.shared_layers(layout.enclosing(module))
    layers = [*shared, Layer("component", values, origins)]
    resolved = params.Declared.of(prototype).resolve(layers)
    required = (param.name for param in prototype.params.values() if param.required)
    if missing := [name for name in required if resolved.values.get(name) is None]:
        names = ", ".join(f"`{name}`" for name in missing)
        options = " ".join(f"--{name}=VALUE" for name in missing)
        raise UsageError(f"prototype `{prototype.name}` needs {names}", hint=f"add {options}")
    try:
        check_params(prototype, resolved, passed=app.store)
    except ParamError as error:
        hint = f"`mlstack generate {prototype.name} --help` lists what it takes"
        raise type(error)(error.message, where=error.where, hint=hint) from error
    return Draft(component=component, prototype=prototype, resolved=resolved, notes=notes)


def _values(
    prototype: Prototype, request: ComponentRequest
) -> tuple[dict[str, Any], dict[KeyPath, Origin], tuple[str, ...]]:
    """Give the values by canonical name, where each was given, and notes of old names and idle values."""
    called, alias = prototype.called(request.prototype), prototype.alias(request.prototype) or ""
    values: dict[str, Any] = dict(prototype.alias_params.get(alias, {}))
    origins: dict[KeyPath, Origin] = {(name,): Origin(f"prototype {alias}") for name in values}
    if request.example is not None:
        for key, value in _example(prototype, request.example).params.items():
            name = canonical_name(prototype, key)
            if name != "name" or request.name is None:
                values[name], origins[(name,)] = value, Origin(f"example {request.example}")
    for key, value, origin in _of_files(request):
        try:
            name = canonical_name(called, key)
        except NotFoundError as error:
            error.where = str(origin)
            raise
        known = values.get(name)
        values[name] = merge(known, value) if isinstance(known, Mapping) else value
        origins[(name,)] = origin
    for name, value in typed_values(called, request.texts).items():
        values[name], origins[(name,)] = value, Origin(f"--{name}")
        # `null` is what ksonnet wrote where nothing was set.
        if value is None and (alias or name in prototype.schema.get("required", ())):
            del values[name]
    idle = [name for name in values if called.param(name).deprecated == NO_EFFECT]
    values = {name: value for name, value in values.items() if name not in idle}
    typed = [name.partition(".")[0] for name in request.texts]
    notes = [note for name in typed for note in params.renamed(name, canonical_name(called, name))]
    return values, origins, (*notes, *(f"`{name}` has no effect any more" for name in idle))


def _of_files(request: ComponentRequest) -> Iterator[tuple[str, Any, Origin]]:
    """Give the values of all `--values` files, those for every component first, in their order."""
    for file in request.values_files:
        given = read_values(file)
        for layer in filter(None, (given.globals, given.components.get(request.name or ""))):
            for key, value in layer.values.items():
                yield key, value, layer.origins.get((key,), Origin(str(file)))


def _example(prototype: Prototype, name: str) -> Example:
    if name not in prototype.examples:
        message = f"prototype `{prototype.name}` has no example `{name}`"
        hint = f"it has {', '.join(map('`{}`'.format, prototype.examples)) or 'none'}"
        raise not_found(message, name, prototype.examples, hint=hint)
    return prototype.examples[name]


def _name(request: ComponentRequest, values: Mapping[str, Any]) -> tuple[str, str]:
    full_name = request.name or str(values.get("name") or "")
    if not full_name:
        raise UsageError("what is the component called?", hint=f"mlstack generate {request.prototype} NAME")
    module, _, name = full_name.rpartition(".")
    parts = [(request.module or "").replace("/", ".").strip("."), module]
    module = ".".join(part for part in parts if part)
    if "/" in full_name or "" in full_name.split("."):
        check_component_name(full_name)  # names no path, and no part of one is empty
    return check_module_name(module) if module else "", check_component_name(name)


# --- what goes, and what gets other names ---


def remove(app: AppDir, names: Collection[str], *, modules: Sequence[str] = ()) -> tuple[str, ...]:
    """Remove components, and modules with their folders; give the files that were deleted or changed.

    The first of the modules holds the others, if there are any. What other components depend on stays, and so
    does the last target of an environment.
    """
    gone = {*names, *modules}
    _refuse_needed(app, gone, names)
    deleted = [layout.module_folder(modules[0])] if modules else [app.component(name).file for name in names]
    personal = app.edited(layout.OVERRIDES, "PersonalOverrides")
    former, moved = {*names, *app.formerly(names)}, app.edited(layout.APP_FILE, "App")
    moved.drop(("moved",), lambda entry: entry["to"] in former)
    edits = [personal, moved]
    for environment in app.environment_names:
        patches = [layout.patch_file(environment, name) for name in sorted(names)]
        deleted += [patch for patch in patches if app.files.bytes(patch) is not None]
        params = app.edited(layout.environment_params_file(environment), "EnvironmentParams")
        params.unset_all(("components",), names)
        settings = app.edited(layout.environment_file(environment), "Environment")
        _remove_targets(settings, environment, gone)
        edits += [params, settings]
    for number in range(len(app.personal.environments)):
        personal.unset_all(("environments", number, "components"), names)
    changed = changed_texts(edits) | _encrypted(app, dict.fromkeys(names))
    used = {component.source for component in app.kustomizations() if component.full_name not in names}
    sources = {component.source for component in app.kustomizations()} - used
    if copies := [entry for entry in app.lock.kustomizations if entry.source in sources]:
        kept = tuple(entry for entry in app.lock.kustomizations if entry not in copies)
        changed[layout.LOCK_FILE] = write_lock(replace(app.lock, kustomizations=kept))
        deleted += [entry.folder for entry in copies]
    app.write(changed, deleted)
    return tuple(sorted([*deleted, *changed]))


def _encrypted(app: AppDir, names: Mapping[str, str | None]) -> dict[str, bytes | str]:
    """Give encrypted files of environments in which components have other names, or are gone (None)."""
    changed: dict[str, bytes | str] = {}
    for environment in app.environment_names:
        file = layout.encrypted_params_file(environment)
        document = app.files.encrypted(file)
        components = document.value.get("components") if document is not None else None
        if document is not None and (own := names.keys() & (components or {}).keys()):
            changed[file] = renamed(app.root / file, name=file, names={old: names[old] for old in own})
    return changed


def _refuse_needed(app: AppDir, gone: Collection[str], components: Collection[str]) -> None:
    for other, file, number, needed in _dependencies(app):
        if needed in gone and other not in components:
            message, where = f"component `{other}` depends on `{needed}`", ("dependsOn", number)
            hint = "take it out of `dependsOn` there first"
            raise ConfigError(message, where=app.position(file, where), hint=hint)


def _dependencies(app: AppDir) -> Iterator[tuple[str, str, int, str]]:
    """Give each component with its file, and the number and name of each thing that it depends on."""
    for component in app.components():
        for number, needed in enumerate(getattr(component, "depends_on", ())):
            yield component.full_name, component.file, number, needed


def _remove_targets(settings: EditedFile, environment: str, gone: Collection[str]) -> None:
    targets = settings.at(("targets",)) or []
    if targets and not set(targets) - set(gone):  # no targets would be all there are
        last = f"`{'`, `'.join(dict.fromkeys(targets))}` is the last target of `{environment}`"
        message = f"{last}; without one everything would be deployed"
        hint = f"name others first: mlstack env targets {environment} NAME, or --all"
        raise ConfigError(message, where=settings.file, hint=hint)
    settings.drop(("targets",), lambda target: target in gone)


def rename(app: AppDir, old: str, new: str, *, named: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Give a component another full name; give its new file, and all files that were written or deleted.

    `named` is what its parameter `name` is set to, so that its objects keep their names; None for nothing.
    """
    app.check_component(new)
    if new in app.component_files:
        where = app.component_files[new][0]
        raise UsageError(f"there is a component `{new}` already", where=where, hint="choose another name")
    file = app.component(old).file
    module, _, name = new.rpartition(".")
    target = layout.component_file(module, name).removesuffix(".yaml") + file[file.rindex(".") :]
    own = EditedFile(file, decode(app.files.bytes(file) or b"", file=file))
    if named is not None:
        own.set(("params", "name"), named)
    edits = [*_elsewhere(app, old, new)]
    for _, other, number, needed in _dependencies(app):
        if needed == old:
            edited = own if other == file else next((e for e in edits if e.file == other), None)
            if edited is None:
                edited = app.edited(other, "Component")
                edits.append(edited)
            edited.set(("dependsOn", number), new)
    files: dict[str, bytes | str] = {**changed_texts(edits)}
    deleted = [file]
    for environment in app.environment_names:
        patch = layout.patch_file(environment, old)
        content = app.files.bytes(patch)
        if content is not None:
            files[layout.patch_file(environment, new)] = content
            deleted.append(patch)
    files |= _encrypted(app, {old: new})
    app.write({target: own.text, **files}, deleted)
    return target, tuple(sorted({target, *files, *deleted}))


def _elsewhere(app: AppDir, old: str, new: str) -> Iterator[EditedFile]:
    """Give what environments say of a component, said of its new name, and what it was called."""
    for environment in app.environment_names:
        params = app.edited(layout.environment_params_file(environment), "EnvironmentParams")
        params.rename(("components", old), new)
        yield params
        settings = app.edited(layout.environment_file(environment), "Environment")
        for number, target in enumerate(settings.at(("targets",)) or ()):
            if target == old:
                settings.set(("targets", number), new)
        yield settings
    personal = app.edited(layout.OVERRIDES, "PersonalOverrides")
    for number in range(len(app.personal.environments)):
        personal.rename(("environments", number, "components", old), new)
    yield personal
    moved = app.edited(layout.APP_FILE, "App")
    moved.drop(("moved",), lambda entry: entry["from"] == new)  # who comes back has not moved from there
    moved.append(("moved",), to_map(Moved(old=old, new=new)))
    yield moved
