"""Files of the disk: an app's own, folders that others wrote, what comes with mlstack, files of SOPS."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from mlstack.app import document as documents
from mlstack.app import layout
from mlstack.app.document import AppDocument, FieldReader, fields_of
from mlstack.app.params import ParamFault, Resolved, coerce, param_error
from mlstack.app.prototype import SOPS, Prototype, SecretRef, map_references, reference_paths
from mlstack.app.schema import check_file, note_passed
from mlstack.disk_cache import ByteStore
from mlstack.errors import ConfigError, MlstackError, NotFoundError, RegistryError, SchemaError
from mlstack.objects import masking

T = TypeVar("T")
_ENVIRONMENT_FILE = rf"{layout.ENVIRONMENTS}/.+/{re.escape(layout.ENVIRONMENT)}"

# --- the files below an app's root, each parsed at most once and checked against its schema ------------


class AppFiles:
    """The files below an app's root; those that `passed` their schema before are not checked again."""

    def __init__(self, root: Path, passed: ByteStore) -> None:
        self.root = root
        self._passed = passed
        self.digests: dict[str, str] = {}  # of each file read so far; empty if it was looked for in vain
        self._documents: dict[str, AppDocument | None] = {}

    def bytes(self, file: str) -> bytes | None:
        """Give a file's bytes, or nothing when it is not there."""
        path = f"{self.root}/{file}"  # of a thousand files, which `Path` would take apart
        self.digests[file] = ""
        try:
            data = read_file(path)
        except ConfigError as error:
            error.where = file
            raise
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.islink(path):  # noqa: PTH114
                message = f"the link leads to nothing: {os.readlink(path)}"  # noqa: PTH115
                raise ConfigError(message, where=file, hint="mend or remove it") from error
            return None
        except IsADirectoryError as error:
            message = "a folder stands in the place of the file"
            raise ConfigError(message, where=file, hint="move it away") from error
        except OSError as error:
            message = f"cannot read the file: {(error.strerror or str(error)).lower()}"
            raise ConfigError(message, where=file, hint="check its rights") from error
        self.digests[file] = hashlib.sha256(data).hexdigest()
        return data

    def document(self, file: str, kind: str) -> AppDocument | None:
        """Give a file of ours, checked; nothing when it is not there."""
        if file not in self._documents:
            data = self.bytes(file)
            document = None if data is None else documents.read(data, file=file)
            self._documents[file] = document and self._checked(document, kind)
        return self._documents[file]

    def record(self, file: str, kind: type[T]) -> T | None:
        """Give what a file of ours says, read as the dataclass of its kind; nothing when it is not there."""
        document = self.document(file, kind.__name__)
        return None if document is None else FieldReader(document).record(kind)

    def inputs(self) -> dict[str, str]:
        """Give the hash of each file that was read so far; empty for files that are not there.

        Which cluster an environment is bound to is no input: an apply itself writes it into the file.
        """
        hashes = {}
        for file, digest in sorted(self.digests.items()):
            if digest and re.fullmatch(_ENVIRONMENT_FILE, file):
                document = self.document(file, "Environment")
                value: Mapping[str, object] = document.value if document else {}
                inputs = {key: inner for key, inner in value.items() if key != "cluster"}
                digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
            if file != layout.CURRENT_ENVIRONMENT:
                hashes[file] = digest
        return hashes

    def encrypted(self, file: str) -> AppDocument | None:
        """Give a file that SOPS has encrypted, as it stands; nothing when it is not there.

        Raises:
            ConfigError: it is not encrypted.
        """
        data = self.bytes(file)
        if data is None:
            return None
        document = documents.read(data, file=file)
        if not is_encrypted(document.value):
            message = "the file is not encrypted, and its name says that it is"
            raise ConfigError(message, where=file, hint=f"sops encrypt --in-place {file}")
        return document

    @cached_property
    def app_document(self) -> AppDocument:
        """Give `app.yaml`."""
        document = self.document(layout.APP_FILE, "App")
        if document is None:
            raise NotFoundError("no `app.yaml` here", hint="mlstack init NAME")
        return document

    def _checked(self, document: AppDocument, kind: str) -> AppDocument:
        fields_of(document, kind)
        check_file(kind, document.value, source=document.file, document=document, passed=self._passed)
        return document

    def component_document(self, file: str) -> AppDocument | None:
        """Give a file of kind Component; nothing for a manifest, which often its text alone can tell."""
        if file in self._documents:
            return self._documents[file]
        data = self.bytes(file) or b""
        if b"mlstack.dev/" not in data:
            return None
        listed = documents.read_all(data, file=file)
        if len(listed) == 1 and documents.kind_of(listed[0].value) == "Component":
            self._documents[file] = self._checked(listed[0], "Component")
            return self._documents[file]
        for document in listed:
            kind = documents.kind_of(document.value)
            if kind == "ModuleParams":
                hint = "parameters of the whole app stand in app.yaml"
                message = f"a file of kind `{kind}` is no component"
                raise SchemaError(message, where=str(document.origin()), hint=hint)
            if kind is not None and "metadata" not in document.value:  # no object of Kubernetes
                return self.document(file, "Component")
        return None

    def note_sound(self, file: str, kind: str) -> None:
        """Remember that a file fits its kind: it did, and what was added to it is ours."""
        data = self.bytes(file)
        if data is not None:
            note_passed(kind, documents.read(data, file=file).value, self._passed)


