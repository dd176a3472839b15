"""How the results of commands on the app directory look: a listing or a function for each result type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

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
    table_page,
    view,
)

if TYPE_CHECKING:
    from mlstack.cli.commands.program import Versions
    from mlstack.operations import (
        app,
        authors,
        components,
        doctor,
        explain,
        lint,
        matrix,
        new_prototype,
        package_changes,
        packages,
        params,
        promote,
        prototypes,
        publish,
        registries,
        snapshot,
        stacks,
    )

PACKAGES = {"PACKAGE": "package", "VERSION": "version", "INSTALLED": "installed", "SUMMARY": "summary"}


def _values(name: str) -> Any:
    return lambda row: one_line_value(getattr(row, name))


TABLE_VIEWS |= {
    "PolicyList": TableView(
        "policies",
        {
            "ID": "id",
            "SEVERITY": "severity",
            "SETS": lambda row: ", ".join(row.sets),
            "WANTED BECAUSE": "reason",
        },
        names="id",
    ),
    "SchemaList": TableView("schemas", {"NAME": "name", "DESCRIBES": "describes", "SUMMARY": "summary"}),
    "EnvironmentList": TableView(
        "environments",
        {
            "NAME": lambda row: f"{row.name} *" if row.current else row.name,
            "CONTEXT": "context",
            "NAMESPACE": "namespace",
            "KUBERNETES": "kubernetes_version",
            "EXTENDS": "extends",
            "PROTECTED": "protected",
            "OVERRIDDEN": "overridden",
            "EXPIRES": "expires",
        },
        cut="CONTEXT",
        empty="next: mlstack env add NAME",
        spare={"OVERRIDDEN": lambda cells: cells <= {""}, "EXPIRES": lambda cells: cells <= {""}},
    ),
    "ExpiredEnvironments": TableView(
        "environments",
        {"NAME": "name", "EXPIRED": "expires", "CONTEXT": "context", "NAMESPACE": "namespace"},
        cut="CONTEXT",
        empty="no environment is over",
    ),
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
    "ComponentList": TableView(  # those of prototypes with their package, manifests with their file
        "components",
        {
            "COMPONENT": "name",
            "TYPE": "type",
            "PROTOTYPE": "prototype",
            "FROM": lambda row: row.package or row.file,
            "DEPENDS ON": "depends_on",
            "KINDS": "kinds",
        },
        empty="next: mlstack generate PROTOTYPE NAME",
        spare={"DEPENDS ON": lambda cells: cells <= {""}, "KINDS": lambda cells: cells <= {""}},
    ),
    "ModuleList": TableView(
        "modules",
        {"MODULE": "name", "COMPONENTS": "components", "PARAMS": "params", "TARGET OF": "environments"},
        empty="next: mlstack module create NAME",
        spare={"TARGET OF": lambda cells: cells <= {""}},
    ),
    "ParamList": TableView(
        "rows",
        {
            "COMPONENT": lambda row: row.component or "all",
            "PARAM": "name",
            "VALUE": _values("value"),
            "FROM": lambda row: "default" if row.level == "default" else row.origin,
        },
        names=lambda row: f"{row.component}.{row.name}".removeprefix("."),
        cut="VALUE",
        spare={"COMPONENT": lambda cells: len(cells) == 1},
    ),
}

# --- the program and the app ---


@view
def _versions(result: Versions) -> Page:
    rows = (("mlstack", result.mlstack), ("python", result.python), *result.libraries.items())
    return Page((table(rows, "PROGRAM VERSION"),), (f"mlstack {result.mlstack}",))


@view
def _schema(result: app.Schema) -> Page:
    from mlstack.cli.output import json_text

    return Page(tuple(TextLine(line) for line in json_text(result).splitlines()), (result.name,))


@view
def _initialised(result: app.Initialised) -> Page:
    registries = f" with the registry `{result.registries[0]}`" if result.registries else ""
    text = f"created app `{result.app}` in {result.folder}{registries}"
    context = f"context {result.context}" if result.context else "no context yet"
    text += f" and environment `{result.environment}` ({context})" if result.environment else ""
    usual = "mlstack pkg install kubeflow/core" if registries else "mlstack registry add NAME ADDRESS"
    return sentence(text, result.app, f"next: cd {result.folder} && {usual}")


@view
def _stack_begun(result: stacks.StackBegun) -> Page:
    text = f"created app `{result.app}` in {result.folder} with the stack `{result.stack}`: components "
    text += f"{', '.join(result.components)}; environments {', '.join(result.environments)}"
    first = result.environments[0]
    steps = (
        f"next: cd {result.folder} && mlstack validate {first}",
        f"mlstack env set {first} --context CONTEXT",
    )
    return sentence(text, result.app, *steps)


# --- environments ---


@view
def _environment_added(result: app.EnvironmentAdded) -> Page:
    settings = [f"context {result.context or 'none'}", f"namespace {result.namespace}"]
    settings += [f"preset {result.preset}"] if result.preset else []
    settings += [f"extends {result.extends}"] if result.extends else []
    text = f"added environment `{result.name}`: {', '.join(settings)}"
    return sentence(text, result.name, *notes(result), f"next: mlstack render {result.name}")


_MARKS: Mapping[str, tuple[str, Style]] = {
    "ok": ("ok", ""),
    "warning": ("warn", "change"),
    "failed": ("FAIL", "remove"),
}


@view
def _diagnosis(result: doctor.Diagnosis) -> Page:
    lines = []
    for check in result.checks:
        mark, style = _MARKS[check.state]
        lines.append(TextLine(f"{mark:<5}{check.name}: {check.message}", style, hang=7))
        lines += [TextLine(f"       {check.hint}", hang=9)] if check.hint else []
    failed = sum(check.state == "failed" for check in result.checks)
    lines.append(TextLine(f"{count(failed, 'fault')}" if failed else "nothing is wrong"))
    return Page(tuple(lines), tuple(check.name for check in result.checks if check.state == "failed"))


@view
def _matrix(result: matrix.MatrixResult) -> Page:
    if not result.rows:
        return Page((TextLine("no difference"),))
    longest = max(8, min(20, 44 // len(result.environments)))  # what is compared stays readable beside them
    columns: Columns = {
        "": lambda row: "" if row.approved or not row.differs else "!",
        "WHAT": "section",
        "SUBJECT": "subject",
        **{name.upper(): _cell(name, longest) for name in result.environments},
        "APPROVED": lambda row: row.reason or ("yes" if row.approved else ""),
    }
    spare = {"APPROVED": lambda cells: cells <= {""}, "": lambda cells: cells <= {""}}
    page = table_page(result, TableView("rows", columns, names="subject", cut="SUBJECT", spare=spare))
    left = sum(row.differs and not row.approved for row in result.rows)
    told = [f"{count(left, 'difference')} not approved: --approve REASON enters them"] if left else []
    told += [f"wrote {result.written}"] if result.written else []
    return Page(page.blocks, page.names, (*page.notes, *told))


def _cell(name: str, longest: int) -> Any:
    def text(row: matrix.MatrixRow) -> str:
        value = one_line_value(row.values[name]) if row.values[name] is not None else "-"
        # Of images the end tells more than the beginning.
        return value if len(value) <= longest else f"…{value[1 - longest :]}"

    return text


@view
def _snapshot_taken(result: snapshot.SnapshotTaken) -> Page:
    counts = (
        (result.kinds, "kind"),
        (result.definitions, "definition"),
        (result.nodes, "node"),
        (result.gpus, "GPU"),
        (result.quotas, "quota"),
    )
    what = f"{result.version}, {', '.join(count(number, noun) for number, noun in counts)}"
    state = "wrote {}" if result.changed else "{} is as the cluster is now"
    state = state if result.ok else "{} is not as the cluster is now"
    return sentence(f"{state.format(result.file)}: {what}", result.file, *notes(result))


@view
def _environment_targets(result: app.EnvironmentTargets) -> Page:
    targets = result.targets or ("all components",)
    return Page(tuple(TextLine(name) for name in targets), result.targets)


@view
def _environment_description(result: app.EnvironmentDescription) -> Page:
    from mlstack.app.declare import keys_of
    from mlstack.app.environment import Environment

    environment, cluster = result.environment, result.environment.cluster
    reach = ", ".join(environment.allowed_namespaces)
    if environment.cluster_scoped == "refused":
        reach = f"{reach or 'any namespace'}, nothing outside namespaces"
    elif reach:
        reach += ", and outside namespaces"
    # Keys whose line is not just their name and value.
    lines = {
        "kubernetes_version": ("kubernetes", environment.kubernetes_version),
        "targets": ("targets", ", ".join(environment.targets) or "all components"),
        "packages": ("packages", ", ".join(map(str, environment.packages))),
        "allowed_namespaces": ("writes to", reach),
        "cluster_scoped": ("", ""),  # in the line before
        "wait_for_load_balancer": (
            "load balancers",
            "must get an address" if environment.wait_for_load_balancer else "need no address",
        ),
        "cluster": ("cluster", (cluster and cluster.uid) or "not contacted yet"),
    }
    rows = [("name", environment.name), ("file", environment.file)]
    mine = f"{', '.join(result.overrides)} (.mlstack/overrides.yaml, for you alone)"
    rows += [("overridden", mine)] if result.overrides else []
    for key in keys_of(Environment):
        value = getattr(environment, key.field)
        plain = ("no", "yes")[value] if isinstance(value, bool) else value
        plain = one_line_value(value) if isinstance(value, Mapping) and value else plain or ""
        rows.append(lines.get(key.field, (key.field.replace("_", " "), plain)))
    values = [
        (component, name, one_line_value(value))
        for component, values in (("all", result.globals), *result.components.items())
        for name, value in values.items()
    ]
    blocks = facts(*rows)
    blocks += [TextLine(""), table(values, "COMPONENT PARAM VALUE")] if values else []
    return Page(tuple(blocks), (environment.name,))


@view
def _environment_changed(result: app.EnvironmentChanged) -> Page:
    changes = [f"{key} = {one_line_value(value) or 'unset'}" for key, value in result.changes.items()]
    changes += ["the cluster met next is the one it is bound to"] if result.cluster_forgotten else []
    mine = " (yours alone)" if result.overridden else ""
    text = f"environment `{result.name}`{mine}: {', '.join(changes) or 'nothing to change'}"
    return sentence(text, result.name, *notes(result))


@view
def _app_changed(result: app.AppChanged) -> Page:
    changes = [
        f"{key} = {value}" if value is not None else f"{key} unset" for key, value in result.changes.items()
    ]
    return sentence(f"app `{result.name}`: {', '.join(changes)}", result.name)


@view
def _environment_removed(result: app.EnvironmentRemoved) -> Page:
    text = f"removed environment `{result.name}` from the app; its cluster was not touched"
    if result.override:
        text = f"environment `{result.name}` is what its shared files say again"
    return sentence(text, result.name, *notes(result))


@view
def _current_environment(result: app.CurrentEnvironment) -> Page:
    if result.name is None:
        return Page((), (), ("no environment is chosen: mlstack env current --set ENV",))
    return sentence(result.name, result.name)


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
    return Page((TextLine(f"index of {count(result.packages, 'package')} {state}"),), (), next_step)


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
            "BEFORE": _values("before"),
            "AFTER": _values("after"),
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
            "BEFORE": _values("before"),
            "AFTER": _values("after"),
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
def _package_published(result: publish.PackagePublished) -> Page:
    state = "published" if result.is_new else "is there already:"
    tag, revision = f":{result.tag}" if result.tag else "", result.revision or result.digest
    signed = ", signed" if result.signed else ""
    text = f"{state} {result.address}{tag} ({revision[:19]}{signed})"
    return sentence(text, f"{result.address}@{result.revision}" if result.revision else result.address)


@view
def _packages_copied(result: publish.PackagesCopied) -> Page:
    pages = [_package_published(row) for row in result.packages]
    lines = [TextLine(f"image {image}") for image in result.images]
    names = tuple(name for told in pages for name in told.names) + result.images
    return Page((*(block for told in pages for block in told.blocks), *lines), names, notes(result))


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
def _prototype_begun(result: new_prototype.PrototypeBegun) -> Page:
    lines = [TextLine(f"wrote {file}", "add") for file in result.files]
    lines.append(TextLine(f"parameters: {', '.join(result.parameters)}", hang=2))
    lines.append(TextLine(f"its example renders {', '.join(result.objects)}", hang=2))
    steps = [f"next: mlstack pkg test {result.package}"]
    if result.new_package:
        steps.insert(0, f"say under which `license` it is: {result.package}/package.yaml")
    return Page(tuple(lines), (result.name,), (*notes(result), *steps))


@view
def _prototype_matches(result: prototypes.PrototypeMatches) -> Page:
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


def _default(param: prototypes.ParameterRow) -> str:
    if param.default is None:
        return "(required)" if param.required else "(deprecated)" if param.deprecated else ""
    return one_line_value(param.default)


@view
def _prototype_description(result: prototypes.PrototypeDescription) -> Page:
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
        told = ", ".join(f"{operator} {version}" for operator, version in versions.items())
        yield TextLine(f"checked with {told}", hang=2)


def _prototype_head(prototype: prototypes.PrototypeDescription) -> Iterator[Block]:
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


def _parameter(param: prototypes.ParameterRow) -> Iterator[Block]:
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
def _generated(result: prototypes.Generated) -> Page:
    verb = "replaced" if result.replaced else "generated"
    text = f"{verb} component `{result.name}` from {result.prototype}: {result.file}"
    return sentence(text, result.name, *notes(result), f"next: mlstack param list {result.name}")


@view
def _component_removed(result: components.ComponentRemoved) -> Page:
    lines = tuple(TextLine(f"removed `{result.name}` from {file}") for file in result.files)
    told = [
        f"warning: `{row.component}` is still deployed in `{row.environment}`"
        f" ({count(row.objects, 'object')}); gone with: mlstack apply {row.environment}"
        for row in result.deployed
    ]
    usual = "what was applied goes from a cluster with the next `mlstack apply ENV`"
    return Page(lines, (result.name,), (*told, *notes(result), *([] if told else [usual])))


@view
def _component_renamed(result: components.ComponentRenamed) -> Page:
    text = f"renamed `{result.before}` to `{result.name}`: {result.file}"
    next_step = "the next `mlstack apply ENV` gives its objects the new label; none is deleted"
    return sentence(text, result.name, *notes(result), next_step)


@view
def _module_created(result: components.ModuleCreated) -> Page:
    next_step = f"next: mlstack generate PROTOTYPE {result.name}.NAME"
    return sentence(f"created module `{result.name}`: {result.file}", result.name, next_step)


# --- parameters ---


@view
def _param_changed(result: params.ParamChanged) -> Page:
    state = f"set {result.name} = {one_line_value(result.value) or 'null'}"
    if not result.changed:
        state = f"{result.name} is {one_line_value(result.value)} already"
    return sentence(f"{state} ({result.place}, {result.file})", result.name, *notes(result))


@view
def _param_unset(result: params.ParamUnset) -> Page:
    return sentence(f"unset {result.name} ({result.place}, {result.file})", result.name, *notes(result))


@view
def _param_diff(result: params.ParamDiff) -> Page:
    names = tuple(f"{row.component}.{row.name}" for row in result.rows)
    if not names:
        return Page((), (), (f"no parameter differs between `{result.first}` and `{result.second}`",))
    first, second = result.first.upper(), result.second.upper()
    columns = {"COMPONENT": "component", "PARAM": "name", first: _values("first"), second: _values("second")}
    return Page((table(result.rows, columns, cut=first),), names)


@view
def _explained(result: explain.ExplainResult) -> Page:
    """Show the chain of each value and the fields it reaches."""
    place = f" in `{result.environment}`" if result.environment else ""
    blocks: list[Block] = [TextLine(f"{result.component}{place}: {result.prototype}", "head")]
    for parameter in result.parameters:
        blocks += [TextLine(""), *_explained_parameter(parameter)]
    return Page(tuple(blocks), tuple(parameter.name for parameter in result.parameters))


def _explained_parameter(param: explain.ExplainedParameter) -> Iterator[Block]:
    unit = f" {param.unit}" if param.unit else ""
    value = "not set" if param.value is None else one_line_value(param.value) + unit
    yield TextLine(f"{param.name} = {value}", "head")
    if param.description:
        yield TextLine(f"  {param.description}", hang=2)
    if param.chain:
        columns: Columns = {
            "": lambda step: "=>" if step.wins else "",
            "LEVEL": "layer",
            "VALUE": lambda step: one_line_value(step.value) or "(removed)",
            "FROM": "where",
        }
        yield table(reversed(param.chain), columns, cut="VALUE")
    for name, reaches in groupby(param.reaches, lambda reach: reach.object):
        yield TextLine(f"  reaches {name}:")
        fields = [(reach.path, one_line_value(reach.value) or "not set") for reach in reaches]
        yield from (
            TextLine(f"    {path} = {value}" if path else "    the whole object") for path, value in fields
        )
    if not param.reaches and param.value is not None:
        yield TextLine("  reaches no field of the objects as they are now", "dim")
    yield from (TextLine(f"  note: {note}", hang=4) for note in param.notes)


@view
def _explained_field(result: explain.ExplainedField) -> Page:
    """Show who wrote a field, and the parameters behind it."""
    value = "not set" if result.value is None else one_line_value(result.value)
    blocks: list[Block] = [TextLine(f"{result.object}: {result.path} = {value}", "head")]
    rows = [("component", f"{result.component} {result.prototype and f'({result.prototype})'}".rstrip())]
    blocks += facts(*rows, (result.origin, result.where or "added to every object"))
    columns: Columns = {
        "PARAM": "name",
        "VALUE": lambda param: one_line_value(param.value),
        "LEVEL": "layer",
        "FROM": "where",
    }
    if result.parameters:
        blocks += [TextLine(""), table(result.parameters, columns, cut="VALUE")]
    return Page(tuple(blocks), (result.where,), result.notes)


@view
def _promotion(result: promote.PromotionPlan) -> Page:
    """Show each change, and in which files it is or would be."""
    names = tuple(f"{row.component}.{row.name}".removeprefix(".") for row in result.changes)
    if not names:
        text = f"nothing to promote: `{result.target}` has what `{result.source}` sets"
        return Page((TextLine(text),), (), result.notes)
    columns: Columns = {
        "COMPONENT": lambda row: row.component or "all",
        "WHAT": "name",
        result.target.upper(): _values("before"),
        result.source.upper(): _values("after"),
    }
    verb = "changed" if result.done else "would change"
    blocks = (table(result.changes, columns, cut="WHAT"), TextLine(f"{verb} {', '.join(result.files)}"))
    following = (f"next: mlstack diff {result.target}",) if result.done else ()
    return Page(blocks, names, (*result.notes, *following))


@view
def _linted_params(result: lint.LintResult) -> Page:
    """Show what could go."""
    if result.ok:
        tried = (
            f"in {count(len(result.environments), 'environment')}"
            if result.environments
            else "as all share it"
        )
        return Page((TextLine(f"every value and patch has an effect {tried}"),), ())
    columns: Columns = {
        "WHERE": "where",
        "COMPONENT": lambda row: row.component or "all",
        "WHAT": "name",
        "FINDING": "message",
    }
    names = tuple(row.where for row in result.findings)
    return Page((table(result.findings, columns, cut="FINDING"),), names)
