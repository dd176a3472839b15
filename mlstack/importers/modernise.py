"""Components of ksonnet that only call a known prototype: which it was, and which parameters still fit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mlstack.app import params
from mlstack.app.prototype import Prototype
from mlstack.errors import MlstackError

_NAME = re.compile(r"^// @name (?:io\.ksonnet\.pkg\.)?([\w.-]+)", re.MULTILINE)
_IMPORT = re.compile(r"""import\s*\(?\s*["'][\w.-]+/([\w.-]+)/([\w.-]+)\.libsonnet""")


def old_names(code: str) -> tuple[str, ...]:
    """Give the names that the prototype of a component may have had, the likeliest first.

    What writes objects of its own is more than a prototype, and has none.
    """
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
