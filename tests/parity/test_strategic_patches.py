"""Strategic patches beside the real kustomize: the same, but for what is named here with its reason."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from mlstack.render.patches import Patch, patched
from mlstack.validate.validate import load_schemas
from mlstack.yaml.read import read_document, read_documents
from mlstack.yaml.write import to_yaml_documents
from tests.support.builders import write_tree
from tests.support.tools import tool

pytestmark = pytest.mark.slow

OBJECTS = {
    "Deployment": """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {a: '1', b: '2'}, annotations: {note: x}, finalizers: [x.io/a, x.io/b]}
spec:
  replicas: 2
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, tier: front}}
    spec:
      tolerations: [{key: a, operator: Exists}]
      hostAliases: [{ip: 10.0.0.1, hostnames: [a]}, {ip: 10.0.0.2, hostnames: [b]}]
      imagePullSecrets: [{name: one}, {name: two}]
      volumes: [{name: one, emptyDir: {}}, {name: two, configMap: {name: c}}]
      nodeSelector: {disk: ssd}
      containers:
      - name: main
        image: nginx
        command: [serve]
        args: [a, b]
        env: [{name: A, value: '1'}, {name: B, value: '2'}, {name: C, value: '3'}]
        ports: [{containerPort: 80}, {containerPort: 81}]
        resources: {limits: {cpu: '1', memory: 1Gi}}
        volumeMounts: [{name: one, mountPath: /one}, {name: two, mountPath: /two}]
        livenessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 5}
      - {name: proxy, image: envoy}
      - {name: side, image: side}
""",
    "StatefulSet": """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      initContainers: [{name: init, image: busybox}]
      containers: [{name: db, image: postgres, envFrom: [{configMapRef: {name: c}}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
""",
    "Service": """\
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: dns, port: 53, protocol: UDP}]
""",
    "ServiceAccount": """\
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
imagePullSecrets: [{name: a}, {name: b}]
secrets: [{name: s}, {name: t}]
""",
    "Pod": """\
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}
  containers: [{name: main, image: nginx}]
  ephemeralContainers: [{name: debug, image: busybox}]
