"""How the results of commands on the app directory look: one function a result type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlstack.cli.page import Block, Page, TextLine, TextTable
from mlstack.cli.views import VIEWS, count, facts, one_line_value, prose, yes

if TYPE_CHECKING:
    from mlstack.cli.commands.shell import Versions
    from mlstack.operations import app, packages, params


# --- How the results of commands on the app directory look: one function a result type ---

# ---------------------------------------------------------------------------------------------- the app


@VIEWS.register("Versions")
def versions(result: Versions) -> Page:
    """Show the versions, ours first."""
    rows = (("mlstack", result.mlstack), ("python", result.python), *result.libraries.items())
    return Page((TextTable(("PROGRAM", "VERSION"), rows),), (f"mlstack {result.mlstack}",))


@VIEWS.register("SchemaList")
def schema_list(result: app.SchemaList) -> Page:
    """Show the schemas, those of files first."""
    rows = tuple((row.name, row.describes, row.summary) for row in result.schemas)
    return Page(
        (TextTable(("NAME", "DESCRIBES", "SUMMARY"), rows),), tuple(row.name for row in result.schemas)
    )


@VIEWS.register("Schema")
def schema(result: app.Schema) -> Page:
    """Show a schema as the JSON that it is."""
    from mlstack.cli.output import json_text

    return Page(tuple(TextLine(line) for line in json_text(result).splitlines()), (result.name,))


@VIEWS.register("Initialised")
def initialised(result: app.Initialised) -> Page:
    """Say where the app is and what comes next."""
    registries = f" with the registry `{result.registries[0]}`" if result.registries else ""
    notes = (f"next: cd {result.folder} && mlstack pkg install kubeflow/core",)
    return Page(
        (TextLine(f"created app `{result.app}` in {result.folder}{registries}"),), (result.app,), notes
    )


# ----------------------------------------------------------------------------------------- environments


@VIEWS.register("EnvironmentAdded")
def environment_added(result: app.EnvironmentAdded) -> Page:
    """Say which context and namespace were chosen."""
    facts = [f"context {result.context}", f"namespace {result.namespace}"]
    facts += [f"preset {result.preset}"] if result.preset else []
    facts += [f"extends {result.extends}"] if result.extends else []
    line = f"added environment `{result.name}`: {', '.join(facts)}"
    return Page((TextLine(line),), (result.name,), (f"next: mlstack render {result.name}",))


@VIEWS.register("EnvironmentList")
def environment_list(result: app.EnvironmentList) -> Page:
    """Show the environments, the current one marked."""
    rows = tuple(
        (
            f"{row.name} *" if row.current else row.name,
            row.context,
            row.namespace,
            row.kubernetes_version,
            row.extends or "",
            yes(row.protected),
        )
        for row in result.environments
    )
    table = TextTable(
        ("NAME", "CONTEXT", "NAMESPACE", "KUBERNETES", "EXTENDS", "PROTECTED"), rows, cut="CONTEXT"
    )
    names = tuple(row.name for row in result.environments)
    return Page((table,), names, () if rows else ("next: mlstack env add NAME",))


@VIEWS.register("EnvironmentDescription")
def environment_description(result: app.EnvironmentDescription) -> Page:
    """Show one environment and the parameters it sets."""
    blocks = facts(
        ("name", result.name),
        ("file", result.file),
        ("context", result.context),
        ("namespace", result.namespace),
        ("kubernetes", result.kubernetes_version),
        ("extends", result.extends),
        ("targets", ", ".join(result.targets) or "all components"),
        ("protected", "yes" if result.protected else "no"),
        ("writes to", _reach(result)),
        ("load balancers", "must get an address" if result.wait_for_load_balancer else "need no address"),
        ("cluster", (result.cluster or {}).get("uid") or "not contacted yet"),
    )
    rows = [("all", name, one_line_value(value)) for name, value in result.globals.items()]
    for component_name, values in result.components.items():
        rows += [(component_name, name, one_line_value(value)) for name, value in values.items()]
    if rows:
        blocks += [TextLine(""), TextTable(("COMPONENT", "PARAM", "VALUE"), tuple(rows))]
    return Page(tuple(blocks), (result.name,))


def _reach(result: app.EnvironmentDescription) -> str:
    places = ", ".join(result.allowed_namespaces)
    if result.cluster_scoped == "allowed":
        return f"{places}, and outside namespaces" if places else ""
    return f"{places or 'any namespace'}, nothing outside namespaces"


@VIEWS.register("EnvironmentChanged")
def environment_changed(result: app.EnvironmentChanged) -> Page:
    """Say what changed."""
    told = [f"{key} = {one_line_value(value) or 'unset'}" for key, value in result.changes.items()]
    told += ["the cluster met next is the one it is bound to"] if result.cluster_forgotten else []
    return Page(
        (TextLine(f"environment `{result.name}`: {', '.join(told) or 'nothing to change'}"),), (result.name,)
    )


@VIEWS.register("EnvironmentRemoved")
def environment_removed(result: app.EnvironmentRemoved) -> Page:
    """Say that it is gone."""
    line = f"removed environment `{result.name}` from the app; its cluster was not touched"
    return Page((TextLine(line),), (result.name,))


@VIEWS.register("CurrentEnvironment")
def current_environment(result: app.CurrentEnvironment) -> Page:
    """Show the name alone."""
    if result.name is None:
        return Page((), (), ("no environment is chosen: mlstack env current --set ENV",))
    return Page((TextLine(result.name),), (result.name,))


# ------------------------------------------------------------------------------- registries and packages


@VIEWS.register("RegistryAdded")
def registry_added(result: packages.RegistryAdded) -> Page:
    """Say which registry it is and what it offers."""
    line = f"added registry `{result.name}` with {count(result.packages, 'package')}: {result.address}"
    if result.known:
        line = f"registry `{result.name}` is in the app already: {result.address}"
    blocks = [TextLine(line)]
    if result.bundled:
        blocks.append(TextLine("it is the registry that mlstack brings along: nothing is downloaded"))
    return Page(tuple(blocks), (result.name,), (f"next: mlstack registry describe {result.name}",))


@VIEWS.register("RegistryList")
def registry_list(result: packages.RegistryList) -> Page:
    """Show the registries."""
    rows = tuple((row.name, row.protocol, row.address) for row in result.registries)
    names = tuple(row.name for row in result.registries)
    notes = () if rows else ("next: mlstack registry add NAME ADDRESS",)
    return Page((TextTable(("NAME", "PROTOCOL", "ADDRESS"), rows),), names, notes)


@VIEWS.register("RegistryDescription")
def registry_description(result: packages.RegistryDescription) -> Page:
    """Show a registry and its packages."""
    blocks = facts(("name", result.name), ("protocol", result.protocol), ("address", result.address))
    rows = tuple((row.name, row.version, row.installed or "", row.summary) for row in result.packages)
    blocks += [TextLine(""), TextTable(("PACKAGE", "VERSION", "INSTALLED", "SUMMARY"), rows)]
    return Page(tuple(blocks), tuple(row.name for row in result.packages))


@VIEWS.register("Indexed")
def indexed(result: packages.Indexed) -> Page:
    """Say what happened to the index."""
    state = "is up to date" if not result.stale else "was rewritten" if result.written else "is stale"
    notes = () if result.ok else (f"next: mlstack registry index {result.folder}",)
    return Page((TextLine(f"index of {count(result.packages, 'package')} {state}"),), (), notes)


@VIEWS.register("Installed")
def installed(result: packages.Installed) -> Page:
    """Show each package that is there now."""
    lines = tuple(
        TextLine(
            f"{row.state} {row.package}@{row.version} ({row.digest[:19]})",
            "" if row.state == "kept" else "add",
        )
        for row in result.packages
    )
    wanted = result.packages[-1]
    note = f"next: mlstack pkg describe {wanted.package}"
    return Page(lines, tuple(f"{row.package}@{row.version}" for row in result.packages), (note,))


@VIEWS.register("PackageList")
def package_list(result: packages.PackageList) -> Page:
    """Show the packages, known and installed."""
    rows = tuple((row.package, row.version, row.installed or "", row.summary) for row in result.packages)
    notes = tuple(f"note: {note}" for note in result.notes)
    names = tuple(row.package for row in result.packages)
    return Page((TextTable(("PACKAGE", "VERSION", "INSTALLED", "SUMMARY"), rows),), names, notes)


@VIEWS.register("PackageDescription")
def package_description(result: packages.PackageDescription) -> Page:
    """Show a package and its prototypes."""
    blocks = facts(
        ("package", result.package),
        ("version", result.version),
        ("installed", result.installed or "no"),
        ("summary", result.summary),
        ("licence", result.license),
        ("requires", ", ".join(result.requires)),
        ("digest", result.digest),
    )
    blocks += prose(result.description)
    rows = tuple((row.name, row.summary) for row in result.prototypes)
    blocks += [TextLine(""), TextTable(("PROTOTYPE", "SUMMARY"), rows)] if rows else []
    return Page(tuple(blocks), tuple(row.name for row in result.prototypes))


@VIEWS.register("PackageRemoved")
def package_removed(result: packages.PackageRemoved) -> Page:
    """Say what is gone."""
    return Page(tuple(TextLine(f"removed {name}", "remove") for name in result.packages), result.packages)


# ------------------------------------------------------------------------------------------ components


@VIEWS.register("Generated")
def generated(result: packages.Generated) -> Page:
    """Say which file was written and how to look at what it brings."""
    verb = "replaced" if result.replaced else "generated"
    blocks = [TextLine(f"{verb} component `{result.name}` from {result.prototype}: {result.file}")]
    notes = (*(f"note: {note}" for note in result.notes), f"next: mlstack param list {result.name}")
    return Page(tuple(blocks), (result.name,), notes)


@VIEWS.register("ComponentList")
def component_list(result: packages.ComponentList) -> Page:
    """Show the components: those of prototypes with their package, manifests with their file."""
    rows: tuple[tuple[str, ...], ...] = tuple(
        (row.name, row.type, row.prototype or "", row.package or row.file) for row in result.components
    )
    heads: tuple[str, ...] = ("COMPONENT", "TYPE", "PROTOTYPE", "FROM")
    if any(row.depends_on for row in result.components):
        heads += ("DEPENDS ON",)
        named = [", ".join(row.depends_on) for row in result.components]
        rows = tuple((*row, depends) for row, depends in zip(rows, named, strict=True))
    table = TextTable(heads, rows)
    notes = () if rows else ("next: mlstack generate PROTOTYPE NAME",)
    return Page((table,), tuple(row.name for row in result.components), notes)


@VIEWS.register("ComponentRemoved")
def component_removed(result: packages.ComponentRemoved) -> Page:
    """Say which files changed."""
    notes = ("what was applied goes from a cluster with the next `mlstack apply ENV`",)
    return Page(
        tuple(TextLine(f"removed `{result.name}` from {file}") for file in result.files),
        (result.name,),
        notes,
    )


# ------------------------------------------------------------------------------------------- parameters


@VIEWS.register("ParamChanged")
def param_changed(result: params.ParamChanged) -> Page:
    """Say what was set where, and whether it counts."""
    state = f"set {result.name} = {one_line_value(result.value) or 'null'}"
    if not result.changed:
        state = f"{result.name} is {one_line_value(result.value)} already"
    return Page(
        (TextLine(f"{state} ({result.place}, {result.file})"),),
        (result.name,),
        tuple(f"note: {note}" for note in result.notes),
    )


@VIEWS.register("ParamUnset")
def param_unset(result: params.ParamUnset) -> Page:
    """Say what was taken back and what counts now."""
    line = f"unset {result.name} ({result.place}, {result.file})"
    return Page((TextLine(line),), (result.name,), tuple(f"note: {note}" for note in result.notes))


@VIEWS.register("ParamList")
def param_list(result: params.ParamList) -> Page:
    """Show values and where they were set; the component where there are several."""
    rows = tuple(
        (
            row.component,
            row.name,
            one_line_value(row.value),
            "default" if row.level == "default" else row.origin,
        )
        for row in result.rows
    )
    table = TextTable(("COMPONENT", "PARAM", "VALUE", "FROM"), rows, cut="VALUE")
    if len({row.component for row in result.rows}) == 1:
        table = TextTable(table.columns[1:], tuple(row[1:] for row in rows), cut="VALUE")
    names = tuple(f"{row.component}.{row.name}" for row in result.rows)
    return Page((table,), names, tuple(f"note: {note}" for note in result.notes))


@VIEWS.register("ParamDiff")
def param_diff(result: params.ParamDiff) -> Page:
    """Show the parameters that differ."""
    names = tuple(f"{row.component}.{row.name}" for row in result.rows)
    if not names:
        return Page((), (), (f"no parameter differs between `{result.first}` and `{result.second}`",))
    rows = tuple(
        (row.component, row.name, one_line_value(row.first), one_line_value(row.second))
        for row in result.rows
    )
    heads = ("COMPONENT", "PARAM", result.first.upper(), result.second.upper())
    return Page((TextTable(heads, rows, cut=heads[2]),), names)


# --- How prototypes look to a person: lists, matches, and one with all its parameters ---


@VIEWS.register("PrototypeList")
def prototype_list(result: packages.PrototypeList) -> Page:
    """Show the prototypes, and where there are any which of them are not installed."""
    rows = [(row.name, row.package, yes(row.installed), row.summary) for row in result.prototypes]
    table = TextTable(("PROTOTYPE", "PACKAGE", "INSTALLED", "SUMMARY"), tuple(rows))
    if all(row.installed for row in result.prototypes):
        table = TextTable(("PROTOTYPE", "PACKAGE", "SUMMARY"), tuple((*row[:2], row[3]) for row in rows))
    notes = tuple(f"note: {note}" for note in result.notes)
    if not rows and not notes:
        notes = ("no prototypes here yet: mlstack pkg list, then mlstack pkg install REGISTRY/PACKAGE",)
    return Page((table,), tuple(row.name for row in result.prototypes), notes)


@VIEWS.register("PrototypeMatches")
def prototype_matches(result: packages.PrototypeMatches) -> Page:
    """Show what is meant with its parameters, one line each, and what else matches in a line."""
    blocks: list[Block] = []
    for found in result.prototypes:
        blocks += [TextLine("")] if blocks else []
        blocks += [*_head(found), TextLine(""), _parameter_table(found)]
    if result.others:
        rows = tuple((row.name, row.summary) for row in result.others)
        blocks += [TextLine(""), TextTable(("ALSO", "SUMMARY"), rows, cut="SUMMARY")]
    names = (*(found.name for found in result.prototypes), *(row.name for row in result.others))
    return Page(tuple(blocks), names, (f"what each one does: mlstack prototype describe {names[0]}",))


def _parameter_table(found: packages.PrototypeDescription) -> TextTable:
    rows = ((row.name, row.type, _default(row)) for row in found.parameters)
    return TextTable(("PARAM", "TYPE", "DEFAULT"), tuple(rows), cut="DEFAULT")


def _default(row: packages.ParameterRow) -> str:
    if row.default is None:
        return "(required)" if row.required else "(deprecated)" if row.deprecated else ""
    return one_line_value(row.default)


@VIEWS.register("PrototypeDescription")
def prototype_description(result: packages.PrototypeDescription) -> Page:
    """Show a prototype and its parameters."""
    blocks = _prototype(result)
    example = f"mlstack generate {result.name} NAME"
    required = "".join(f" --{row.name}=VALUE" for row in result.parameters if row.required)
    return Page((*blocks, TextLine(""), TextLine(f"use: {example}{required}")), (result.name,))


def _prototype(found: packages.PrototypeDescription) -> list[Block]:
    blocks = [*_head(found), *prose(found.description), TextLine("")]
    blocks.append(TextLine("parameters:" if found.parameters else "it takes no parameters"))
    return blocks + [line for row in found.parameters for line in _parameter(row)]


def _head(found: packages.PrototypeDescription) -> list[Block]:
    blocks: list[Block] = [TextLine(f"{found.name} ({found.package}): {found.summary}", "head", hang=0)]
    if found.aliases:
        blocks.append(TextLine(f"also known as {', '.join(found.aliases)}", hang=0))
    for alias, params in found.alias_params.items():
        told = ", ".join(f"{param}: {one_line_value(value)}" for param, value in params.items())
        blocks.append(TextLine(f"  {alias} sets {told}", hang=4))
    return blocks


def _parameter(row: packages.ParameterRow) -> list[Block]:
    default = "" if row.default is None else f"default {one_line_value(row.default)}"
    facts_ = (
        row.type,
        "required" if row.required else default,
        f"unit {row.unit}" if row.unit else "",
        row.limits,
        "secret" if row.secret else "",
        f"also {', '.join(row.aliases)}" if row.aliases else "",
    )
    head = f"  {row.name}: {', '.join(fact for fact in facts_ if fact)}"
    told = [row.description, f"Deprecated: {row.deprecated}" if row.deprecated else ""]
    lines = [TextLine(head, hang=6), TextLine("      " + " ".join(filter(None, told)), hang=6)]
    return [line for line in lines if line.text.strip()]
