"""What an environment is before it meets a cluster: `render`, `validate`, `policy`, `images`, `footprint`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack import __version__
from mlstack.cli import page
from mlstack.cli.main import Family, ListingGroup, PolicyCommand
from mlstack.cli.options import GIVEN, option, policy_sets
from mlstack.cli.output import escaped, json_escaped, say, write
from mlstack.cli.page import document, emit_objects
from mlstack.cli.ports import Session, operations, read_text
from mlstack.errors import ConfigError, UsageError
from mlstack.names import listed, percent_encoded
from mlstack.objects import masking

if TYPE_CHECKING:
    from mlstack.operations.render import ExportResult

top = Family()
images = Family(
    "images",
    "The container images of environments: `images [ENV]...` lists them, `copy` brings them elsewhere.",
    cls=ListingGroup,
)
policies = Family("policy", "What `validate --policy` asks of objects, with the reason and the fix of each.")


OUT_DIR = option(
    "--out DIR",
    "Write one file an object into a folder, with an index; remove those of what is gone. Several"
    " environments get a folder each in it.",
)


@top.command(
    takes=f"envs every components {GIVEN} out folder object_output",
    examples=["gke -c cnn", "gke --out manifests/", "--all --out manifests/ --check"],
)
def render(
    session: Session,
    out: Path | None = OUT_DIR,
    check: bool = option("--check", "Write nothing; exit with 1 where `--out` is not up to date."),
    show_secrets: bool = option("--show-secrets", "Print secrets on a terminal too."),
) -> int:
    """Print the Kubernetes objects of an environment; needs no cluster."""
    from mlstack.render import render

    names, output = session.environments(), session.options.output
    if out is None and (check or names is not None):
        what = "`--check` looks at a folder" if check else "several environments are written to folders"
        raise UsageError(what, hint="--out DIR")
    only = "" if names else session.environment(session.only_environment)
    if out is None:
        state = session.call(render.load, environment=only)
        return emit_objects(state, output, show_secrets=show_secrets)
    if output == "name":
        raise UsageError("`--out` writes whole objects, `-o name` only names", hint="leave one of them out")
    places = {env: out / env for env in names} if names else {only: out}
    export = partial(session.call, operations.render.export, suffix=output)
    return max(_told(export(environment=env, into=place), check=check) for env, place in places.items())


def _told(result: ExportResult, *, check: bool) -> int:
    """Tell what an export wrote, or would write; gives 1 for a folder that is not up to date."""
    rows, stale = result.differences, [file for file, word in result.differences.items() if word == "stale"]
    gone = f"; removed what is gone: {listed(stale)}" if stale else ""
    written = f"objects written to {result.folder}: {result.count}{gone}"
    if check and rows:
        write("\n".join(f"{word:<8} {file}" for file, word in sorted(rows.items())))
        written = f"{result.folder} is not up to date: the same command without --check"
    elif check:
        written = f"{result.folder} is up to date"
    say(*(f"note: {note}" for note in result.notes), written)
    return int(check and bool(rows))


@top.command(
    cls=PolicyCommand,
    takes=f"envs every keep_going components {GIVEN} policy kubernetes_version server live"
    " kubeconfig folder finding_output",
    examples=[
        "gke",
        "--all --keep-going",
        "gke --policy ml,security",
        "gke --policy -o sarif > mlstack.sarif",
        "gke --kubernetes-version 1.37 --live",
        "gke --server",
    ],
)
def validate(
    session: Session,
    policy: str = option(
        "--policy [SET]",
        "Ask policies too: those of a set (ml, security, reliability, cost), or by ids; all without SET."
        " `policy list` shows them.",
        policy_sets,
    ),
    kubernetes_version: str = option(
        "--kubernetes-version VERSION", "As 1.37. Default: that of the environment."
    ),
    server: bool = option(
        "--server", "Ask the cluster too: with its own CRDs, by a dry run; nothing is written."
    ),
    live: bool = option(
        "--live", "Find what is deprecated in the set that was last applied to the cluster, too."
    ),
) -> object:
    """Check every object against the schemas of Kubernetes and its CRDs; needs no cluster.

    What is deprecated in its version of Kubernetes, or gone in the next, is a warning. An object's annotation
    `mlstack.dev/waive: "ID: REASON"` waives a policy; an app's own ones are files in policies/.
    """
    if policy and not session.options.envs and policy in session.app.environment_names:
        message = f"`--policy {policy}` takes the environment for a set of policies"
        raise UsageError(message, hint=f"mlstack validate {policy} --policy")
    listed = session.options.output in FINDING_FORMATS
    return session.each(partial(_validated, session, server=server, live=live), listed=listed)


def _validated(session: Session, env: str | None, *, server: bool, live: bool) -> object:
    if server:
        doing = "asking the cluster"
        result = session.from_cluster(operations.render.validate_on_server, doing=doing, env=env)
    else:
        result = session.call(operations.render.validate_environment, environment=session.environment(env))
    if live:
        with page.waiting("reading the history"):
            target, opener = session.target(env), session.opener()
            result = operations.render.with_applied(result, target, opener=opener)
    return result


@policies.command("list", examples=["", "-o name"])
def list_policies(session: Session) -> object:
    """List the policies that `validate --policy` asks: the built-in ones and those of the app's policies/."""
    return operations.render.list_policies(session.app)


