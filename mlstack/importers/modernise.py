"""Components of ksonnet that only call a known prototype: which it was, and which parameters still fit."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from mlstack.app import params
from mlstack.app.prototype import Prototype
from mlstack.errors import MlstackError
from mlstack.importers.tokens import NotLiteralError, text_of, tokens

_NAME = re.compile(r"^// @name (?:io\.ksonnet\.pkg\.)?([\w.-]+)", re.MULTILINE)
_IMPORT = re.compile(r"""import\s*\(?\s*["'][\w.-]+/([\w.-]+)/([\w.-]+)\.libsonnet""")


_FRAMES = (
    ("local", "env", "=", "std", "extVar", "__ksonnet/environments"),
    ("local", "params", "=", "std", "extVar", "__ksonnet/params", "components"),
)


def fingerprint(code: str) -> str:
    """Give what is the same for all components that ks made of a prototype, and of the prototype itself.

    It is a digest of the tokens without what differs: quotes, commas and brackets as ks printed them, the
    name of the component, and the lines by which it reads its parameters.
    """
    words: list[str] = []
    for token in tokens(code):
        text = token.text
        if token.kind == "string":
            with suppress(NotLiteralError):
                text = text_of(token)
        if text.startswith("param://") and words[-1:] == ["import"]:
            words[-1:] = ["params", text.removeprefix("param://")]
        elif text not in ",()[].;":
            words.append(text)
    read = [at for at in range(len(words)) if tuple(words[at - 6 : at + 1]) == _FRAMES[1]]
    for at in reversed(read):
        del words[at + 1 : at + 2]  # the name of the component
    for frame in _FRAMES:
        for at in range(len(words)):
            if tuple(words[at : at + len(frame)]) == frame:
                del words[at : at + len(frame)]
                break
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:10]


@cache
def _known() -> Mapping[str, str]:
    """Give the names of the prototypes of Kubeflow's registries, all versions of them, by fingerprint."""
    lines = Path(__file__).with_name("fingerprints.txt").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {digest: name for name, *digests in rows for digest in digests}


def old_names(code: str) -> tuple[str, ...]:
    """Give the names that the prototype of a component may have had, the likeliest first.

    It is known by its fingerprint; else, unless it writes objects of its own, by the name that ks wrote above
    it, and by the library that it imports.
    """
    if name := _known().get(fingerprint(code)):
        return (name,)
    if "apiVersion" in code:
        return ()
    names = [match[1] for match in _NAME.finditer(code)]
    for package, library in _IMPORT.findall(code):
        names.append("kubeflow-core" if (package, library) == ("core", "all") else library)
    return tuple(dict.fromkeys(names))


def fitting(
    prototype: Prototype, old_name: str, component: str, values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Give the parameters that the prototype of today takes as they were set, and the names of the others.

    They are spelled as its `old_name` had them; what that sets is among those taken.
    """
    called, own_values = prototype.called(old_name), prototype.alias_params.get(old_name, {})
    taken = dict(own_values)
    others = []
    for name, value in values.items():
        if value in (None, "null", "") or (name == "name" and value == component):
            continue
        try:
            own = params.typed(called, {name: value if isinstance(value, str) else json.dumps(value)})
        except MlstackError:
            others.append(name)
            continue
        others += [name for key in own if called.param(key).deprecated]
        taken |= {
            key: item
            for key, item in own.items()
            if not called.param(key).deprecated and (item != called.param(key).default or key in own_values)
        }
    return taken, others
