"""Charts with the difficulties of popular ones, in three environments: equal to what `helm template` has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from textwrap import dedent, indent

import pytest

from mlstack.app.environment import ClusterSnapshot
from mlstack.app.layout import SNAPSHOT as SNAPSHOT_FILE
from tests.support.builders import Tree, write_tree
from tests.support.charts import HELPERS, WIDGETS, comparable, helm_objects
from tests.support.cli import Runner
from tests.support.tools import tool

pytestmark = pytest.mark.slow

VERSIONS = {"dev": "1.36", "staging": "1.35", "prod": "1.34"}
ENVIRONMENTS = tuple(VERSIONS)
CLUSTER = ClusterSnapshot(
    taken="2026-01-01T00:00:00Z",
    version="v1.35.0",
    apis={"v1": ("ConfigMap",), "monitoring.coreos.com/v1": ("PodMonitor",)},
    definitions=(),
    nodes=(),
    quotas=(),
)


def config_map(name: str, data: str) -> str:
    """Give a template of a ConfigMap; the lines of `data` are its own."""
    head = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: '{{{{ .Release.Name }}}}-{name}'}}\ndata:\n"
    return head + indent(dedent(data), "  ")


def chart(values: str, files: Tree, *, name: str = "chart", head: str = "") -> Tree:
    """Give a chart; `head` is more of its `Chart.yaml`."""
    top = f"apiVersion: v2\nname: {name}\nversion: 1.0.0\nappVersion: '2.1'\n{dedent(head)}"
    return {"Chart.yaml": top, "values.yaml": dedent(values), **files}


def inside(tree: Tree, name: str) -> Tree:
    """Give the files of a chart in another one."""
    return {f"charts/{name}/{path}": text for path, text in tree.items()}


CACHE = chart(
    "size: 32\nlabels: {a: b}\n",
    {
        "templates/cache.yaml": config_map(
            '{{ .Values.role | default "cache" }}',
            """\
            size: {{ .Values.size | quote }}
            labels: {{ .Values.labels | toJson | quote }}
            chart: {{ .Chart.Name }}
            zone: {{ (.Values.global | default dict).zone | default "none" }}
            """,
        )
    },
    name="cache",
)
ALIASES = chart(
    """\
    port: 80
    global: {zone: eu}
    primary: {role: primary, size: 64}
    replica: {role: replica, enabled: false}
    tags: {extras: true}
    """,
    {
        "templates/top.yaml": config_map("top", "port: {{ .Values.port | quote }}\n"),
        **inside(CACHE, "cache"),
        **inside(
            chart(
                "on: 1\n",
                {"templates/x.yaml": config_map("extra", "'on': '{{ .Values.on }}'\n")},
                name="extra",
            ),
            "extra",
        ),
    },
    head="""\
    dependencies:
    - {name: cache, version: 1.0.0, alias: primary}
    - {name: cache, version: 1.0.0, alias: replica, condition: replica.enabled}
    - {name: extra, version: 1.0.0, tags: [extras]}
    """,
)

DEFINITIONS = chart(
    "count: 1\nmonitor: true\n",
    {
        "crds/widgets.yaml": WIDGETS,
        "templates/widgets.yaml": """\
            {{- range $number := until (int .Values.count) }}
            ---
            apiVersion: example.com/v1
            kind: Widget
            metadata: {name: "{{ $.Release.Name }}-{{ $number }}"}
            spec: {kube: "{{ $.Capabilities.KubeVersion.Minor }}"}
            {{- end }}
            {{- if semverCompare ">=1.35-0" .Capabilities.KubeVersion.Version }}
            ---
            apiVersion: v1
            kind: ConfigMap
            metadata: {name: new}
            data: {version: {{ .Capabilities.KubeVersion.GitVersion | quote }}}
            {{- end }}
            {{- $kind := "monitoring.coreos.com/v1/PodMonitor" }}
            {{- if and .Values.monitor (.Capabilities.APIVersions.Has $kind) }}
            ---
            apiVersion: monitoring.coreos.com/v1
            kind: PodMonitor
            metadata: {name: {{ .Release.Name }}}
            {{- end }}
            """,
    },
)

TEMPLATED = chart(
    """\
    host: "{{ .Release.Name }}.{{ .Values.domain }}"
    domain: example.com
    env:
      B_HOST: "{{ tpl .Values.host . }}"
      A_PLAIN: plain
    extra: |
      apiVersion: v1
      kind: Secret
      metadata: {name: "{{ .Release.Name }}-extra"}
      stringData: {domain: "{{ .Values.domain }}"}
    list: [one, two]
    objects: []
    """,
    {
        "templates/all.yaml": config_map(
            "all",
            """\
            {{- range $name, $value := .Values.env }}
            {{ $name }}: {{ tpl $value $ | quote }}
            {{- end }}
            {{- range $index, $item := .Values.list }}
            item-{{ $index }}: {{ $item | upper }}
            {{- end }}
            """,
        ),
        "templates/extra.yaml": """\
            {{ tpl .Values.extra . }}
            {{- range .Values.objects }}
            ---
            {{ tpl (toYaml .) $ }}
            {{- end }}
            """,
    },
)

DATABASE = chart(
    """\
    auth: {existingSecret: "", password: ""}
    persistence: {enabled: true, size: 8Gi, storageClass: ""}
    replicas: 1
    """,
    {
        "templates/secret.yaml": """\
            {{- $name := printf "%s-db" .Release.Name | trunc 63 | trimSuffix "-" }}
            {{- $known := lookup "v1" "Secret" .Release.Namespace $name }}
            {{- if not .Values.auth.existingSecret }}
            apiVersion: v1
            kind: Secret
            metadata: {name: {{ $name }}}
            type: Opaque
            data:
              {{- if $known }}
              password: {{ index $known.data "password" }}
              {{- else }}
              password: {{ required "auth.password is needed" .Values.auth.password | b64enc | quote }}
              {{- end }}
            {{- end }}
            """,
        "templates/set.yaml": """\
            apiVersion: apps/v1
            kind: StatefulSet
            metadata: {name: {{ .Release.Name }}}
            spec:
              replicas: {{ .Values.replicas }}
              serviceName: {{ .Release.Name }}
              selector: {matchLabels: {app: db}}
              template:
                metadata:
                  labels: {app: db}
                  annotations:
                    checksum/secret: {{ include (print $.Template.BasePath "/secret.yaml") . | sha256sum }}
                spec: {containers: [{name: db, image: "db:{{ .Chart.AppVersion }}"}]}
              {{- if .Values.persistence.enabled }}
              volumeClaimTemplates:
              - metadata: {name: data}
                spec:
                  accessModes: [ReadWriteOnce]
                  {{- with .Values.persistence.storageClass }}
                  storageClassName: {{ . }}
                  {{- end }}
                  resources: {requests: {storage: {{ .Values.persistence.size }}}}
              {{- end }}
            """,
    },
)

CHECKED = chart(
    "level: info\nports: [{port: 80}]\n",
    {
        "values.schema.json": json.dumps(
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "definitions": {"port": {"type": "integer", "minimum": 1, "maximum": 65535}},
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "global": {"type": "object"},
                    "level": {"enum": ["debug", "info", "warn"]},
                    "ports": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["port"],
                            "properties": {
                                "port": {"$ref": "#/definitions/port"},
                                "name": {"type": "string"},
                            },
                        },
                    },
                    "size": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
                },
            }
        ),
        "templates/service.yaml": """\
            apiVersion: v1
            kind: Service
            metadata:
              name: {{ .Release.Name }}
              annotations: {level: {{ .Values.level }}, size: "{{ .Values.size }}"}
            spec:
              ports:
              {{- range .Values.ports }}
              - {port: {{ .port }}, name: {{ .name | default (printf "p%d" (int .port)) }}}
              {{- end }}
            """,
    },
)

LEAF = chart(
    "text: leaf\n",
    {
        "templates/leaf.yaml": config_map(
            "leaf", "text: {{ .Values.text }}\nregistry: {{ .Values.global.registry }}\n"
        )
    },
    name="leaf",
)
MIDDLE = chart(
    "leaf: {text: from the middle}\nglobal: {registry: middle.example}\n",
    {
        "templates/middle.yaml": config_map("middle", "registry: {{ .Values.global.registry }}\n"),
        **inside(LEAF, "leaf"),
    },
    name="middle",
    head="dependencies: [{name: leaf, version: 1.0.0, condition: 'leaf.enabled,global.leaf'}]\n",
)
NESTED = chart(
    "global: {registry: top.example}\nimported: {}\n",
    {
        "templates/top.yaml": config_map("top", "all: {{ .Values.global | toJson | quote }}\n"),
        **inside(MIDDLE, "middle"),
    },
    head="dependencies: [{name: middle, version: 1.0.0}]\n",
)

RUNS = chart(
    "schedules: {nightly: '0 3 * * *'}\nmigrate: true\n",
    {
        "templates/NOTES.txt": "Thank you for installing {{ .Chart.Name }}.\n",
        "templates/_helpers.tpl": HELPERS,
        "templates/jobs.yaml": """\
            {{- if .Values.migrate }}
            apiVersion: batch/v1
            kind: Job
            metadata: {name: migrate, annotations: {helm.sh/hook: "pre-upgrade,pre-install"}}
            spec: {template: {spec: {restartPolicy: Never, containers: [{name: m, image: m}]}}}
            {{- end }}
            {{- range $name, $schedule := .Values.schedules }}
            ---
            apiVersion: batch/v1
            kind: CronJob
            metadata:
              name: {{ $.Release.Name }}-{{ $name }}
              labels: {{- include "lib.labels" $ | nindent 4 }}
            spec:
              schedule: {{ $schedule | quote }}
              jobTemplate:
                spec: {template: {spec: {restartPolicy: Never, containers: [{name: j, image: j}]}}}
            {{- end }}
            """,
        "templates/tests/probe.yaml": """\
            apiVersion: v1
            kind: Pod
            metadata: {name: probe, annotations: {helm.sh/hook: test}}
            spec: {containers: [{name: p, image: p}]}
            """,
    },
)

FILES = chart(
    "dashboards: true\nmode: 0644\n",
    {
        ".helmignore": "*.bak\nnotes/\n",
        "files/a.conf": "listen 80\n\tindented {{ not a template }}\n",
        "files/b.conf": "listen 81",
        "files/old.conf.bak": "listen 82",
        "notes/plan.conf": "not packed",
        "templates/config.yaml": """\
            apiVersion: v1
            kind: ConfigMap
            metadata: {name: conf}
            data: {{- (.Files.Glob "**.conf").AsConfig | nindent 2 }}
            ---
            apiVersion: v1
            kind: Secret
            metadata: {name: conf}
            data: {{- (.Files.Glob "files/*").AsSecrets | nindent 2 }}
            {{- if .Values.dashboards }}
            ---
            apiVersion: v1
            kind: ConfigMap
            metadata: {name: lines, annotations: {mode: "{{ .Values.mode }}"}}
            data:
              {{- range $number, $line := .Files.Lines "files/a.conf" }}
              l{{ $number }}: {{ $line | quote }}
              {{- end }}
            {{- end }}
            """,
    },
)

SCALARS = chart(
    """\
    million: 1000000
    half: 0.5
    version: 1.10
    octal: 0o17
    zero: "010"
    norway: no
    text: "yes"
    nothing: null
    map: {b: 1, a: {c: [1, {d: e}]}}
    long: >-
      folded
      text
    """,
    {
        "templates/all.yaml": config_map(
            "all",
            """\
            all: {{ omit .Values "global" | toJson | quote }}
            million: "{{ .Values.million }}"
            int: "{{ int64 .Values.million }}"
            version: "{{ .Values.version }}"
            sum: "{{ addf .Values.half 1 }}"
            merged: {{ mergeOverwrite (deepCopy (default dict .Values.map)) (dict "b" 2) | toJson | quote }}
            chosen: {{ ternary "on" "off" (eq (toString .Values.norway) "false") | quote }}
            first: {{ coalesce .Values.nothing .Values.text | quote }}
            has: "{{ hasKey .Values "nothing" }}"
            """,
        )
    },
)

WEB = chart(
    """\
    replicaCount: 1
    image: {repository: nginx, tag: "", pullPolicy: IfNotPresent}
    ingress: {enabled: false, hosts: [{host: a.example, paths: [/]}], tls: []}
    autoscaling: {enabled: false, max: 3}
    podAnnotations: {}
    nodeSelector: {}
    tolerations: []
    env: [{name: A, value: "1"}]
    """,
    {
        "templates/_helpers.tpl": HELPERS,
        "templates/web.yaml": """\
            apiVersion: apps/v1
            kind: Deployment
            metadata:
              name: {{ .Release.Name }}
              namespace: {{ .Release.Namespace }}
              labels: {{- include "lib.labels" . | nindent 4 }}
            spec:
              {{- if not .Values.autoscaling.enabled }}
              replicas: {{ .Values.replicaCount }}
              {{- end }}
              selector: {matchLabels: {app: web}}
              template:
                metadata:
                  labels: {app: web}
                  {{- with .Values.podAnnotations }}
                  annotations: {{- toYaml . | nindent 10 }}
                  {{- end }}
                spec:
                  {{- with .Values.nodeSelector }}
                  nodeSelector: {{- toYaml . | nindent 8 }}
                  {{- end }}
                  tolerations: {{- toYaml .Values.tolerations | nindent 8 }}
                  containers:
                  - name: web
                    {{- with .Values.image }}
                    image: "{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}"
                    {{- end }}
                    env: {{- toYaml .Values.env | nindent 10 }}
            """,
        "templates/ingress.yaml": """\
            {{- if .Values.ingress.enabled -}}
            apiVersion: networking.k8s.io/v1
            kind: Ingress
            metadata: {name: {{ .Release.Name }}}
            spec:
              rules:
              {{- range .Values.ingress.hosts }}
              - host: {{ .host | quote }}
                http:
                  paths:
                  {{- range .paths }}
                  - path: {{ . }}
                    pathType: Prefix
                    backend: {service: {name: {{ $.Release.Name }}, port: {number: 80}}}
                  {{- end }}
              {{- end }}
            {{- end }}
            """,
        "templates/scaler.yaml": """\
            {{- if .Values.autoscaling.enabled }}
            apiVersion: autoscaling/v2
            kind: HorizontalPodAutoscaler
            metadata: {name: {{ .Release.Name }}}
            spec:
              maxReplicas: {{ .Values.autoscaling.max }}
              scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .Release.Name }}}
            {{- end }}
            """,
    },
)

CASES = {
    "aliases": (
        ALIASES,
        "port: 8080\n",
        "replica: {enabled: true, labels: {a: null, c: d}}\n",
        "tags: {extras: false}\nglobal: {zone: us, more: {x: 1}}\nprimary: {size: 1Gi}\n",
    ),
    "definitions": (DEFINITIONS, "count: 2\n", "count: 0\n", "monitor: false\ncount: 3\n"),
    "templated": (
        TEMPLATED,
        "domain: dev.example\nenv: {C: '{{ .Chart.Name }}'}\n",
        "list: []\nenv: {A_PLAIN: null}\n",
        "objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-o'}}]\n",
    ),
    "database": (
        DATABASE,
        "auth: {password: not-secret}\n",
        "persistence: {enabled: false}\nauth: {existingSecret: theirs}\n",
        "replicas: 3\npersistence: {storageClass: fast, size: 1Ti}\n",
    ),
    "checked": (
        CHECKED,
        "level: debug\n",
        "ports: [{port: 8080, name: http}, {port: 9090}]\n",
        "size: 3\nlevel: warn\n",
    ),
    "nested": (
        NESTED,
        "middle: {leaf: {text: from the top}}\n",
        "global: {leaf: false}\n",
        "global: {registry: prod.example}\nmiddle: {leaf: {enabled: true, text: prod}}\n",
    ),
    "runs": (RUNS, "schedules: {hourly: '0 * * * *'}\n", "schedules: {nightly: null}\n", "migrate: false\n"),
    "files": (FILES, "{}\n", "dashboards: false\n", "mode: 0755\n"),
    "scalars": (
        SCALARS,
        "million: 2000000\ntext: 'null'\n",
        "version: 1.20\nmap: {b: null, a: {c: []}}\nzero: 0x1F\nlong: |\n  two\n  lines\n",
        "half: 1e3\nnorway: off\noctal: 0777\nnothing: 12345678901\nmap: null\n",
    ),
    "web": (
        WEB,
        "image: {tag: '1.27'}\nenv: [{name: B, value: '2'}, {name: C, value: ''}]\n",
        "ingress: {enabled: true, hosts: [{host: b.example, paths: [/, /b]}]}\npodAnnotations: {a/b: 'y'}\n",
        "autoscaling: {enabled: true}\nnodeSelector: {gpu: 'yes'}\ntolerations: [{operator: Exists}]\n",
    ),
}
"""By name: the chart, then what the component, `staging` and `prod` set; `dev` sets nothing more."""


@pytest.mark.parametrize("name", CASES)
def test_r5_a_chart_is_the_same_as_with_helm_in_three_environments(
    name: str, tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, *texts = CASES[name]
    monkeypatch.setenv("PATH", f"{tool('helm').parent}{os.pathsep}{os.environ['PATH']}")
    write_tree(tmp_path / "charts/chart", tree)
    run.ok("init shop")
    monkeypatch.chdir(tmp_path / "shop")
    run.ok("registry add charts ../charts")
    run.ok("pkg install charts/chart")
    own, changed = texts[0], dict(zip(ENVIRONMENTS[1:], texts[1:], strict=True))
    run.ok("generate chart web")
    component = Path("components/web.yaml")
    component.write_text(f"{component.read_text().partition('params:')[0]}params:\n{indent(own, '  ')}")
    outcomes = []
    for environment, version in VERSIONS.items():
        run.ok(f"env add {environment} --no-preset -n ml")
        run.ok(f"env set {environment} --kubernetes-version {version}")
        more = ["--kube-version", f"v{version}.0"]
        if (name, environment) == ("definitions", "staging"):
            write_tree(Path(), {f"environments/{environment}/{SNAPSHOT_FILE}": CLUSTER.text()})
            more += ["--api-versions", "monitoring.coreos.com/v1/PodMonitor"]
        if text := changed.get(environment):
            params = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\ncomponents:\n  web:\n"
            write_tree(Path(), {f"environments/{environment}/params.yaml": params + indent(text, "    ")})
            (tmp_path / "more.yaml").write_text(text)
            more += ["--values", str(tmp_path / "more.yaml")]
        (tmp_path / "own.yaml").write_text(own)
        beside = helm_objects(
            tmp_path / "charts/chart", "web", more=["--values", str(tmp_path / "own.yaml"), *more]
        )
        ran = run(f"render {environment} -o json")
        assert ran.code == 0, ran.err
        outcomes.append(comparable(ran.json["items"]))
        assert outcomes[-1] == comparable(beside)
        has_monitor = any("PodMonitor" in identity for identity in outcomes[-1])
        assert has_monitor == ((name, environment) == ("definitions", "staging"))
    assert any(other != outcomes[0] for other in outcomes[1:])  # the values of environments count