@images.command(
    "list",
    takes=f"envs every keep_going components {GIVEN} folder output",
    examples=["mlstack images gke", "mlstack images --all -o name | sort -u | xargs -n 1 docker pull"],
)
def list_images(session: Session) -> object:
    """List the container images of environments, each once, with what sets and uses it; needs no cluster.

    Of several environments each has a list of its own: the same image may be set and used by others there.
    `-o name | sort -u` names each once.
    """
    return session.each(
        lambda env: session.call(operations.images.list_images, environment=session.environment(env))
    )


@images.command(
    "copy",
    takes="envs every components folder output",
    examples=[
        "gke --to registry.example.org/ml --dry-run",
        "--all --to registry.example.org/ml --platform linux/amd64",
    ],
)
def copy_images(
    session: Session,
    to: str | None = option("--to HOST[/PATH]", "The registry, and the path below which the images are put."),
    platforms: Sequence[str] = option(
        "--platform OS/ARCH", "Only what is for this platform; repeatable. Default: all."
    ),
    for_all: bool = option("--for-all", "Set them in the components, for all environments."),
    dry_run: bool = option("--dry-run", "Ask the registries, send and write nothing."),
) -> object:
    """Copy the images of environments to a registry, by digest, and set them in the files.

    What is there is not sent again. Exits with 1 where something no parameter sets still names another
    registry. Logins are those of docker, podman and their helpers.
    """
    if not to:
        raise UsageError(
            "no registry to copy to: `--to` is missing", hint="mlstack images copy ENV --to HOST/PATH"
        )
    names = session.environments() or [session.environment(session.only_environment)]
    with page.waiting("copying images"):
        return session.call(operations.images.copy_images, environments=names)


@top.command(
    takes=f"env components {GIVEN} folder output",
    examples=["gke", "gke -c cnn --set num_workers=8 -o json", "gke --fits environments/gke/cluster.json"],
)
def footprint(
    session: Session,
    fits: str | None = option(
        "--fits SNAPSHOT",
        "Tell whether the cluster of this file (of `mlstack env snapshot`; `-` is stdin) had room for it.",
    ),
) -> object:
    """Add up what an environment takes: pods, requests, GPUs, storage, and cost; needs no cluster.

    Prices stand in environments/prices.yaml, or in prices.yaml of one environment's folder. `--fits` takes
    nothing for deployed yet, and exits with 1 when some pods are known to find no room.
    """
    options = session.options
    environment = session.environment(options.env)
    if fits is None:
        return session.call(operations.capacity.footprint_of, environment=environment)
    from mlstack.app.environment import parse_snapshot

    where = "stdin" if fits == "-" else fits
    snapshot = parse_snapshot(read_text(Path(fits)).encode(), where, environment)
    return session.call(operations.capacity.fits_snapshot, environment=environment, snapshot=snapshot)


# --- what `validate` finds, in the formats of other programs ---

Writer = Callable[[Sequence[Mapping[str, Any]]], str]

FINDING_FORMATS: dict[str, Callable[[object], str]] = {}

_KUBERNETES = {
    "id": "kubernetes",
    "severity": "error",
    "sets": [],
    "reason": "the API server would refuse the object, or it would not work as it is",
    "fix": "see the message",
}


def finding_format(name: str) -> Callable[[Writer], Writer]:
    """Add a format of findings: the function below writes the documents of results."""

    def add(writer: Writer) -> Writer:
        def text_of(result: object) -> str:
            content = masking.scrubbed_value(document(result))
            return writer(content["items"] if content.get("kind") == "ResultList" else [content])

        FINDING_FORMATS[name] = text_of
        return writer

    return add


@finding_format("sarif")
def sarif_text(results: Sequence[Mapping[str, Any]]) -> str:
    """Write SARIF 2.1.0, a run for each environment: https://docs.oasis-open.org/sarif/sarif/v2.1.0/."""
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [_run(result) for result in results],
    }
    return json_escaped(json.dumps(log, indent=2, ensure_ascii=False))


def _run(result: Mapping[str, Any]) -> dict[str, Any]:
    rules = [_KUBERNETES, *result.get("policies", ())]
    ids = [rule["id"] for rule in rules]
    notes = [{"level": "note", "message": {"text": note}} for note in result.get("notes", ())]
    descriptors = [
        {
            "id": rule["id"],
            "shortDescription": {"text": rule["reason"]},
            "help": {"text": rule["fix"]},
            "defaultConfiguration": {"level": rule["severity"]},
            "properties": {"tags": rule["sets"]},
        }
        for rule in rules
    ]
    return {
        "tool": {"driver": {"name": "mlstack", "semanticVersion": __version__, "rules": descriptors}},
        "automationDetails": {"id": f"mlstack/{result['environment']}/"},
        "invocations": [{"executionSuccessful": "error" not in result, "toolExecutionNotifications": notes}],
        "results": [_sarif_result(fault, ids, result["environment"]) for fault in _faults(result)],
        "columnKind": "unicodeCodePoints",
    }


