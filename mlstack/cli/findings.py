"""What `validate` finds in the formats of other programs: SARIF for code scanning, JUnit XML for builds.

A further format is one function here with `@finding_format`. Each takes the plain data of the results of
environments, as `-o json` prints it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mlstack import __version__
from mlstack.cli.output import document, escaped, json_escaped
from mlstack.objects import masking

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
    error = result.get("error")
    said = [{"level": "note", "message": {"text": note}} for note in result.get("notes", ())]
    said += [{"level": "error", "message": {"text": _error_text(error)}}] if error else []
    return {
        "tool": {
            "driver": {
                "name": "mlstack",
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "automationDetails": {"id": f"mlstack/{result['environment']}/"},
        "invocations": [{"executionSuccessful": not error, "toolExecutionNotifications": said}],
        "results": [
            _sarif_result(fault, ids, result["environment"])
            for fault in (*result.get("faults", ()), *result.get("waived", ()))
        ],
        "columnKind": "unicodeCodePoints",
    }


def _rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": rule["id"],
        "shortDescription": {"text": rule["reason"]},
        "help": {"text": rule["fix"]},
        "defaultConfiguration": {"level": rule["severity"]},
        "properties": {"tags": rule["sets"]},
    }


def _sarif_result(fault: Mapping[str, Any], ids: Sequence[str], environment: str) -> dict[str, Any]:
    rule = fault["policy"] or "kubernetes"
    file, line = _place(fault, environment)
    name = ": ".join(filter(None, (fault["object"], fault["path"])))
    identity = "\0".join((environment, rule, fault["component"], name, fault["message"]))
    waived = {"suppressions": [{"kind": "inSource", "justification": fault["waiver"]}]}
    return {
        "ruleId": rule,
        "ruleIndex": ids.index(rule),
        "level": fault["severity"],
        "message": {"text": f"{name}: {fault['message']}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(file)},
                    **({"region": {"startLine": line}} if line else {}),
                },
                "logicalLocations": [
                    {"fullyQualifiedName": f"{environment}/{fault['component']}/{name}", "kind": "object"}
                ],
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


def _uri(file: str) -> str:
    return re.sub(
        r"[^A-Za-z0-9._~/@+-]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), file
    )


def _error_text(error: Mapping[str, Any]) -> str:
    place = f" ({error['where']})" if error.get("where") else ""
    return f"{error['message']}{place}"


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
    if result.get("error"):
        message = _error_text(result["error"])
        yield (
            {"classname": environment, "name": "validate"},
            "error",
            message,
            result["error"].get("hint", ""),
        )
        return
    rules = {rule["id"]: rule for rule in result["policies"]}
    broken = {fault["policy"] for fault in (*result["faults"], *result["waived"])}
    for fault in (*result["faults"], *result["waived"]):
        rule, (file, line) = rules.get(fault["policy"], _KUBERNETES), _place(fault, environment)
        name = f"{rule['id']}: {fault['object']} {fault['path']}".strip()
        attributes = {"classname": f"{environment}.{fault['component']}".rstrip("."), "name": name}
        attributes |= {"file": file, **({"line": str(line)} if line else {})}
        if fault["waiver"]:
            yield attributes, "skipped", f"waived: {fault['waiver']}", ""
        else:
            kind = "failure" if fault["severity"] == "error" else "system-out"
            text = f"{rule['reason']}\nfix: {rule['fix']}" if fault["policy"] else ""
            yield attributes, kind, fault["message"], text
    for name in ("", *rules):
        if name not in broken:
            yield {"classname": environment, "name": name or "kubernetes"}, "", "", ""
