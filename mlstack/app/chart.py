"""Helm charts as packages: what `Chart.yaml` says, and the parameters that a chart's values are.

A chart's folder is taken as its registry has it: nothing is added, so that its digest is the chart's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

from mlstack.app import document
from mlstack.app.document import json_type
from mlstack.app.files import CHART_FILE, LIMITS, MAX_BYTES, MAX_FILES, Files, check_name
from mlstack.app.params import overlaid
from mlstack.app.prototype import Inliner, Package
from mlstack.app.schema import is_checkable
from mlstack.disk_cache import from_json
from mlstack.errors import ConfigError, RegistryError, SchemaError, YamlError
from mlstack.names import is_parameter_name, names_a_package
from mlstack.yaml.read import read_document, read_documents

_VALUES, _SCHEMA = PurePosixPath("values.yaml"), PurePosixPath("values.schema.json")
_DEEPEST = 40  # levels of values with hints
_KEY = r"([A-Za-z_][-_A-Za-z0-9]*):(?:\s|$)"
_COMMENT = r"#+\s?(?:--\s+|@param\s+\S+\s+(?:\[[^\]]*\]\s*)?)?(.*)"
_LONGEST_HELP = 300


def is_chart_folder(folder: Path) -> bool:
    """Tell whether a folder of the disk is a chart, as `files.is_chart` does of one that was read."""
    return (folder / CHART_FILE).is_file() and not (folder / "package.yaml").is_file()


def without_ignored(files: Files, rules: bytes | None) -> Files:
    """Give a chart's files without those that its `.helmignore` names, as helm leaves them out of an archive.

    A pattern with `/` is about a path, one without about any name on it; `!` takes a file back.
    """
    if rules is None:
        return files
    lines = [line.strip() for line in rules.decode("utf-8", "replace").splitlines()]
    patterns = [line for line in lines if line and not line.startswith("#")]
    return {path: data for path, data in files.items() if not _is_ignored(path, patterns)}


def _is_ignored(path: PurePosixPath, patterns: Sequence[str]) -> bool:
    ignored = False
    for pattern in patterns:
        plain = pattern.removeprefix("!")
        is_folder, plain = plain.endswith("/"), plain.rstrip("/")
        places = [path, *path.parents][1 if is_folder else 0 : -1]
        if "/" in plain:
            root = PurePosixPath("/")
            is_meant = any((root / place).match(f"/{plain.removeprefix('/')}") for place in places)
        else:
            is_meant = any(fnmatchcase(place.name, plain) for place in places)
        if is_meant:
            ignored = not pattern.startswith("!")
    return ignored


def read_head(files: Files, *, source: str) -> dict[str, Any]:
    """Give what `Chart.yaml` says, under the names of `Package`.

    Raises:
        SchemaError: it names no chart that can be installed.
        YamlError: it is no YAML.
    """
    where = f"{source}/{CHART_FILE}"
    read = read_document(document.decode(files[CHART_FILE], file=where), source=where)
    head = read.value if isinstance(read.value, Mapping) else {}
    name, version = str(head.get("name") or ""), str(head.get("version") or "")
    if not names_a_package("r", name, version) or not version:
        raise SchemaError("a chart needs a sound `name` and `version`", where=where)
    if head.get("type") == "library":
        message = f"`{name}` is a library chart, which other charts use: it brings no objects itself"
        raise SchemaError(message, where=where, hint="take a chart that depends on it")
    return {
        "name": name,
        "version": version,
        "summary": str(head.get("description") or "").strip().partition("\n")[0],
        "description": _described(head),
        "keywords": tuple(_listed(head, "keywords", str)),
        "authors": tuple(str(entry["name"]) for entry in _listed(head, "maintainers") if entry.get("name")),
    }


def _listed(head: Mapping[str, Any], name: str, kind: type = Mapping) -> list[Any]:
    listed = head.get(name)
    return [entry for entry in listed if isinstance(entry, kind)] if isinstance(listed, list) else []


def _described(head: Mapping[str, Any]) -> str:
    version = f" of {head['appVersion']}" if head.get("appVersion") else ""
    lines = [f"A Helm chart{version}, rendered by your `helm`."]
    if head.get("deprecated"):
        lines.append("Its maintainers call it deprecated.")
    names = [str(entry.get("name")) for entry in _listed(head, "dependencies")]
    lines += [f"It holds the charts {', '.join(names)}."] if names else []
    lines += [str(head["home"])] if head.get("home") else []
    return "\n".join(lines)


def read_prototype(files: Files, head: Package, *, source: str) -> dict[str, Any]:
    """Give the prototype of a chart as plain data: parameters of `values.schema.json`, else `values.yaml`.

    What the schema says in a way that is not understood here, `helm` checks alone: parameters are open then.
    """
    text, defaults = _values(files, source)
    defaults = _with_subcharts(files, defaults, source)
    helps = _helps(text)
    schema = _schema(files)
    declared = schema.get("properties") if isinstance(schema.get("properties"), Mapping) else {}
    properties = {}
    for name in (*defaults, *(name for name in declared or () if name not in defaults)):
        if not is_parameter_name(name):
            continue  # it cannot be an option; files may set it
        own = (declared or {}).get(name)
        inner = dict(own) if isinstance(own, Mapping) and own else _hint(defaults.get(name))
        inner.pop("aliases", None)
        if name in defaults:
            inner["default"] = defaults[name]
        inner["description"] = str(inner.get("description") or helps.get(name, ""))
        inner |= {"x-secret": True} if inner.get("writeOnly") is True else {}
        properties[name] = inner
    rest = {key: value for key, value in schema.items() if key != "default"}
    schema = {"additionalProperties": True, **rest, "type": "object", "properties": properties}
    return {"summary": head.summary, "description": head.description, "notes": "", "schema": schema}


def _values(files: Files, source: str) -> tuple[str, dict[str, Any]]:
    where = f"{source}/{_VALUES}"
    text = document.decode(files.get(_VALUES, b""), file=where)
    try:
        read = read_documents(text, source=where)
    except YamlError:  # helm is less strict: a key may stand twice
        read = []
    value = read[0].value if read else {}
    return text, {str(key): inner for key, inner in value.items()} if isinstance(value, Mapping) else {}


def _with_subcharts(files: Files, values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Give a chart's values over those of the charts in it, which stand under their names, or aliases."""
    files = _laid_open(files)
    folders = sorted({path.parts[1] for path in files if path.parts[0] == "charts" and len(path.parts) > 2})
    result = dict(values)
    for folder in folders:
        top = PurePosixPath("charts", folder)
        inner = {path.relative_to(top): data for path, data in files.items() if path.is_relative_to(top)}
        head = _head(inner, f"{source}/{top}")
        if head.get("type") == "library" or not head.get("name"):
            continue
        own = _with_subcharts(inner, _values(inner, f"{source}/{top}")[1], f"{source}/{top}")
        own.pop("global", None)
        for name in _names_of(str(head["name"]), _head(files, source)):
            if own and isinstance(result.get(name, {}), Mapping):
                result[name] = overlaid(own, result.get(name, {}))
    return result