def _sarif_result(fault: Mapping[str, Any], ids: Sequence[str], environment: str) -> dict[str, Any]:
    rule = fault["policy"] or "kubernetes"
    file, line = _place(fault, environment)
    name = ": ".join(filter(None, (fault["object"], fault["path"])))
    full_name = "/".join(filter(None, (environment, fault["component"], name)))
    identity = "\0".join((environment, rule, fault["component"], name, fault["message"]))
    waived = {"suppressions": [{"kind": "inSource", "justification": fault["waiver"]}]}
    return {
        "ruleId": rule,
        "ruleIndex": ids.index(rule),
        "level": fault["severity"],
        "message": {"text": ": ".join(filter(None, (name, fault["message"])))},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": re.sub(r"[^A-Za-z0-9._~/@+-]", percent_encoded, file)},
                    **({"region": {"startLine": line}} if line else {}),
                },
                "logicalLocations": [{"fullyQualifiedName": full_name, "kind": "object"}],
            }
        ],
        "partialFingerprints": {"mlstack/v1": hashlib.sha256(identity.encode()).hexdigest()},
        **(waived if fault["waiver"] else {}),
    }


def _place(fault: Mapping[str, Any], environment: str) -> tuple[str, int]:
    """Give file and line; where nobody knows them, as of a quota, the environment's file."""
    match = re.fullmatch(
        r"(.+?)(?::(\d+))?", fault["where"] or f"environments/{environment}/environment.yaml"
    )
    return (match[1], int(match[2] or 0)) if match else ("app.yaml", 0)


def _faults(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Give what was found, what was waived too; of an environment that failed what it failed by."""
    if error := result.get("error"):
        where = error.get("where") if error["exitCode"] == ConfigError.exit_code else None
        empty = dict.fromkeys(("policy", "object", "path", "component", "waiver"), "")
        return [{**empty, "severity": "error", "message": error["message"], "where": where}]
    return [*result["faults"], *result["waived"]]


@finding_format("junit")
def junit_text(results: Sequence[Mapping[str, Any]]) -> str:
    """Write JUnit XML: a suite for each environment, a case for each finding and each policy without one."""
    from xml.etree import ElementTree

    suites = ElementTree.Element("testsuites", name="mlstack validate")
    for result in results:
        cases = list(_cases(result))
        counts = {
            "tests": len(cases),
            "failures": sum(kind == "failure" for _, kind, _, _ in cases),
            "errors": sum(kind == "error" for _, kind, _, _ in cases),
            "skipped": sum(kind == "skipped" for _, kind, _, _ in cases),
        }
        texts = {name: str(count) for name, count in counts.items()}
        suite = ElementTree.SubElement(suites, "testsuite", {"name": result["environment"], **texts})
        for attributes, kind, message, text in cases:
            case = ElementTree.SubElement(suite, "testcase", _writable(attributes))
            if kind == "system-out":
                ElementTree.SubElement(case, kind).text = escaped(f"{message}\n{text}")
            elif kind:
                ElementTree.SubElement(case, kind, _writable({"message": message})).text = escaped(text)
    ElementTree.indent(suites)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suites, encoding="unicode")}'


def _writable(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: escaped(text, kept="") for name, text in attributes.items()}


def _cases(result: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], str, str, str]]:
    """Give attributes, kind of outcome (empty if it holds), message and text of each case."""
    environment = result["environment"]
    rules, error = {rule["id"]: rule for rule in result.get("policies", ())}, result.get("error")
    faults = _faults(result)
    for fault in faults:
        rule, (file, line) = rules.get(fault["policy"], _KUBERNETES), _place(fault, environment)
        name = f"{rule['id']}: {fault['object']} {fault['path']}".strip()
        attributes = {"classname": f"{environment}.{fault['component']}".rstrip("."), "name": name}
        attributes |= {"file": file, **({"line": str(line)} if line else {})}
        if error:
            yield {**attributes, "name": "validate"}, "error", fault["message"], error.get("hint", "")
        elif fault["waiver"]:
            yield attributes, "skipped", f"waived: {fault['waiver']}", ""
        else:
            kind = "failure" if fault["severity"] == "error" else "system-out"
            text = f"{rule['reason']}\nfix: {rule['fix']}" if fault["policy"] else ""
            yield attributes, kind, fault["message"], text
    broken = {fault["policy"] for fault in faults}
    for name in ("", *rules):
        if name not in broken:
            yield {"classname": environment, "name": name or "kubernetes"}, "", "", ""
