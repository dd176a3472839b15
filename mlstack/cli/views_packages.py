"""How the results on components look, and on what they come from: registries, packages, prototypes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mlstack.cli.page import (
    TABLE_VIEWS,
    Block,
    Page,
    Style,
    TableView,
    TextLine,
    columns,
    count,
    facts_of,
    one_line_value,
    prose,
    section,
    shown,
    table,
    view,
)

if TYPE_CHECKING:
    from mlstack.importers import plan
    from mlstack.operations import authors, components, imports, package_changes, packages, registries

TABLE_VIEWS |= {
    "RegistryList": TableView(
        "registries", "NAME PROTOCOL ADDRESS OVERRIDDEN?", empty="next: mlstack registry add NAME ADDRESS"
    ),
    "PackageList": TableView("packages", "PACKAGE VERSION INSTALLED ENVIRONMENTS? SUMMARY", names="package"),
    "OutdatedList": TableView(
        "packages",
        "PACKAGE INSTALLED WANTED NEWEST ENVIRONMENTS? NOTE?",
        names="package",
        empty="every package is the newest",
    ),
    "ComponentList": TableView(  # those of prototypes with their package, manifests with their file
        "components",
        columns(
            "COMPONENT=name TYPE PROTOTYPE FROM DEPENDS_ON? KINDS?", FROM=lambda row: row.package or row.file
        ),
        empty="next: mlstack generate PROTOTYPE NAME",
    ),
    "ModuleList": TableView(
        "modules",
        "MODULE=name COMPONENTS PARAMS TARGET_OF?=environments",
        empty="next: mlstack module create NAME",
    ),
    "PrototypeList": TableView(
        "prototypes",
        "PROTOTYPE=name PACKAGE INSTALLED?yes SUMMARY",
        empty="no prototypes here yet: mlstack pkg list, then mlstack pkg install REGISTRY/PACKAGE",
    ),
}

# --- registries and packages ---


@view
def _registry_added(result: registries.RegistryAdded) -> Page:
    text = f"added registry `{result.name}` with {count(result.packages, 'package')}: {result.address}"
    text = f"registry `{result.name}` is in the app already: {result.address}" if result.known else text
    more = ["it is the registry that mlstack brings along: nothing is downloaded"] if result.bundled else []
    step = f"registry describe {result.name}" if result.packages else f"pkg install {result.name}/PACKAGE"
    return shown(result, [text, *more], result.name, f"next: mlstack {step}")


@view
def _registry_set(result: registries.RegistrySet) -> Page:
    text = f"registry `{result.name}` leads to {result.address} now, with {count(result.packages, 'package')}"
    text = text if result.changed else f"registry `{result.name}` leads to {result.address} already"
    lines = [TextLine(f"it does not offer {name}, which is installed", "change") for name in result.missing]
    return shown(result, [text, *lines], result.name, f"next: mlstack registry update {result.name}")


@view
def _registries_updated(result: registries.RegistriesUpdated) -> Page:
    blocks: list[Block] = []
    for registry in result.registries:
        at = f" at {registry.revision[:12]}" if registry.revision else ""
        state = "nothing changed" if not registry.changes else count(len(registry.changes), "change")
        if registry.is_first:
            state = f"asked for the first time: {count(registry.packages, 'package')}"
        blocks.append(TextLine(f"registry `{registry.name}`{at}: {state}"))
        for change in registry.changes:
            has = f" (installed: {change.installed})" if change.installed else ""
            more = ": other content under the same version" if change.change == "changed" else ""
            line = f"  {change.change} {change.package}@{change.version}{has}{more}"
            blocks.append(TextLine(line, _STYLES[change.change]))
    names = [change.package for registry in result.registries for change in registry.changes]
    return shown(result, blocks, names)


_STYLES: dict[str, Style] = {"added": "add", "removed": "remove", "changed": "change"}


@view
def _registry_removed(result: registries.RegistryRemoved) -> Page:
    overridden = f"registry `{result.name}` is not read from {result.address} any more"
    removed = f"removed registry `{result.name}`: {result.address}"
    return shown(result, [overridden if result.override else removed], result.name)


@view
def _registry_description(result: registries.RegistryDescription) -> Page:
    blocks = facts_of(result, "NAME PROTOCOL ADDRESS REVISION")
    packages = table(result.packages, "PACKAGE=name VERSION INSTALLED SUMMARY")
    return shown(result, [*blocks, "", packages], [row.name for row in result.packages])


@view
def _indexed(result: registries.Indexed) -> Page:
    state = "is up to date" if not result.stale else "was rewritten" if result.written else "is stale"
    next_step = "" if result.ok else f"next: mlstack registry index {result.folder}"
    return shown(result, [f"index of {count(result.packages, 'package')} {state}"], (), next_step)


@view
def _installed(result: packages.Installed) -> Page:
    names = tuple(f"{row.package}@{row.version}" for row in result.packages)
    lines = [
        TextLine(
            f"{row.state} {name} ({row.digest[:19]}){_only_in(row.environments)}",
            "" if row.state == "kept" else "add",
        )
        for name, row in zip(names, result.packages, strict=True)
    ]
    lines += [TextLine(f"copied {source}", "add") for source in result.copies]
    lines += [TextLine(f"removed {name}", "remove") for name in result.removed]
    last = result.packages[-1].package if result.packages else None
    usual = "" if result.copies else "next: mlstack pkg install REGISTRY/PACKAGE"
    hint = f"next: mlstack pkg describe {last}" if last else usual
    return shown(result, lines, (*names, *result.copies), hint)


def _only_in(environments: tuple[str, ...]) -> str:
    return f" in {', '.join(environments)}" if environments else ""


@view
def _package_description(result: packages.PackageDescription) -> Page:
    heads = columns(
        "PACKAGE VERSION INSTALLED ENVIRONMENTS SUMMARY AUTHORS LICENCE=license KEYWORDS REPOSITORY BUGS"
        " REQUIRES MLSTACK=requires_mlstack NEEDS CHECKED_WITH SOURCE REVISION DIGEST",
        INSTALLED=lambda row: row.installed or "no",
        CHECKED_WITH=lambda row: tuple(f"{name} {version}" for name, version in row.checked_with.items()),
    )
    blocks = facts_of(result, heads)
    blocks += prose(result.description)
    blocks += section(result.prototypes, "PROTOTYPE=name SUMMARY")
    if result.quick_start:
        blocks += [TextLine(""), TextLine("to begin with:"), *prose(result.quick_start)]
    return shown(result, blocks, [row.name for row in result.prototypes])


@view
def _updated(result: package_changes.Updated) -> Page:
    moved = [f"{row.package} {row.before or 'none'} → {row.after or 'none'}" for row in result.packages]
    verb = "would move" if result.preview else "moved"
    blocks: list[Block] = [
        TextLine(f"{verb} {line}{_only_in(row.environments)}", "change")
        for line, row in zip(moved, result.packages, strict=True)
    ]
    heads = columns(
        "COMPONENT ENVIRONMENT PARAM=parameter CHANGE BEFORE=before! AFTER=after! SET_IN=origin",
        CHANGE=lambda row: _EFFECTS[row.kind],
    )
    blocks += section(result.parameters, heads)
    blocks += section(result.objects, "ENVIRONMENT COMPONENT OBJECT ACTION WHY=reason", wrap="OBJECT")
    if not result.packages:
        blocks.append(TextLine("every package is the newest that its requirements let in"))
    usual = "mlstack pkg update carries it out" if result.preview else "mlstack diff ENV"
    hint = f"next: {usual}" if result.packages else ""
    return shown(result, blocks, [row.package for row in result.packages], hint)


_EFFECTS = {
    "default": "other default",
    "hidden": "other default, hidden by",
    "gone": "is gone",
    "renamed": "renamed",
    "new": "new",
    "required": "must be set now",
    "type": "takes other values",
}


@view
def _package_diff(result: package_changes.PackageDiff) -> Page:
    blocks: list[Block] = [TextLine(f"{result.package} {result.first} → {result.second}")]
    heads = columns(
        "PROTOTYPE PARAM=parameter CHANGE BEFORE=before! AFTER=after!",
        CHANGE=lambda row: _EFFECTS.get(row.change or row.kind, f"other {row.kind}"),
    )
    blocks += section(result.changes, heads)
    blocks += [TextLine(f"requires {line}") for line in result.requires]
    blocks += [TextLine(""), *map(TextLine, result.files)] if result.files else []
    return shown(result, blocks, dict.fromkeys(row.prototype for row in result.changes))


@view
def _verified(result: package_changes.Verified) -> Page:
    lines = [TextLine(f"{row.package}: {row.fault}", "remove") for row in result.faults]
    signed = f", {result.signed} signed" if result.signed else ""
    if result.ok:
        lines.append(TextLine(f"{count(result.packages, 'package')} as locked{signed}"))
    names = dict.fromkeys(row.package for row in result.faults)
    return shown(result, lines, names, "" if result.ok else "next: mlstack pkg install --force")


@view
def _package_published(result: registries.PackagePublished) -> Page:
    state = "published" if result.is_new else "is there already:"
    tag, revision = f":{result.tag}" if result.tag else "", result.revision or result.digest
    signed = ", signed" if result.signed else ""
    name = f"{result.address}@{result.revision}" if result.revision else result.address
    return shown(result, [f"{state} {result.address}{tag} ({revision[:19]}{signed})"], name)


@view
def _packages_copied(result: registries.PackagesCopied) -> Page:
    pages = [_package_published(row) for row in result.packages]
    blocks = [block for page in pages for block in page.blocks]
    names = [name for page in pages for name in page.names]
    lines = [f"image {image}" for image in result.images]
    return shown(result, [*blocks, *lines], [*names, *result.images])


@view
def _package_removed(result: packages.PackageRemoved) -> Page:
    lines = [TextLine(f"removed {name}", "remove") for name in result.packages]
    if result.environment:
        lines.insert(0, TextLine(f"environment `{result.environment}` has the app's version again"))
    return shown(result, lines, result.packages)


@view
def _linted(result: authors.Linted) -> Page:
    looked = f"{count(result.packages, 'package')}, {count(result.prototypes, 'prototype')}"
    return _faults_page(result.faults, f"{result.folder}: {looked}")


@view
def _package_tested(result: authors.PackageTested) -> Page:
    heads = columns(
        "PROTOTYPE=name EXAMPLES VARIED COMBINATIONS HOSTILE_TEXTS=hostile_texts",
        VARIED=lambda row: len(row.varied),
    )
    golden = {"none": "no golden output (--update-golden)", "written": "golden output written"}
    words = [f"{result.package} on Kubernetes {result.kubernetes}"]
    words += [golden.get(result.golden, "golden output compared")]
    words += [f"compared with {result.against}"] if result.against else []
    page = _faults_page(result.faults, "; ".join(words))
    bounded = [
        TextLine(f"{count(row.left_out, 'combination')} of {row.name} past the bound left out")
        for row in result.prototypes
        if row.left_out
    ]
    rows = (table(result.prototypes, heads), TextLine("")) if result.prototypes else ()
    return Page((*rows, *bounded, *page.blocks), page.names)


def _faults_page(faults: Sequence[authors.PackageFault], subject: str) -> Page:
    """Show faults one below the other, each with its place, and how many there are."""
    lines = []
    for fault in faults:
        style: Style = "remove" if fault.severity == "error" else "change"
        lines.append(
            TextLine(f"{fault.severity}: {fault.message} ({fault.where or fault.check})", style, hang=2)
        )
        lines += [TextLine(f"  {fault.repeat}")] if fault.repeat else []
    errors = sum(fault.severity == "error" for fault in faults)
    warnings = len(faults) - errors
    words = [count(errors, "fault")] + ([count(warnings, "warning")] if warnings else [])
    lines.append(TextLine(f"{subject}: {', '.join(words)}", hang=2))
    return Page(tuple(lines), tuple(fault.where or fault.check for fault in faults))


# --- prototypes ---


@view
def _prototype_matches(result: packages.PrototypeMatches) -> Page:
    """Show what is meant with its parameters, one line each, and what else matches in a line."""
    blocks: list[Block] = []
    for prototype in result.prototypes:
        heads = columns("PARAM=name TYPE DEFAULT", DEFAULT=_default)
        parameters = table(prototype.parameters, heads, cut="DEFAULT")
        blocks += [*([TextLine("")] if blocks else []), *_prototype_head(prototype), TextLine(""), parameters]
    blocks += section(result.others, "ALSO=name SUMMARY", cut="SUMMARY")
    names = [*(row.name for row in result.prototypes), *(row.name for row in result.others)]
    return shown(result, blocks, names, f"what each one does: mlstack prototype describe {names[0]}")


def _default(param: packages.ParameterRow) -> str:
    if param.default is None:
        return "(required)" if param.required else "(deprecated)" if param.deprecated else ""
    return one_line_value(param.default)


@view
def _prototype_description(result: packages.PrototypeDescription) -> Page:
    required = "".join(f" --{row.name}=VALUE" for row in result.parameters if row.required)
    versions = ", ".join(f"{operator} {version}" for operator, version in result.checked_with.items())
    use, examples = f"mlstack generate {result.name} NAME", result.examples
    blocks: list[Block] = [
        *_prototype_head(result),
        *prose(result.description),
        *(TextLine(text, hang=2) for text in result.needs),
        *([TextLine(f"checked with {versions}", hang=2)] if versions else []),
        TextLine(""),
        TextLine("parameters:" if result.parameters else "it takes no parameters"),
        *(line for row in result.parameters for line in _parameter(row)),
        TextLine(""),
    ]
    if examples:
        lines = [TextLine(f"  {name}: {summary}", hang=6) for name, summary in examples.items()]
        blocks += [TextLine("examples:"), *lines, TextLine("")]
    blocks.append(TextLine(f"use: {use}{required}"))
    blocks += [TextLine(f"     {use} --example {name}") for name in [*examples][:1]]
    return shown(result, blocks, result.name)


def _prototype_head(prototype: packages.PrototypeDescription) -> Iterator[Block]:
    yield TextLine(f"{prototype.name} ({prototype.package}): {prototype.summary}", "head", hang=0)
    if prototype.aliases:
        yield TextLine(f"also known as {', '.join(prototype.aliases)}", hang=0)
    for alias, params in prototype.alias_params.items():
        values = ", ".join(f"{param}: {one_line_value(value)}" for param, value in params.items())
        yield TextLine(f"  {alias} sets {values}", hang=4)
    for alias, renames in prototype.alias_renames.items():
        takes = [f"{old} for {new}" for old, new in renames.items() if new]
        idle = [old for old, new in renames.items() if not new]
        words = [f"takes {', '.join(takes)}"] * bool(takes) + [f"ignores {', '.join(idle)}"] * bool(idle)
        yield TextLine(f"  {alias} {'; '.join(words)}", hang=4)


def _parameter(param: packages.ParameterRow) -> Iterator[Block]:
    default = "" if param.default is None else f"default {one_line_value(param.default)}"
    properties = (
        param.type,
        "required" if param.required else default,
        f"unit {param.unit}" if param.unit else "",
        param.limits,
        "secret" if param.secret else "",
        f"also {', '.join(param.aliases)}" if param.aliases else "",
    )
    yield TextLine(f"  {param.name}: {', '.join(filter(None, properties))}", hang=6)
    deprecation = f"Deprecated: {param.deprecated}" if param.deprecated else ""
    text = " ".join(filter(None, (param.description, deprecation)))
    if text.strip():
        yield TextLine(f"      {text}", hang=6)


# --- components ---


@view
def _generated(result: components.Generated) -> Page:
    verb = "replaced" if result.replaced else "generated"
    text = f"{verb} component `{result.name}` from {result.prototype}: {result.file}"
    return shown(result, [text], result.name, f"next: mlstack param list {result.name}")


@view
def _prototype_begun(result: components.PrototypeBegun) -> Page:
    lines = [TextLine(f"wrote {file}", "add") for file in result.files]
    lines.append(TextLine(f"parameters: {', '.join(result.parameters)}", hang=2))
    lines.append(TextLine(f"its example renders {', '.join(result.objects)}", hang=2))
    steps = [f"next: mlstack pkg test {result.package}"]
    if result.new_package:
        steps.insert(0, f"say under which `license` it is: {result.package}/package.yaml")
    return shown(result, lines, result.name, *steps)


@view
def _component_removed(result: components.ComponentRemoved) -> Page:
    page = shown(result, [f"removed `{result.name}` from {file}" for file in result.files], result.name)
    warnings = [
        f"warning: `{row.component}` is still deployed in `{row.environment}`"
        f" ({count(row.objects, 'object')}); gone with: mlstack apply {row.environment}"
        for row in result.deployed
    ]
    usual = () if warnings else ("what was applied goes from a cluster with the next `mlstack apply ENV`",)
    return Page(page.blocks, page.names, (*warnings, *page.notes, *usual))


@view
def _component_renamed(result: components.ComponentRenamed) -> Page:
    text = f"renamed `{result.before}` to `{result.name}`: {result.file}"
    next_step = "the next `mlstack apply ENV` gives its objects the new label; none is deleted"
    return shown(result, [text], result.name, next_step)


@view
def _module_created(result: components.ModuleCreated) -> Page:
    next_step = f"next: mlstack generate PROTOTYPE {result.name}.NAME"
    return shown(result, [f"created module `{result.name}`: {result.file}"], result.name, next_step)


@view
def _stack_begun(result: components.StackBegun) -> Page:
    text = f"created app `{result.app}` in {result.folder} with the stack `{result.stack}`: components "
    text += f"{', '.join(result.components)}; environments {', '.join(result.environments)}"
    first = result.environments[0]
    step = f"next: cd {result.folder} && mlstack validate {first}"
    return shown(result, [text], result.app, step, f"mlstack env set {first} --context CONTEXT")


# --- imports ---

_NEXT = "next: mlstack render ENV"


@view
def _referred(result: imports.Referred) -> Page:
    text = f"component `{result.name}` is built by kustomize from {result.source}: {result.file}"
    copied = [f"its copy is {result.folder} ({result.digest[:19]})"] if result.folder else []
    return shown(result, [TextLine(text, "add"), *copied], result.name, _NEXT)


@view
def _imported(result: plan.Imported) -> Page:
    into = f" into {result.folder}" if result.folder else ""
    blocks: list[Block] = [
        TextLine(f"imported {count(len(result.components), 'component')}{into}", "head"),
        TextLine(""),
        table(result.components, "COMPONENT=name OBJECTS KINDS FILE", cut="KINDS"),
    ]
    if result.environments:
        blocks += [TextLine(""), table(result.environments, "ENVIRONMENT OBJECTS EQUAL"), TextLine("")]
    for proof in result.environments:
        for difference in proof.differences:
            place = " ".join(filter(None, (difference.object, difference.path)))
            values = f"{one_line_value(difference.before)} -> {one_line_value(difference.after)}"
            text = difference.note or values
            text = f"{text}: {values}" if difference.note and difference.path else text
            blocks.append(TextLine(f"differs in {proof.environment}: {place}: {text}", "change", hang=2))
    failures: dict[str, list[str]] = {}
    for failure in result.failures:
        where = f" ({failure.where})" if failure.where else ""
        failures.setdefault(f"{failure.component}: {failure.reason}{where}", []).append(failure.environment)
    for reason, environments in failures.items():
        text = f"not imported for {', '.join(environments)}: {reason}"
        blocks.append(TextLine(text, "remove", hang=2))
    if result.summary:
        blocks.append(TextLine(result.summary, "add" if result.ok else "change"))
    following = f"next: cd {result.folder} && mlstack env list" if result.folder else _NEXT
    return shown(result, blocks, [row.name for row in result.components], following)
