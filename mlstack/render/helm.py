"""Helm charts rendered by the user's own `helm`: no cluster, the same for everybody, errors in our words.

What helm is given is all here: the chart's files as they were checked, values in one file, the release's name
and namespace, and what the environment says of its cluster. Its configuration and plug-ins are left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from mlstack import programs
from mlstack.app.document import join_path
from mlstack.app.prototype import Chart
from mlstack.dataclass import Record
from mlstack.disk_cache import ByteStore
from mlstack.errors import ConfigError, MlstackError, RegistryError, TemplateError, TemplateRefusedError
from mlstack.names import listed
from mlstack.objects.order import HOOK, HOOK_DELETE_POLICY, hook_phase
from mlstack.programs import ProgramError
from mlstack.render.patches import differing
from mlstack.yaml.read import Document, read_documents

NEEDED_MAJOR = 4
GET_HELM = "get helm 4 from https://helm.sh/docs/intro/install and put it on the PATH"
_TIMEOUT_S = 120.0
_LONGEST_RELEASE = 53
_NAMED = 4  # hooks in a message
_SOURCE = re.compile(r"^---\n# Source: (.+)\n", re.MULTILINE)
_PLACE = re.compile(r"(?P<file>[\w./+-]+\.(?:ya?ml|tpl|txt|json))\)?:(?P<line>\d+)(?::\d+)?")
_RANDOM = re.compile(
    r"\b(rand(?:AlphaNum|Alpha|Numeric|Ascii|Bytes|Int)|uuidv4|shuffle|genPrivateKey|genCA(?:WithKey)?"
    r"|genSelfSignedCert(?:WithKey)?|genSignedCert(?:WithKey)?|htpasswd|bcrypt|encryptAES|now|ago)\b"
)
_INCLUDED, _SHOWN_INCLUDES = ": error calling include: ", 3
_LOOKUP = re.compile(r"\{\{[^}]*\blookup\s")


class Release(Record):
    """What a chart is rendered for."""

    name: str
    namespace: str
    values: Mapping[str, Any]  # laid over the chart's own
    kubernetes_version: str  # `1.36`
    api_versions: Sequence[str] = ()  # what the cluster serves besides Kubernetes itself, if that is known


class Templated(Record):
    """One document, and the template that it came from, by its path in the chart."""

    template: str
    document: Document


def helm_version() -> str:
    """Give the version of the helm on the PATH, as `v4.0.1`.

    Raises:
        RegistryError: there is none, or it is too old.
    """
    with _needing_helm():
        path = programs.find("helm")
        text = programs.run([str(path), "version", "--template", "{{.Version}}"], settings=_SETTINGS).stdout
    version = text.decode(errors="replace").strip()
    major = re.match(r"v?(\d+)", version)
    if major is None or int(major[1]) < NEEDED_MAJOR:
        message = f"the helm on the PATH is {version or 'of no version'}, and charts need helm {NEEDED_MAJOR}"
        raise RegistryError(message, where=str(path), hint=GET_HELM)
    return version


def version_in(store: ByteStore) -> str:
    """Give the version of the helm on the PATH, asked once for each program file."""
    with _needing_helm():
        path = programs.find("helm").resolve()
    facts = path.stat()
    key = f"helm:{path}:{facts.st_size}:{facts.st_mtime_ns}"
    if known := store.get(key):
        return known.decode()
    version = helm_version()
    store.put(key, version.encode())
    return version


@contextmanager
def _needing_helm() -> Iterator[None]:
    try:
        yield
    except ProgramError as error:
        raise RegistryError(f"a chart needs helm: {error.message}", hint=GET_HELM) from error


def template(chart: Chart, release: Release, *, times: int = 1) -> list[list[Templated]]:
    """Render a chart, so many times, and give the documents of each: CRDs and hooks included.

    Raises:
        RegistryError: there is no helm, or it is too old.
        TemplateRefusedError: the chart says that these values do not fit.
        TemplateError: it does not render; names file and line of the template.
    """
    _check_name(release.name)
    with TemporaryDirectory(prefix="mlstack-chart-") as folder:
        place = Path(folder)
        for path, data in chart.files.items():
            file = place / "chart" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        arguments = ["helm", "template", release.name, str(place / "chart"), "--namespace", release.namespace]
        arguments += ["--values", "-", "--include-crds"]
        arguments += ["--kube-version", f"v{release.kubernetes_version}.0"]
        arguments += ["--api-versions", ",".join(release.api_versions)] if release.api_versions else []
        values = json.dumps(release.values).encode()  # never a file: there may be a password among them
        try:
            run = partial(programs.run, arguments, settings=_SETTINGS, stdin=values, timeout_s=_TIMEOUT_S)
            runs = [run() for _ in range(times)]
        except ProgramError as error:
            _refuse(error, chart, place)
    return [list(_documents(run.stdout.decode("utf-8", "replace"), chart)) for run in runs]


# Whatever a person has set for other uses of helm changes nothing here: same inputs, same objects.
_SETTINGS = {
    "KUBECONFIG": os.devnull,
    "HELM_DEBUG": "false",
    "HELM_PLUGINS": os.devnull,
    "HELM_NAMESPACE": "",
    "HELM_KUBECONTEXT": "",
    "LC_ALL": "C",
}


def _check_name(name: str) -> None:
    part = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    if len(name) > _LONGEST_RELEASE or not re.fullmatch(rf"{part}(\.{part})*", name):
        message = f"`{name}` cannot be the name of a release, which the component's name is"
        hint = f"call the component with up to {_LONGEST_RELEASE} lower-case letters, digits and `-`"
        raise ConfigError(message, hint=hint)


def _documents(text: str, chart: Chart) -> Iterator[Templated]:
    parts = _SOURCE.split(text)
    for source, content in zip(parts[1::2], parts[2::2], strict=True):
        name = source.strip().partition("/")[2]
        for document in read_documents(content, source=f"{chart.folder}/{name}"):
            yield Templated(template=name, document=document)


def _refuse(error: ProgramError, chart: Chart, place: Path) -> NoReturn:
    if error.status is None:
        raise RegistryError(f"helm did not render the chart: {error.message}", hint=error.hint) from error
    text = re.sub(r"^`helm template` failed: (.*?\bError: )?", "", error.message, flags=re.DOTALL)
    text = text.replace("; Use --debug flag to render out invalid YAML", "").replace(f"{place}/", "")
    last = [match for match in _PLACE.finditer(text) if "/" in match["file"]][-1:]  # others include it
    where = next((f"{chart.folder}/{at['file'].partition('/')[2]}:{at['line']}" for at in last), None)
    refused = re.match(r"execution error at \([^)]*\): (.*)", text, re.DOTALL)
    if refused:
        raise TemplateRefusedError(f"the chart says: {refused[1]}", where=where) from error
    parts = text.split(_INCLUDED)
    if len(parts) > _SHOWN_INCLUDES:  # one that includes itself says so a thousand times
        text = f"{parts[0]}: … {parts[-1]}"
    if "values don't meet the specifications" in text:
        faults = text.partition(":; ")[2] or text
        if "failing loading" in faults:
            message = f"the schema of the chart's values refers to what cannot be read: {faults}"
            hint = "take a copy of the chart whose `values.schema.json` stands alone"
            raise TemplateError(message, where=chart.folder, hint=hint) from error
        hint = "`mlstack param explain COMPONENT` shows where values come from"
        message = f"the chart refuses its values: {faults}"
        raise TemplateError(message, where=chart.folder, hint=hint) from error
    where, advice = where or chart.folder, ""
    if "missing in charts/ directory" in text:
        text = f"charts that it depends on are missing: {text.rpartition('directory: ')[2]}"
        advice = "run `helm dependency build` in the chart's folder where it is kept, or take it packed"
    elif "incompatible with Kubernetes" in text:
        advice = "`kubernetesVersion` counts: mlstack env set ENV --kubernetes-version VERSION"
    message = f"helm does not render the chart: {text}"
    raise TemplateError(message, where=where, hint=advice or None) from error


# --- hooks, and what comes out otherwise each time ---


_OTHERWISE = (
    "run when new, changed or failed, not at each upgrade",
    "run before the rest alone, not after it too",
    "stay when they have ended",
)


def without_hooks(
    objects: Sequence[Templated], *, component: str, keep: bool, how: str = "`hooks: apply` in its file"
) -> tuple[list[Templated], list[str]]:
    """Leave out hooks, or those alone for which an apply has no moment; say what differs from helm.

    `how` tells the person what keeps those that can be kept.
    """
    kept, can_stay = [], False
    left: list[str] = []
    otherwise: dict[str, list[str]] = {words: [] for words in _OTHERWISE}
    for item in objects:
        data, annotations = item.document.value, _annotations(item.document.value)
        events = [event.strip() for event in str(annotations.get(HOOK) or "").split(",") if event.strip()]
        name = f"{data.get('kind')} {data['metadata'].get('name')}" if events else ""
        phase = hook_phase(",".join(events))
        if events and not (keep and phase):
            can_stay = can_stay or bool(phase)
            left.append(f"{name} ({', '.join(sorted(events))})")
            continue
        kept.append(item)
        policy = str(annotations.get(HOOK_DELETE_POLICY))
        is_otherwise = (
            {"pre-upgrade", "post-upgrade"} & {*events} and data.get("kind") in ("Job", "Pod"),
            {"pre-install", "post-install"} <= {*events},
            events and ("hook-succeeded" in policy or "hook-failed" in policy),
        )
        for words, is_so in zip(_OTHERWISE, is_otherwise, strict=True):
            otherwise[words] += [name] if is_so else []
    notes = []
    if left:
        advice = f"; {how} keeps those of an install" if can_stay else ""
        notes.append(f"{component}: what only helm runs is left out: {listed(left, _NAMED)}{advice}")
    if differs := [f"{words}: {listed(names, _NAMED)}" for words, names in otherwise.items() if names]:
        notes.append(f"{component}: hooks that helm would run otherwise: {'; '.join(differs)}")
    return kept, notes


def _annotations(data: Any) -> Mapping[str, Any]:
    metadata = data.get("metadata") if isinstance(data, Mapping) else None
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}


def lookup_note(chart: Chart, objects: Sequence[Templated]) -> list[str]:
    """Say which templates ask the cluster while they render, where there is none to ask."""
    used = {item.template for item in objects}
    places = [place for place in _places(chart, _LOOKUP) if place.rpartition(":")[0] in used]
    asks = f"the chart asks the cluster with `lookup` ({', '.join(places[:3])})"
    return [f"{asks}: here it finds nothing, as in a first install"] if places else []


def differences(first: Sequence[Any], second: Sequence[Any]) -> list[str]:
    """Tell in which objects, and which fields of them, two renders differ; values are left out."""
    if len(first) != len(second):
        return [f"{len(first)} objects, then {len(second)}"]
    faults = []
    for before, after in zip(first, second, strict=True):
        names = [f"{data['kind']} {data['metadata']['name']}" for data in (before, after)]
        if names[0] != names[1]:
            faults.append(f"{names[0]}, then {names[1]}")
        elif paths := sorted(join_path(path) for path, *_ in differing(before, after)):
            faults.append(f"{names[0]}: {', '.join(paths[:6])}{' …' if len(paths) > 6 else ''}")
    return faults


def _places(chart: Chart, pattern: re.Pattern[str]) -> list[str]:
    places = []
    for path, data in sorted(chart.files.items()):
        if "templates" not in path.parts:
            continue
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
            if "{{" in line and pattern.search(line):
                places.append(f"{path}:{number}")
    return places


def unrepeatable(chart: Chart, faults: Sequence[str], *, component: str) -> MlstackError:
    """Make the error that a chart renders otherwise each time; `faults` are objects with their fields."""
    lines = [f"the chart of `{component}` renders something else each time:"]
    lines += [f"  {fault}" for fault in faults]
    hint = "set the values that the chart takes for these, or fix the fields in environments/ENV/patches/"
    if calls := _places(chart, _RANDOM)[:4]:
        hint += f"{component}.yaml; it calls for chance in {', '.join(calls)}"
    return TemplateError("\n".join(lines), where=chart.folder, hint=hint)
