"""Apps of ksonnet, made up: the frames are those that ks wrote, the components as small as they can be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BASE = 'local components = std.extVar("__ksonnet/components");\ncomponents + {}\n'
MAIN = 'local base = import "base.libsonnet";\nlocal k = import "k.libsonnet";\n\nbase + {}\n'
ENVIRONMENT_PARAMS = """\
local params = std.extVar("__ksonnet/params");
local globals = import "globals.libsonnet";
local envParams = params + {
  components +: %s,
};

{
  components: {
    [x]: envParams.components[x] + globals,
    for x in std.objectFields(envParams.components)
  },
}
"""
MAP = """\
local env = std.extVar("__ksonnet/environments");
local params = std.extVar("__ksonnet/params").components["%s"];
{
  apiVersion: "v1",
  kind: "ConfigMap",
  metadata: { name: params.name, namespace: env.namespace },
  data: { text: params.text },
}
"""


def app_yaml(version: str, environments: Mapping[str, Mapping[str, Any]], **more: Any) -> str:
    listed = {
        name: {"path": name, "destination": {"server": f"https://{name}", "namespace": "ml"}, **dict(values)}
        for name, values in environments.items()
    }
    spec = {"apiVersion": version, "kind": "ksonnet.io/app", "name": "old", "version": "0.0.1", **more}
    return json.dumps(spec if version == "0.0.1" else {**spec, "environments": listed})


def write_app(
    root: Path,
    files: Mapping[str, str],
    *,
    version: str = "0.3.0",
    environments: Mapping[str, Mapping[str, Any]] | None = None,
    params: Mapping[str, Any] | None = None,
    values: Mapping[str, Mapping[str, Any]] | None = None,
    **more: Any,
) -> Path:
    """Write an app.

    Args:
        root: its folder.
        files: further files by path; they replace what would be written.
        version: the format of its app.yaml.
        environments: by name, what app.yaml says of them beside path and destination.
        params: values of the components of the root module.
        values: by environment, values of components.
        more: further fields of app.yaml.
    """
    places = environments if environments is not None else {"default": {}, "prod": {}}
    texts = {
        "app.yaml": app_yaml(version, places, **more),
        "components/params.libsonnet": f"{{\n  global: {{}},\n  components: {json.dumps(params or {})},\n}}",
        "environments/base.libsonnet": BASE,
    }
    for name in places:
        texts[f"environments/{name}/main.jsonnet"] = MAIN
        texts[f"environments/{name}/globals.libsonnet"] = "{}\n"
        lines = [f"{json.dumps(c)} +: {json.dumps(v)}," for c, v in (values or {}).get(name, {}).items()]
        own = "{ " + " ".join(lines) + " }"
        texts[f"environments/{name}/params.libsonnet"] = ENVIRONMENT_PARAMS % own
        if version == "0.0.1":
            spec = {"server": f"https://{name}", "namespace": "ml"}
            texts[f"environments/{name}/spec.json"] = json.dumps(spec)
    for path, text in {**texts, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root