# --- folders that others wrote: regular files inside them, within limits, in a stable order ------------

MAX_FILES = 2000
MAX_BYTES = 32 * 1024 * 1024
MAX_DEPTH = 32
_CHUNK = 1024 * 1024
Files = Mapping[PurePosixPath, bytes]
"""The files of a folder by their paths relative to it."""
CHART_FILE = PurePosixPath("Chart.yaml")
LIMITS = f"{MAX_FILES} files and {MAX_BYTES // 1024 // 1024} MiB"
_SPECIAL = "is a FIFO, socket or device, not a file"


def read_folder(folder: Path, *, source: str = "") -> Files:
    """Read all files below a folder by relative path; names that start with `.` are left out.

    Links to files are followed as long as they stay inside the folder. Sizes are asked for before anything
    is read. Messages call the folder `source`, or by its path.

    Raises:
        ConfigError: a link leaves the folder, a name cannot be shown, something cannot be read, or there is
            more than `MAX_FILES`, `MAX_BYTES` or `MAX_DEPTH`.
    """
    source = source or str(folder)
    try:
        entries = list(islice(_files(str(folder), os.path.realpath(folder), source), MAX_FILES + 1))
        if len(entries) > MAX_FILES or sum(entry.stat().st_size for _, entry in entries) > MAX_BYTES:
            raise ConfigError(f"the folder holds more than {LIMITS}", where=source)
        contents = {path: read_file(entry.path) for path, entry in entries}
    except OSError as error:
        raise ConfigError(f"the folder cannot be read: {error.strerror}", where=source) from error
    ordered = sorted(contents, key=lambda path: path.split("/"))
    return {PurePosixPath(path): contents[path] for path in ordered}


def is_chart(files: Files) -> bool:
    """Tell whether a folder is a Helm chart, and no package that holds one."""
    return CHART_FILE in files and PurePosixPath("package.yaml") not in files


def read_file(path: Path | str) -> bytes:
    """Read a file of at most `MAX_BYTES`; nothing else is opened for long, as a FIFO that nobody writes to.

    Raises:
        ConfigError: it is larger, or a FIFO, socket or device.
        OSError: it cannot be read.
    """
    facts = os.stat(path)  # noqa: PTH116
    if not stat.S_ISDIR(facts.st_mode) and not stat.S_ISREG(facts.st_mode):
        raise ConfigError(f"`{Path(path).name}` {_SPECIAL}", hint="remove it")
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, min(facts.st_size, MAX_BYTES) + 1)  # a folder raises here
        while data and len(data) <= MAX_BYTES and (more := os.read(descriptor, _CHUNK)):
            data += more
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"`{Path(path).name}` is larger than {MAX_BYTES // 1024 // 1024} MiB")
    return data


def check_name(path: str, source: str) -> None:
    """Refuse names that are no UTF-8 or hold what cannot be shown: nobody could see what they are."""
    names = path.split("/")
    if len(names) > MAX_DEPTH:
        raise ConfigError(f"the folder holds folders more than {MAX_DEPTH} deep", where=source)
    for name in names:
        if not name.isprintable():  # bytes that are no UTF-8 are half surrogate pairs here
            message = f"the folder holds a name that is no UTF-8 or cannot be shown: {name!a}"
            raise ConfigError(message, where=source)