""",
    "PersistentVolumeClaim": """\
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: slow, resources: {requests: {storage: 1Gi}}}
""",
    "ConfigMap": """\
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: '1', b: '2'}
""",
    "Widget": """\
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {size: 1, parts: [a, b], inner: {a: 1, b: 2}}
""",
}
POD = "spec: {template: {spec: %s}}"
EQUAL = [
    ("Deployment", "spec: {replicas: 3, template: {metadata: {labels: {tier: null, more: x}}}}"),
    ("Deployment", "metadata: {labels: {b: null, c: '3'}, annotations: {$patch: replace, only: z}}"),
    ("Deployment", "metadata: {annotations: {$patch: delete}}"),
    ("Deployment", POD % "{tolerations: [{key: b, operator: Exists}]}"),
    ("Deployment", POD % "{nodeSelector: {$patch: replace, gpu: 'yes'}}"),
    ("Deployment", POD % "{imagePullSecrets: [{name: two, $patch: delete}]}"),
    ("Deployment", POD % "{containers: [{name: proxy, $patch: delete}]}"),
    ("Deployment", POD % "{containers: [{name: absent, $patch: delete}]}"),
    ("Deployment", POD % "{containers: [{$patch: replace}, {name: one, image: o}]}"),
    ("Deployment", POD % "{containers: [{name: main, args: [z], command: null}]}"),
    (
        "Deployment",
        POD % "{containers: [{name: main, env: [{name: B, $patch: delete}, {name: A, value: x}]}]}",
    ),
    (
        "Deployment",
        POD % "{containers: [{name: main, resources: {limits: {cpu: null}, requests: {cpu: 1}}}]}",
    ),
    (
        "Deployment",
        POD % "{containers: [{name: main, livenessProbe: {httpGet: null, exec: {command: [x]}}}]}",
    ),
    (
        "Deployment",
        POD % "{containers: [{name: main, livenessProbe: {$patch: replace, tcpSocket: {port: 1}}}]}",
    ),
    ("Deployment", "spec: {strategy: {$patch: replace, type: Recreate}}"),
    ("Deployment", "$patch: delete"),
    ("StatefulSet", "spec: {replicas: 3, serviceName: other}"),
    ("StatefulSet", POD % "{initContainers: [{name: init, image: alpine}]}"),
    ("StatefulSet", POD % "{containers: [{name: db, envFrom: [{secretRef: {name: s}}]}]}"),
    (
        "StatefulSet",
        "spec: {volumeClaimTemplates: [{metadata: {name: other}, spec: {accessModes: [ReadWriteMany]}}]}",
    ),
    ("Service", "spec: {ports: [{port: 80, nodePort: 30080}]}"),
    ("Service", "spec: {ports: [{port: 53, protocol: UDP, $patch: delete}]}"),
    ("Service", "spec: {type: ClusterIP, clusterIP: None, selector: {$patch: replace, app: other}}"),
    ("ServiceAccount", "automountServiceAccountToken: false"),
    ("ServiceAccount", "imagePullSecrets: [{name: b, $patch: delete}]"),
    ("ServiceAccount", "secrets: [{name: s, $patch: delete}]"),
    ("Pod", "spec: {containers: [{name: main, image: caddy}]}"),
    (
        "Pod",
        "spec: {topologySpreadConstraints: [{topologyKey: z, whenUnsatisfiable: DoNotSchedule, maxSkew: 2}]}",
    ),
    ("Pod", "spec: {ephemeralContainers: [{name: debug, image: alpine}]}"),
    ("PersistentVolumeClaim", "spec: {storageClassName: fast, resources: {requests: {storage: 2Gi}}}"),
    ("PersistentVolumeClaim", "spec: {accessModes: [ReadWriteMany]}"),
    ("ConfigMap", "data: {b: null, c: '3'}"),
    ("ConfigMap", "data: {$patch: replace, only: x}"),
    ("ConfigMap", "$patch: delete"),
    ("Widget", "spec: {size: 2, parts: [c], inner: {a: null, c: 3}}"),
    ("Widget", "spec: {inner: {$patch: replace, c: 3}}"),
    ("Widget", "spec: {inner: {$patch: delete}}"),
    ("Widget", "$patch: delete"),
    ("Deployment", POD % "{tolerations: null}"),
    ("Deployment", POD % "{containers: [{name: extra, image: x}]}"),
    ("Deployment", POD % "{tolerations: []}"),
    ("Service", "spec: {ports: null, externalName: x}"),
    ("StatefulSet", POD % "{initContainers: null}"),
]
"""Those that come to the same."""
IN_ANOTHER_ORDER = [
    (
        "Service",
        "spec: {ports: [{port: 53, protocol: UDP, name: udp}, {port: 53, protocol: TCP, name: tcp}]}",
    ),
    ("Deployment", POD % "{hostAliases: [{ip: 10.0.0.2, hostnames: [z]}]}"),
    ("Deployment", POD % "{containers: [{name: proxy, image: new}]}"),
    ("Deployment", POD % "{containers: [{name: main, env: [{name: C, value: x}]}]}"),
    ("Deployment", POD % "{containers: [{name: main, ports: [{containerPort: 81, name: web}]}]}"),
    (
        "Deployment",
        POD % "{containers: [{name: main, volumeMounts: [{mountPath: /two, name: two, readOnly: true}]}]}",
    ),
    ("Deployment", POD % "{volumes: [{name: two, configMap: {defaultMode: 256}}]}"),
]
"""kustomize puts what a patch names in front; the API server, which we follow, leaves it where it was."""
PRINTED = [
    ("Deployment", "spec: {strategy: {$retainKeys: [type], type: Recreate}}"),
    ("Deployment", POD % "{volumes: [{name: two, $retainKeys: [name, emptyDir], emptyDir: {}}]}"),
    ("Deployment", "metadata: {$deleteFromPrimitiveList/finalizers: [x.io/b]}"),
    ("Deployment", POD % "{$setElementOrder/containers: [{name: side}, {name: main}, {name: proxy}]}"),
]
"""Directives that the API server heeds and kustomize writes into objects: tests/cluster/test_patches.py."""


def ours(kind: str, change: str) -> list[Any]:
    """Lay a strategic patch over the object of a kind."""
    data: Any = read_document(OBJECTS[kind], source=kind).value
    group, version = ("apps", "v1") if data["apiVersion"] == "apps/v1" else ("", "v1")
    schemas = load_schemas("1.36")
    schema = schemas.root(group, version, kind)
    patch = Patch(
        target={"kind": kind},
        change=read_document(change, source="patch").value,
        type="strategic",
        where="patch:1",
    )
    return [obj for obj in patched([data], [patch], lambda _: (schema, schemas if schema else None)) if obj]


def theirs(folder: Path, kind: str, change: str) -> list[Any]:
    """Let kustomize do so."""
    data: Any = read_document(OBJECTS[kind], source=kind).value
    head = {key: data[key] for key in ("apiVersion", "kind")} | {
        "metadata": {"name": data["metadata"]["name"]}
    }
    content: Any = read_document(change, source="patch").value
    content = head | content | {"metadata": head["metadata"] | content.get("metadata", {})}
    kustomization = {"resources": ["object.yaml"], "patches": [{"path": "patch.yaml"}]}
    write_tree(
        folder,
        {
            "kustomization.yaml": to_yaml_documents([kustomization]),
            "object.yaml": OBJECTS[kind],
            "patch.yaml": to_yaml_documents([content]),
        },
    )
    built = subprocess.run(
        [tool("kustomize"), "build", folder], capture_output=True, text=True, check=True, timeout=120
    )
    return [document.value for document in read_documents(built.stdout, source="kustomize")]


@pytest.mark.parametrize(("kind", "change"), EQUAL)
def test_a_patch_comes_to_the_same(tmp_path: Path, kind: str, change: str) -> None:
    assert ours(kind, change) == theirs(tmp_path, kind, change)


@pytest.mark.parametrize(("kind", "change"), IN_ANOTHER_ORDER)
def test_a_patch_comes_to_the_same_but_for_the_order_of_items(tmp_path: Path, kind: str, change: str) -> None:
    (mine,), (other,) = ours(kind, change), theirs(tmp_path, kind, change)
    assert mine != other
    assert in_one_order(mine) == in_one_order(other)


@pytest.mark.parametrize(("kind", "change"), PRINTED)
def test_directives_that_kustomize_prints_are_heeded(tmp_path: Path, kind: str, change: str) -> None:
    assert "$" not in to_yaml_documents(ours(kind, change))
    assert "$" in to_yaml_documents(theirs(tmp_path, kind, change))


def in_one_order(value: Any) -> Any:
    """Sort the lists of maps in a value, by their text."""
    if isinstance(value, dict):
        return {key: in_one_order(value[key]) for key in sorted(value)}
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return sorted(map(in_one_order, value), key=str)
    return value
