"""What is rendered against the quotas of a namespace, as a snapshot keeps them."""

from typing import Any

import pytest

from mlstack.objects.kube_object import KubeObject
from mlstack.validate.validate import over_quota
from mlstack.yaml.read import read_documents

OBJECTS = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: ml}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: main
        resources:
          requests: {cpu: 500m, memory: 1Gi, nvidia.com/gpu: 1}
          limits: {cpu: 2, memory: 2Gi, nvidia.com/gpu: 1}
  volumeClaimTemplates:
  - metadata: {name: a}
    spec: {storageClassName: fast, resources: {requests: {storage: 10Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: ml}
spec: {resources: {requests: {storage: 5Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: ml}
spec: {type: LoadBalancer, ports: [{port: 80}, {port: 81}]}
---
apiVersion: v1
kind: Secret
metadata: {name: other, namespace: elsewhere}
"""


@pytest.mark.parametrize(
    ("name", "enough", "too_little", "said"),
    [
        ("cpu", "1500m", "1", "ask for 1.5 cpu"),
        ("requests.memory", "3Gi", "2Gi", "ask for 3Gi memory"),
        ("limits.cpu", "6", "5", "ask for 6 cpu"),
        ("limits.memory", "6Gi", "5Gi", "ask for 6Gi memory"),
        ("requests.nvidia.com/gpu", "3", "2", "ask for 3 nvidia.com/gpu"),
        ("pods", "3", "2", "are 3 pods"),
        ("requests.storage", "35Gi", "34Gi", "ask for 35Gi storage"),
        ("fast.storageclass.storage.k8s.io/requests.storage", "30Gi", "29Gi", "ask for 30Gi storage"),
        ("fast.storageclass.storage.k8s.io/persistentvolumeclaims", "3", "2", "are 3 "),
        ("persistentvolumeclaims", "4", "3", "are 4 persistentvolumeclaims"),
        ("count/statefulsets.apps", "1", "0", "are 1 count/statefulsets.apps"),
        ("count/services", "1", "0", "are 1 count/services"),
        ("services", "1", "0", "are 1 services"),
        ("services.loadbalancers", "1", "0", "are 1 services.loadbalancers"),
        ("services.nodeports", "2", "1", "are 2 services.nodeports"),
        ("secrets", "0", "-1", "are 0 secrets"),
    ],
)
def test_each_thing_that_a_quota_counts(name: str, enough: str, too_little: str, said: str) -> None:
    documents = read_documents(OBJECTS, source="objects")
    objects = [KubeObject(data=document.value) for document in documents]

    def faults(hard: Any) -> list[str]:
        quota = {"name": "q", "hard": {name: hard}}
        return [fault.message for fault in over_quota(objects, [quota], "ml")]

    assert faults(enough) == []
    (message,) = faults(too_little)
    assert said in message and f"the quota gives {too_little}" in message
