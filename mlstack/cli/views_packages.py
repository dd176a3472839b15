"""How the results on what comes from elsewhere look: registries, packages, prototypes, imports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mlstack.cli.page import (
    TABLE_VIEWS,
    Block,
    Columns,
    Page,
    Style,
    TableView,
    TextLine,
    count,
    facts,
    notes,
    one_line_value,
    prose,
    sentence,
    table,
    values_of,
    view,
)

if TYPE_CHECKING:
    from mlstack.importers import write
    from mlstack.operations import authors, imports, package_changes, packages, registries

PACKAGES = {"PACKAGE": "package", "VERSION": "version", "INSTALLED": "installed", "SUMMARY": "summary"}

TABLE_VIEWS |= {
    "RegistryList": TableView(
        "registries",
        {"NAME": "name", "PROTOCOL": "protocol", "ADDRESS": "address", "OVERRIDDEN": "overridden"},
        spare={"OVERRIDDEN": lambda cells: cells <= {""}},
        empty="next: mlstack registry add NAME ADDRESS",
    ),
    "PackageList": TableView(
        "packages",
        {**PACKAGES, "ENVIRONMENTS": "environments"},
        names=lambda row: row.package,
        cut="SUMMARY",
        spare={"ENVIRONMENTS": lambda cells: cells <= {""}},
    ),
    "OutdatedList": TableView(
        "packages",
        {
            "PACKAGE": "package",
            "INSTALLED": "installed",
            "WANTED": "wanted",
            "NEWEST": "newest",
            "ENVIRONMENTS": "environments",
            "NOTE": "note",
        },
        names="package",
        cut="NOTE",
        empty="every package is the newest",
        spare={"ENVIRONMENTS": lambda cells: cells <= {""}, "NOTE": lambda cells: cells <= {""}},
    ),
    "PrototypeList": TableView(
        "prototypes",
        {"PROTOTYPE": "name", "PACKAGE": "package", "INSTALLED": "installed", "SUMMARY": "summary"},
        empty="no prototypes here yet: mlstack pkg list, then mlstack pkg install REGISTRY/PACKAGE",
        spare={"INSTALLED": lambda cells: cells <= {"yes"}},
    ),
}

# --- registries and packages ---


@view
def _registry_added(result: registries.RegistryAdded) -> Page:
    text = f"added registry `{result.name}` with {count(result.packages, 'package')}: {result.address}"
    if result.known:
        text = f"registry `{result.name}` is in the app already: {result.address}"
    blocks = [TextLine(text)]
    if result.bundled:
        blocks.append(TextLine("it is the registry that mlstack brings along: nothing is downloaded"))
    step = f"registry describe {result.name}" if result.packages else f"pkg install {result.name}/PACKAGE"
    return Page(tuple(blocks), (result.name,), (*notes(result), f"next: mlstack {step}"))


@view
def _registry_set(result: registries.RegistrySet) -> Page:
    text = f"registry `{result.name}` leads to {result.address} now, with {count(result.packages, 'package')}"
    text = text if result.changed else f"registry `{result.name}` leads to {result.address} already"
    lines = [TextLine(f"it does not offer {name}, which is installed", "change") for name in result.missing]
    return Page((TextLine(text), *lines), (result.name,), (f"next: mlstack registry update {result.name}",))


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
    names = tuple(change.package for registry in result.registries for change in registry.changes)
    return Page(tuple(blocks), names, notes(result))


_STYLES: dict[str, Style] = {"added": "add", "removed": "remove", "changed": "change"}


@view
def _registry_removed(result: registries.RegistryRemoved) -> Page:
    if result.override:
        text = f"registry `{result.name}` is not read from {result.address} any more"
        return sentence(text, result.name)
    return sentence(f"removed registry `{result.name}`: {result.address}", result.name)


@view
def _registry_description(result: registries.RegistryDescription) -> Page:
    blocks = facts(
        ("name", result.name),
        ("protocol", result.protocol),
        ("address", result.address),
        ("revision", result.revision),
    )
    blocks += [TextLine(""), table(result.packages, {**PACKAGES, "PACKAGE": "name"})]
    return Page(tuple(blocks), tuple(row.name for row in result.packages), notes(result))


@view
def _indexed(result: registries.Indexed) -> Page:
    state = "is up to date" if not result.stale else "was rewritten" if result.written else "is stale"
    next_step = () if result.ok else (f"next: mlstack registry index {result.folder}",)
    line = TextLine(f"index of {count(result.packages, 'package')} {state}")
    return Page((line,), (), (*notes(result), *next_step))


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
    usual = () if result.copies else ("next: mlstack pkg install REGISTRY/PACKAGE",)
    hints = (f"next: mlstack pkg describe {last}",) if last else usual
    return Page(tuple(lines), (*names, *result.copies), (*notes(result), *hints))


def _only_in(environments: tuple[str, ...]) -> str:
    return f" in {', '.join(environments)}" if environments else ""


@view
def _package_description(result: packages.PackageDescription) -> Page:
    blocks = facts(
        ("package", result.package),
        ("version", result.version),
        ("installed", ", ".join(result.installed) or "no"),
        ("environments", ", ".join(result.environments)),
        ("summary", result.summary),
        ("authors", ", ".join(result.authors)),
        ("licence", result.license),
        ("keywords", ", ".join(result.keywords)),
        ("repository", result.repository),
        ("bugs", result.bugs),
        ("requires", ", ".join(result.requires)),
        ("mlstack", result.requires_mlstack),
        ("needs", ", ".join(result.needs)),
        ("checked with", ", ".join(f"{name} {version}" for name, version in result.checked_with.items())),
        ("source", result.source),
        ("revision", result.revision),
        ("digest", result.digest),
    )
    blocks += prose(result.description)
    if result.prototypes:
        columns = {"PROTOTYPE": "name", "SUMMARY": "summary"}
        blocks += [TextLine(""), table(result.prototypes, columns)]
    if result.quick_start:
        blocks += [TextLine(""), TextLine("to begin with:"), *prose(result.quick_start)]
    return Page(tuple(blocks), tuple(row.name for row in result.prototypes), notes(result))


@view
def _updated(result: package_changes.Updated) -> Page:
    moved = [f"{row.package} {row.before or 'none'} → {row.after or 'none'}" for row in result.packages]
    verb = "would move" if result.preview else "moved"
    blocks: list[Block] = [
        TextLine(f"{verb} {line}{_only_in(row.environments)}", "change")
        for line, row in zip(moved, result.packages, strict=True)
    ]
    if result.parameters:
        columns: Columns = {
            "COMPONENT": "component",
            "ENVIRONMENT": "environment",
            "PARAM": "parameter",
            "CHANGE": lambda row: _EFFECTS[row.kind],
            "BEFORE": values_of("before"),
            "AFTER": values_of("after"),
            "SET IN": "origin",
        }
        blocks += [TextLine(""), table(result.parameters, columns)]
    if result.objects:
        columns = {
            "ENVIRONMENT": "environment",
            "COMPONENT": "component",
            "OBJECT": "object",
            "ACTION": "action",
            "WHY": "reason",
        }
        blocks += [TextLine(""), table(result.objects, columns, cut="WHY")]
    if not result.packages:
        blocks.append(TextLine("every package is the newest that its requirements let in"))
    hints = [*notes(result)]
    if result.packages:
        usual = "mlstack pkg update carries it out" if result.preview else "mlstack diff ENV"
        hints.append(f"next: {usual}")
    return Page(tuple(blocks), tuple(row.package for row in result.packages), tuple(hints))


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
    if result.changes:
        columns: Columns = {
            "PROTOTYPE": "prototype",
            "PARAM": "parameter",
            "CHANGE": lambda row: _EFFECTS.get(row.change or row.kind, f"other {row.kind}"),
            "BEFORE": values_of("before"),
            "AFTER": values_of("after"),
        }
        blocks += [TextLine(""), table(result.changes, columns)]
    blocks += [TextLine(f"requires {line}") for line in result.requires]
    blocks += [TextLine(""), *map(TextLine, result.files)] if result.files else []
    return Page(tuple(blocks), tuple(dict.fromkeys(row.prototype for row in result.changes)))


@view
def _verified(result: package_changes.Verified) -> Page:
    lines = [TextLine(f"{row.package}: {row.fault}", "remove") for row in result.faults]
    signed = f", {result.signed} signed" if result.signed else ""
    if result.ok:
        lines.append(TextLine(f"{count(result.packages, 'package')} as locked{signed}"))
    names = tuple(dict.fromkeys(row.package for row in result.faults))
    return Page(tuple(lines), names, () if result.ok else ("next: mlstack pkg install --force",))


@view
def _package_published(result: registries.PackagePublished) -> Page:
    state = "published" if result.is_new else "is there already:"
    tag, revision = f":{result.tag}" if result.tag else "", result.revision or result.digest
    signed = ", signed" if result.signed else ""
    text = f"{state} {result.address}{tag} ({revision[:19]}{signed})"
    return sentence(text, f"{result.address}@{result.revision}" if result.revision else result.address)


@view
def _packages_copied(result: registries.PackagesCopied) -> Page:
    pages = [_package_published(row) for row in result.packages]
    lines = [TextLine(f"image {image}") for image in result.images]
    names = tuple(name for page in pages for name in page.names) + result.images
    return Page((*(block for page in pages for block in page.blocks), *lines), names, notes(result))


@view
def _package_removed(result: packages.PackageRemoved) -> Page:
    lines = [TextLine(f"removed {name}", "remove") for name in result.packages]
    if result.environment:
        lines.insert(0, TextLine(f"environment `{result.environment}` has the app's version again"))
    return Page(tuple(lines), result.packages)


@view
def _linted(result: authors.Linted) -> Page:
    looked = f"{count(result.packages, 'package')}, {count(result.prototypes, 'prototype')}"
    return _faults_page(result.faults, f"{result.folder}: {looked}")


@view
def _package_tested(result: authors.PackageTested) -> Page:
    columns: Columns = {
        "PROTOTYPE": "name",
        "EXAMPLES": "examples",
        "VARIED": lambda row: len(row.varied),
        "COMBINATIONS": "combinations",
        "HOSTILE TEXTS": "hostile_texts",
    }
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
    rows = (table(result.prototypes, columns), TextLine("")) if result.prototypes else ()
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
        columns: Columns = {"PARAM": "name", "TYPE": "type", "DEFAULT": _default}
        parameters = table(prototype.parameters, columns, cut="DEFAULT")
        blocks += [*([TextLine("")] if blocks else []), *_prototype_head(prototype), TextLine(""), parameters]
    if result.others:
        others = {"ALSO": "name", "SUMMARY": "summary"}
        blocks += [TextLine(""), table(result.others, others, cut="SUMMARY")]
    names = (*(row.name for row in result.prototypes), *(row.name for row in result.others))
    return Page(tuple(blocks), names, (f"what each one does: mlstack prototype describe {names[0]}",))


def _default(param: packages.ParameterRow) -> str:
    if param.default is None:
        return "(required)" if param.required else "(deprecated)" if param.deprecated else ""
    return one_line_value(param.default)


@view
def _prototype_description(result: packages.PrototypeDescription) -> Page:
    required = "".join(f" --{row.name}=VALUE" for row in result.parameters if row.required)
    blocks = [
        *_prototype_head(result),
        *prose(result.description),
        *(TextLine(f"{text}", hang=2) for text in result.needs),
        *_tried(result.checked_with),
        TextLine(""),
        TextLine("parameters:" if result.parameters else "it takes no parameters"),
        *(line for row in result.parameters for line in _parameter(row)),
        TextLine(""),
        *([TextLine("examples:")] if result.examples else []),
        *(TextLine(f"  {name}: {summary}", hang=6) for name, summary in result.examples.items()),
        *([TextLine("")] if result.examples else []),
        TextLine(f"use: mlstack generate {result.name} NAME{required}"),
        *(
            TextLine(f"     mlstack generate {result.name} NAME --example {name}")
            for name in [*result.examples][:1]
        ),
    ]
    return Page(tuple(blocks), (result.name,))


def _tried(versions: Mapping[str, str]) -> Iterator[Block]:
    if versions:
        operators = ", ".join(f"{operator} {version}" for operator, version in versions.items())
        yield TextLine(f"checked with {operators}", hang=2)


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


# --- imports ---

_NEXT = "next: mlstack render ENV"


@view
def _referred(result: imports.Referred) -> Page:
    text = f"component `{result.name}` is built by kustomize from {result.source}: {result.file}"
    blocks: list[Block] = [TextLine(text, "add")]
    if result.folder:
        blocks.append(TextLine(f"its copy is {result.folder} ({result.digest[:19]})"))
    return Page(tuple(blocks), (result.name,), (_NEXT,))


@view
def _imported(result: write.Imported) -> Page:
    into = f" into {result.folder}" if result.folder else ""
    columns: Columns = {"COMPONENT": "name", "OBJECTS": "objects", "KINDS": "kinds", "FILE": "file"}
    proofs: Columns = {"ENVIRONMENT": "environment", "OBJECTS": "objects", "EQUAL": "equal"}
    blocks: list[Block] = [
        TextLine(f"imported {count(len(result.components), 'component')}{into}", "head"),
        TextLine(""),
        table(result.components, columns, cut="KINDS"),
    ]
    if result.environments:
        blocks += [TextLine(""), table(result.environments, proofs), TextLine("")]
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
    names = tuple(row.name for row in result.components)
    following = f"next: cd {result.folder} && mlstack env list" if result.folder else _NEXT
    return Page(tuple(blocks), names, (*notes(result), following))