def _laid_open(files: Files) -> Files:
    """Give a chart's files with those of the charts that stand packed in `charts/`."""
    inner: dict[PurePosixPath, bytes] = {}
    for path in [path for path in files if path.match("charts/*.tgz") and len(path.parts) == 2]:
        with suppress(RegistryError):  # helm says so
            content = unpack(files[path], path.name)
            inner |= {path.parent / name: data for name, data in content.items()}
    return {**inner, **files}


def _head(files: Files, source: str) -> Mapping[str, Any]:
    """Give what `Chart.yaml` says; nothing of one that helm will refuse."""
    try:
        text = document.decode(files.get(CHART_FILE, b""), file=source)
        head = read_document(text, source=source, with_positions=False).value
    except (SchemaError, YamlError):
        return {}
    return head if isinstance(head, Mapping) else {}


def _names_of(chart: str, owner: Mapping[str, Any]) -> list[str]:
    """Give the keys under which the values of a chart inside another one stand."""
    own = [entry for entry in _listed(owner, "dependencies") if entry.get("name") == chart]
    return [str(entry.get("alias") or chart) for entry in own] or [chart]


def _helps(text: str) -> dict[str, str]:
    """Give the comments right above the outermost keys, as most charts document their values."""
    helps: dict[str, str] = {}
    comment: list[str] = []
    for line in text.splitlines():
        if line.startswith("#"):
            match = re.fullmatch(_COMMENT, line)
            comment.append(match[1].strip() if match else "")
            continue
        if (key := re.match(_KEY, line)) and comment and not comment[-1].startswith("- "):
            helps[key[1]] = " ".join(filter(None, comment))[:_LONGEST_HELP]
        comment = []
    return helps