def _files(folder: str, root: str, source: str, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(folder) as entries:
        listed = sorted(islice(entries, 2 * MAX_FILES), key=lambda entry: entry.name)
    if len(listed) == 2 * MAX_FILES:
        raise ConfigError(f"the folder holds more than {LIMITS}", where=source)
    for entry in listed:
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        path = f"{below}{entry.name}"
        check_name(path, source)
        if entry.is_symlink():
            if not entry.is_file():
                message = f"`{entry.name}` is a link, and not to a file"
                raise ConfigError(message, where=source, hint="copy what it leads to")
            if not Path(entry.path).resolve().is_relative_to(root):
                raise ConfigError(f"`{entry.name}` is a link that leaves the folder", where=source)
            yield path, entry
        elif entry.is_dir():
            yield from _files(entry.path, root, source, f"{path}/")
        elif entry.is_file():
            yield path, entry
        else:
            raise ConfigError(f"`{path}` {_SPECIAL}", where=source, hint="remove it")


# --- folders that come with mlstack: `prototypes`, `registry` and `environments` -----------------------


def folder(name: str) -> Path:
    """Give a bundled folder: in the installed package first, in the checkout beside it second."""
    package = Path(__file__).parent.parent
    for base in (package / "_bundled", package.parent):
        if (base / name).is_dir():
            return base / name
    message = f"the folder `{name}` that comes with mlstack is missing"
    raise MlstackError(message, hint="install mlstack again")


def presets() -> tuple[str, ...]:
    """Give the names of the environment presets, sorted; `env add` makes environments of them."""
    return tuple(sorted(file.parent.name for file in folder("environments").glob("*/environment.yaml")))


def preset(name: str) -> Path | None:
    """Give the folder of an environment preset, or nothing when there is none of that very name."""
    return folder("environments") / name if name in presets() else None


def stacks() -> tuple[str, ...]:
    """Give the names of the stacks that an app may begin with, sorted."""
    return tuple(sorted(file.stem for file in (folder("registry") / "stacks").glob("*.yaml")))


def is_encrypted(value: Any) -> bool:
    """Tell whether the content of a file is what SOPS has written."""
    return isinstance(value, Mapping) and isinstance(value.get(SOPS), Mapping) and "mac" in value[SOPS]


# --- values of secret parameters: environment variables, and files through `sops` -----------------------


class SecretValues:
    """Reads what references name, each file once: variables of `environ`, files below the app at `root`."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        self._root, self._environ = root, environ
        self._files: dict[str, Any] = {}

    def read(self, reference: SecretRef) -> Any:
        """Give a value.

        Raises:
            ConfigError: the variable is not set, or the file cannot be decrypted.
            RegistryError: there is no program `sops`.
        """
        if reference.variable:
            if not (text := self._environ.get(reference.variable)):
                message = f"the environment variable `{reference.variable}` is not set"
                raise ConfigError(message, hint=f"{reference.variable}=… mlstack …, or export it")
            return text
        if reference.file not in self._files:
            self._files[reference.file] = decrypt(self._root / reference.file, name=reference.file)
        value = self._files[reference.file]
        for part in reference.path:
            value = value[part]
        return value

    def filled(self, prototype: Prototype, resolved: Resolved, *, stand_ins: bool = False) -> Resolved:
        """Give resolved parameters with the values of secret ones that stand elsewhere.

        With `stand_ins`, what cannot be read is a text that nobody takes for it.

        Raises:
            ParamError: an environment variable is not set, with the place that names it.
            ConfigError: a file cannot be decrypted.
            RegistryError: there is no program `sops`.
        """
        faults: list[ParamFault] = []
        values = dict(resolved.values)
        for name, param in prototype.params.items():
            if not param.secret or not any(True for _ in reference_paths(values.get(name))):
                continue

            def read(reference: SecretRef, name: str = name) -> Any:
                try:
                    return self.read(reference)
                except MlstackError as error:
                    if stand_ins:
                        return masking.MASK
                    if not reference.variable:
                        raise
                    faults.append(ParamFault(f"`{name}`: {error}", str(resolved.origin(name)), error.hint))
                    return None

            values[name] = coerce(replace(param, secret=False), map_references(values[name], read))
            masking.note(values[name])
        if faults:
            raise param_error(faults)
        return replace(resolved, values=values)


def decrypt(file: Path, *, name: str, data: bytes = b"") -> Any:
    """Give what a file says that SOPS has encrypted, through the user's `sops` and its keys.

    `data` is its content, where it cannot be opened anew as stdin cannot.

    Raises:
        ConfigError: it cannot be decrypted, as without its key.
        RegistryError: there is no program `sops`.
    """
    options = ["--input-type", "yaml", "--output-type", "json"]
    plain = _sops("--decrypt", *options, "/dev/stdin" if data else str(file), name=name, stdin=data)
    return {key: inner for key, inner in json.loads(plain).items() if key != SOPS}


def _sops(*arguments: str, name: str, stdin: bytes = b"") -> bytes:
    from mlstack import programs

    try:
        programs.find("sops")
    except MlstackError as error:
        message = f"`{name}` is encrypted by SOPS, and the program `sops` is not installed"
        raise RegistryError(message, hint="install it: https://getsops.io") from error
    try:
        return programs.run(["sops", *arguments], stdin=stdin).stdout
    except programs.ProgramError as error:
        hint = f"whoever may read it has its key: sops decrypt {name}"
        raise ConfigError(error.message, where=name, hint=hint) from error


def renamed(file: Path, *, name: str, names: Mapping[str, str | None]) -> bytes:
    """Give a file that SOPS has encrypted with other names for components, or without them (None).

    `sops` binds each value to its place, so that what moves is encrypted anew; nothing is ever written
    that is not encrypted.

    Raises:
        ConfigError: it cannot be decrypted, as without its key.
        RegistryError: there is no program `sops`.
    """
    values = decrypt(file, name=name)["components"]
    with TemporaryDirectory() as folder:
        copy = Path(folder) / file.name
        copy.write_bytes(file.read_bytes())
        for old, new in names.items():
            if new is not None:
                content = json.dumps(values[old]).encode()
                _sops("set", "--value-stdin", str(copy), f'["components"]["{new}"]', name=name, stdin=content)
            _sops("unset", str(copy), f'["components"]["{old}"]', name=name)
        return copy.read_bytes()
