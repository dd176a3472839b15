"""Helm charts for tests, the real helm beside ours, and what both must agree on."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from subprocess import run
from textwrap import dedent
from typing import Any

from mlstack.importers import plan
from mlstack.render.component import unpacked
from mlstack.yaml.read import read_documents
from tests.support.builders import Tree
from tests.support.tools import tool

HELPERS = """\
{{- define "lib.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
"""

WIDGETS = """\
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {name: widgets.example.com}
    spec:
      group: example.com
      names: {kind: Widget, plural: widgets}
      scope: Namespaced
      versions:
      - name: v1
        served: true
        storage: true
        schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    """

PLATFORM: Tree = {
    "Chart.yaml": """\
        apiVersion: v2
        name: platform
        version: 1.2.0
        appVersion: "3.4"
        description: A web server with a cache
        dependencies:
        - {name: cache, version: 0.3.1, repository: "https://charts.example", condition: cache.enabled}
        - {name: lib, version: 1.0.0, repository: "https://charts.example"}
        """,
    "Chart.lock": """\
        dependencies:
        - {name: cache, repository: "https://charts.example", version: 0.3.1}
        - {name: lib, repository: "https://charts.example", version: 1.0.0}
        digest: sha256:0000000000000000000000000000000000000000000000000000000000000000
        generated: "2026-01-01T00:00:00Z"
        """,
    "values.yaml": """\
        # -- Pods of the web server.
        replicas: 1
        image:
          repository: nginx
          tag: ""
        # What the configuration says.
        config: {level: info, drop: me}
        name: the chart's own value of that name
        namespace: another of the chart's own
        hosts: [a.example, b.example]
        cache:
          enabled: true
          size: 64
        """,
    "templates/web.yaml": """\
        {{- if .Capabilities.APIVersions.Has "apps/v1" }}
        apiVersion: apps/v1
        kind: Deployment
        metadata:
          name: {{ .Release.Name }}-web
          labels: {{- include "lib.labels" . | nindent 4 }}
          annotations:
            kube: {{ .Capabilities.KubeVersion.Version }}
            note: {{ .Values.name | quote }}
        spec:
          replicas: {{ .Values.replicas }}
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}, annotations: null}
            spec:
              nodeSelector:
              containers:
              - name: web
                image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
                volumeMounts: []
        {{- end }}
        """,
    "templates/config.yaml": """\
        apiVersion: v1
        kind: List
        items:
        {{- range .Values.hosts }}
        - apiVersion: v1
          kind: ConfigMap
          metadata: {name: "{{ $.Release.Name }}-{{ . | replace "." "-" }}", namespace: ml}
          data: {host: {{ . }}, motd: {{ $.Files.Get "files/motd.txt" | quote }}}
        {{- end }}
        ---
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: "{{ .Release.Name }}-config"}
        data: {{- .Values.config | toYaml | nindent 2 }}
        """,
    "templates/hooks.yaml": """\
        apiVersion: batch/v1
        kind: Job
        metadata:
          name: {{ .Release.Name }}-migrate
          annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-weight: "1"}
        spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, image: busybox}]}}}
        ---
        apiVersion: v1
        kind: Pod
        metadata: {name: "{{ .Release.Name }}-probe", annotations: {helm.sh/hook: test}}
        spec: {containers: [{name: p, image: busybox}]}
        """,
    "templates/widget.yaml": """\
        apiVersion: example.com/v1
        kind: Widget
        metadata: {name: "{{ .Release.Name }}"}
        spec: {empty: {}, nothing: null}
        """,
    "crds/widgets.yaml": WIDGETS,
    "files/motd.txt": "two\nlines\n",
    "charts/cache/Chart.yaml": "{apiVersion: v2, name: cache, version: 0.3.1}\n",
    "charts/cache/values.yaml": "size: 32\npolicy: lru\n",
    "charts/cache/templates/cache.yaml": """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: "{{ .Release.Name }}-cache"}
        data: {size: "{{ .Values.size }}", policy: {{ .Values.policy }}, zone: "{{ .Values.global.zone }}"}
        """,
    "charts/lib/Chart.yaml": "{apiVersion: v2, name: lib, version: 1.0.0, type: library}\n",
    "charts/lib/templates/_labels.tpl": HELPERS,
}
"""Subcharts with a lock and a condition, a library, hooks, a definition, lists, nulls, files."""

STRICT: Tree = {
    "Chart.yaml": "{apiVersion: v2, name: strict, version: 0.1.0, description: With a schema}\n",
    "values.yaml": "level: 3\n",
    "values.schema.json": json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"level": {"type": "integer", "minimum": 1, "maximum": 5}},
            "type": "object",
            "additionalProperties": False,
            "required": ["owner"],
            "properties": {
                "level": {"$ref": "#/definitions/level", "description": "How much is told"},
                "owner": {"type": "string"},
                "global": {"type": "object"},
            },
        }
    ),
    "templates/map.yaml": """\
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: {{ .Release.Name }}}
        data: {level: {{ .Values.level | quote }}, owner: {{ .Values.owner | quote }}}
        """,
}
"""Parameters from a schema, which takes no others."""

RANDOM: Tree = {
    "Chart.yaml": "{apiVersion: v2, name: random, version: 0.1.0}\n",
    "values.yaml": 'password: ""\n',
    "templates/secret.yaml": """\
        apiVersion: v1
        kind: Secret
        metadata: {name: {{ .Release.Name }}}
        stringData: {password: {{ .Values.password | default (randAlphaNum 16) | quote }}}
        """,
}
"""A password by chance unless one is given."""


def charts(**trees: Tree) -> Tree:
    """Give the files of a registry folder that holds charts."""
    return {f"{name}/{path}": text for name, tree in trees.items() for path, text in tree.items()}


def helm_objects(chart: Path, release: str, *, values: Any = None, more: Sequence[str] = ()) -> list[Any]:
    """Give what the real `helm template` renders, hooks left out."""
    command = [str(tool("helm")), "template", release, str(chart), "--namespace", "ml", "--include-crds"]
    command += ["--kube-version", "v1.36.0", "--no-hooks", "--values", "-", *more]
    done = run(command, input=json.dumps(values or {}).encode(), capture_output=True, check=True)
    documents = read_documents(done.stdout.decode(), source="helm")
    return [data for document in documents for _, data in unpacked(document.value)]


def comparable(objects: Iterable[Mapping[str, Any]], *, namespace: str = "ml") -> dict[str, Any]:
    """Give objects by identity, without the marks of who deploys them and in the form that a server keeps."""
    result = {}
    for data in objects:
        plain = plan.comparable(data, namespace)
        metadata = plain["metadata"]
        key = f"{data['apiVersion']} {data['kind']} {metadata['namespace']}/{metadata['name']}"
        assert key not in result, key
        result[key] = plain
    return result


def packed(name: str, tree: Tree, *, version: str = "") -> bytes:
    """Give a chart as helm packs it: gzip, with a folder around the files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in tree.items():
            content = dedent(str(text))
            if version and path == "Chart.yaml":
                content = content.replace("1.2.0", version)
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))
    return buffer.getvalue()