def _hint(value: Any, depth: int = 0) -> dict[str, Any]:
    """Say what a default is like, so that typed texts are understood; any other value is as good."""
    if isinstance(value, Mapping):
        if depth > _DEEPEST:
            return {}
        inner = {str(key): _hint(entry, depth + 1) for key, entry in value.items()}
        return {"anyOf": [{"type": "object"}, {}], "properties": inner}
    return {} if value is None else {"anyOf": [{"type": json_type(value)}, {}]}


# --- values.schema.json, made self-contained ---


def _schema(files: Files) -> dict[str, Any]:
    """Give the chart's own schema with references inside it followed, or nothing."""
    if (root := from_json(files.get(_SCHEMA), dict)) is None:  # helm says so
        return {}
    # What leads elsewhere, in a circle or too far says nothing.
    inlined = Inliner(partial(_part, root), lambda fault: {}).schema(root)
    for name in ("$schema", "$id", "id", "$defs", "definitions"):
        inlined.pop(name, None)
    return inlined if is_checkable(inlined) else {}


def _part(root: Mapping[str, Any], reference: str) -> Any:
    """Give what a reference inside a document leads to; nothing for one that leads elsewhere."""
    value: Any = root if reference.startswith("#/") else None
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


# --- archives: the same files give the same bytes everywhere; read with suspicion ---

_MOST_BYTES = 2 * MAX_BYTES  # with the heads of all its files


class _Refusal(Exception):
    """Raised of what no package may hold."""


def pack(files: Files) -> bytes:
    """Write files as a plain tar archive, in the order of their paths, without owners, times and rights.

    What zlib would make of the same bytes differs from one version of it to the next.
    """
    import tarfile

    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, data in sorted(files.items(), key=lambda item: item[0].as_posix().encode()):
            member = tarfile.TarInfo(path.as_posix())
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, BytesIO(data))
    return buffer.getvalue()


def unpack(data: bytes, named: str) -> Files:
    """Read an archive, packed by gzip or not; names that start with `.` are left out.

    Raises:
        RegistryError: it is broken, or holds what a package may not: links, devices, paths out of it, two
            files of one name, or more than a package may.
    """
    from tarfile import TarError
    from zlib import error as ZlibError

    message = f"package `{named}` is refused:"
    try:
        return _unpacked(data)
    except _Refusal as error:
        raise RegistryError(f"{message} its archive holds {error}", hint="tell who published it") from None
    except ConfigError as error:
        raise RegistryError(f"{message} {error}") from error
    except (TarError, ZlibError, EOFError, OSError, ValueError, OverflowError) as error:
        raise RegistryError(f"{message} its archive cannot be read", hint="publish it again") from error


def _unpacked(data: bytes) -> Files:
    import tarfile
    import zlib

    if data.startswith(b"\x1f\x8b"):
        stream = zlib.decompressobj(wbits=31)
        data = stream.decompress(data, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise _Refusal(f"more than {LIMITS}")
        if not stream.eof:
            raise EOFError
    files: dict[PurePosixPath, bytes] = {}
    entries = size = 0
    with tarfile.open(fileobj=BytesIO(data), mode="r:", errorlevel=2) as archive:
        for member in archive:
            entries, size = entries + 1, size + member.size
            if entries > 2 * MAX_FILES or size > MAX_BYTES:
                raise _Refusal(f"more than {LIMITS}")
            is_harmless = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
            if not is_harmless or member.sparse is not None:
                raise _Refusal(f"`{member.name}`, which is a link or no file")
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts or "\\" in member.name or path.drive:
                raise _Refusal(f"`{member.name}`, a path that leads out of it")
            check_name(path.as_posix(), "its archive")
            is_hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts)
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None and path.parts and not is_hidden:
                if path in files:
                    raise _Refusal(f"two files `{path}`")
                files[path] = file.read()
    if not entries:
        raise EOFError
    if clash := next((path for path in files if any(parent in files for parent in path.parents)), None):
        raise _Refusal(f"`{clash}`, whose folder is a file too")
    return dict(sorted(files.items(), key=lambda item: item[0].parts))
