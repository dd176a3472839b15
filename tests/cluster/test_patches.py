"""Strategic patches come to what the API server makes of the same ones."""

from typing import Any

import pytest

from mlstack.render.patches import Patch, patched
from mlstack.validate.validate import load_schemas
from mlstack.yaml.read import read_document
from tests.support.cluster import TestCluster

pytestmark = pytest.mark.cluster

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, finalizers: [example.com/a, example.com/b, example.com/c]}
spec:
  replicas: 2
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, tier: front}}
    spec:
      tolerations: [{key: a, operator: Exists}]
      hostAliases: [{ip: 10.0.0.1, hostnames: [a]}, {ip: 10.0.0.2, hostnames: [b]}]
      volumes: [{name: one, emptyDir: {}}, {name: two, configMap: {name: c}}]
      containers:
      - name: main
        image: nginx
        args: [a, b]
        env: [{name: A, value: '1'}, {name: B, value: '2'}, {name: C, value: '3'}]
        ports: [{containerPort: 80}, {containerPort: 81}]
        volumeMounts: [{name: one, mountPath: /one}, {name: two, mountPath: /two}]
      - {name: proxy, image: envoy}
      - {name: side, image: side}
"""
POD = "spec: {template: {spec: %s}}"
CASES = [
    "spec: {replicas: 3, template: {metadata: {labels: {tier: null, more: x}}}}",
    POD % ("{tolerations: [{key: b, operator: Exists}]}"),
    POD % ("{hostAliases: [{ip: 10.0.0.2, hostnames: [z]}, {ip: 10.0.0.3, hostnames: [c]}]}"),
    POD % ("{containers: [{name: proxy, image: new}, {name: extra, image: x}]}"),
    POD % ("{containers: [{name: side, image: s2}, {name: main, image: m2}]}"),
    POD % ("{containers: [{name: proxy, $patch: delete}]}"),
    POD % ("{containers: [{$patch: replace}, {name: one, image: o}]}"),
    POD % ("{containers: [{name: main, env: [{name: C, value: x}, {name: D, value: v}], args: [z]}]}"),
    POD % ("{containers: [{name: main, env: [{name: B, $patch: delete}, {name: A, value: null}]}]}"),
    POD % ("{containers: [{name: main, ports: [{containerPort: 81, name: web}]}]}"),
    POD % ("{containers: [{name: main, volumeMounts: [{mountPath: /two, readOnly: true, name: two}]}]}"),
    POD % ("{$setElementOrder/containers: [{name: side}, {name: main}]}"),
    POD
    % ("{$setElementOrder/containers: [{name: new}, {name: main}], containers: [{name: new, image: nn}]}"),
    POD % ("{volumes: [{name: two, $retainKeys: [name, emptyDir], emptyDir: {}}]}"),
    "spec: {strategy: {$retainKeys: [type], type: Recreate}}",
    "spec: {strategy: {$patch: replace, type: Recreate}}",
    "metadata: {finalizers: [example.com/d, example.com/b]}",
    "metadata: {$deleteFromPrimitiveList/finalizers: [example.com/b]}",
    "metadata: {$setElementOrder/finalizers: [example.com/c, example.com/a]}",
]


def test_patches_come_to_what_the_server_makes_of_them(minikube: TestCluster, namespace: str) -> None:
    collection = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    path, dry = f"{collection}/web", "?dryRun=All"
    live = minikube.request("POST", collection, read_document(DEPLOYMENT, source="web").value)
    live["metadata"].pop("managedFields")
    live["metadata"].pop("resourceVersion")
    schemas = load_schemas("1.36")
    for text in CASES:
        change: Any = read_document(text, source="patch").value
        server = minikube.request(
            "PATCH", path + dry, change, content_type="application/strategic-merge-patch+json"
        )
        patch = Patch(target={"kind": "Deployment"}, change=change, type="strategic", where="patch:1")
        (ours,) = patched([live], [patch], lambda data: (schemas.root("apps", "v1", "Deployment"), schemas))
        written = minikube.request("PUT", path + dry, ours)
        assert written["spec"] == server["spec"], text
        assert written["metadata"]["finalizers"] == server["metadata"]["finalizers"], text
    live["metadata"]["finalizers"] = []
    minikube.request("PUT", path, live)
