"""Patches of an environment: merge, strategic by the keys of the schema, and JSON patches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.errors import ConfigError, MlstackError, NotFoundError, SchemaError
from mlstack.render import patches, render
from mlstack.render.patches import read_patch
from tests.support.builders import MINIMAL_APP, write_tree

WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: nginx, args: [a, b], env: [{name: A, value: '1'}, {name: B, value: '2'}]}
      - {name: proxy, image: proxy}
      tolerations: [{key: a, operator: Exists}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80, name: http}, {port: 53, protocol: UDP, name: dns}]}
"""
WIDGET = """\
apiVersion: example.com/v1
kind: Widget
metadata: {name: w}
spec: {parts: [{name: a, size: 1}, {name: b}], slots: [{id: 1, size: 1}], tags: [x]}
"""
ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: c\n"
HEAD = "apiVersion: mlstack.dev/v1\nkind: Patch\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = {"app.yaml": MINIMAL_APP, "environments/dev/environment.yaml": ENVIRONMENT}
    return write_tree(tmp_path, {**tree, "components/web.yaml": WEB, "components/w.yaml": WIDGET})


def patch(root: Path, kind: str, text: str, *, component: str = "web") -> Mapping[str, Any]:
    write_tree(root, {f"environments/dev/patches/{component}.yaml": HEAD + text})
    objects = render.load(AppDir(root), "dev").objects
    return next(obj.data for obj in objects if obj.kind == kind)


def pod(data: Mapping[str, Any]) -> Any:
    return data["spec"]["template"]["spec"]


def strategic(change: str, kind: str = "Deployment") -> str:
    return f"target: {{kind: {kind}}}\ntype: strategic\npatch: {change}\n"


def test_items_are_told_apart_by_the_keys_of_the_schema(root: Path) -> None:
    change = """
      spec:
        replicas: 3
        template:
          spec:
            tolerations: [{key: b}]
            containers:
            - {name: main, args: [c], env: [{name: B, value: '3'}, {name: C, value: '4'}]}
            - {name: proxy, $patch: delete}
            - {name: extra, image: extra}
    """
    data = patch(root, "Deployment", strategic(change))
    main, extra = pod(data)["containers"]
    assert (data["spec"]["replicas"], main["image"]) == (3, "nginx")
    assert (main["args"], extra["name"]) == (["c"], "extra")
    assert [(var["name"], var["value"]) for var in main["env"]] == [("A", "1"), ("B", "3"), ("C", "4")]
    assert pod(data)["tolerations"] == [{"key": "b"}]  # without keys a list is replaced
    assert data["spec"]["selector"] == {"matchLabels": {"app": "web"}}


def test_defaults_of_keys_count(root: Path) -> None:
    data = patch(root, "Service", strategic("{spec: {ports: [{port: 80, nodePort: 30080}]}}", "Service"))
    assert data["spec"]["ports"][0] == {"port": 80, "name": "http", "nodePort": 30080}
    data = patch(
        root, "Service", strategic("{spec: {ports: [{port: 80, protocol: TCP, name: w}]}}", "Service")
    )
    assert [port["name"] for port in data["spec"]["ports"]] == ["w", "dns"]


@pytest.mark.parametrize(
    ("change", "containers"),
    [
        ("[{$patch: replace}, {name: one, image: o}]", ["one"]),
        ("[{name: proxy, $patch: delete}]", ["main"]),
        ("[{name: absent, $patch: delete}]", ["main", "proxy"]),
    ],
)
def test_directives(root: Path, change: str, containers: list[str]) -> None:
    text = strategic(f"{{spec: {{template: {{spec: {{containers: {change}}}}}}}}}")
    assert [item["name"] for item in pod(patch(root, "Deployment", text))["containers"]] == containers
    spec = patch(root, "Deployment", strategic("{spec: {template: {metadata: {$patch: delete}}}}"))["spec"]
    assert "metadata" not in spec["template"]


def test_a_kind_without_schema_takes_names_or_the_key_that_is_named(root: Path) -> None:
    text = strategic("{spec: {parts: [{name: b, size: 2}], tags: [z]}}", "Widget")
    spec = patch(root, "Widget", text, component="w")["spec"]
    assert (spec["parts"], spec["tags"]) == ([{"name": "a", "size": 1}, {"name": "b", "size": 2}], ["z"])
    keyed = strategic("{spec: {slots: [{id: 1, size: 2}, {id: 2}]}}", "Widget")
    with pytest.raises(
        ConfigError, match="nothing says by which key items of the list are told apart"
    ) as caught:
        patch(root, "Widget", keyed, component="w")
    assert "mergeKeys: {spec.slots: KEY}" in str(caught.value.hint)
    spec = patch(root, "Widget", f"{keyed}mergeKeys: {{spec.slots: id}}\n", component="w")["spec"]
    assert spec["slots"] == [{"id": 1, "size": 2}, {"id": 2}]


def test_a_json_patch_does_what_its_operations_say(root: Path) -> None:
    operations = """[
      {op: test, path: /spec/replicas, value: 1},
      {op: replace, path: /spec/replicas, value: 2},
      {op: remove, path: /spec/template/spec/containers/1},
      {op: add, path: /metadata/annotations, value: {}},
      {op: add, path: /metadata/annotations/a~1b, value: c},
    ]"""
    text = f"target: {{kind: Deployment, name: web}}\ntype: json\npatch: {operations}\n"
    data = patch(root, "Deployment", text)
    assert (data["spec"]["replicas"], len(pod(data)["containers"])) == (2, 1)
    assert data["metadata"]["annotations"] == {"a/b": "c"}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "target: {kind: Deployment}\ntype: json\npatch: {a: b}\n",
            ConfigError,
            "must be a list of operations",
        ),
        ("target: {kind: Deployment}\npatch: []\n", ConfigError, "must be a part of an object"),
        ("target: {kind: Job}\npatch: {}\n", NotFoundError, "renders no `Job` to patch"),
        ("target: {kind: Deployment}\ntype: json\npatch: [1]\n", SchemaError, "`patch[0]` must be a map"),
        (
            "target: {kind: Deployment}\ntype: json\npatch: [{op: nope, path: /a}]\n",
            SchemaError,
            "`patch[0].op` must be one of",
        ),
        (strategic("{spec: {$deleteFromPrimitiveList/x: 5}}"), ConfigError, "must be a list of values"),
        ("target: {}\npatch: {}\n", SchemaError, "`target.kind` is required"),
        ("target: {kind: Deployment}\ntype: stratego\npatch: {}\n", SchemaError, "`strategic`"),
        ("patch: {}\n", ConfigError, "needs a `target`"),
        ("target: {kind: Service}\npatch: {metadata: {name: x}}\n", ConfigError, "another object"),
        (strategic("{spec: {$reorder: [a]}}"), ConfigError, "`$reorder` is not understood"),
        (strategic("{spec: {$retainKeys: [a], replicas: 1}}"), ConfigError, "not among `$retainKeys`"),
        (
            "target: {kind: Service}\ntype: json\npatch: [{op: test, path: /spec, value: 1}]\n",
            ConfigError,
            "does not fit `v1 Service web`: test /spec",
        ),
        (
            "target: {kind: Service}\npatch: {spec: {ports: [{port: 80, $patch: delete}]}}\n",
            ConfigError,
            "`spec.ports.0.$patch` is a directive of strategic patches",
        ),
        (
            "target: {kind: Service}\npatch: {$patch: delete}\n---\n"
            f"{HEAD}target: {{kind: Service}}\npatch: {{}}\n",
            NotFoundError,
            "`Service` is already deleted by environments/dev/patches/web.yaml:1",
        ),
        (
            strategic("{spec: {template: {spec: {containers: [{image: x}]}}}}"),
            ConfigError,
            "an item needs `name`",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(
    root: Path, text: str, error: type[MlstackError], message: str
) -> None:
    with pytest.raises(error) as caught:
        patch(root, "Deployment", text)
    assert message in caught.value.message
    assert "environments/dev/patches/web.yaml:" in f"{caught.value.where} {caught.value.message}"


def test_a_patch_has_what_it_writes_and_nothing_beside_it() -> None:
    places: dict[Any, str] = {("spec",): "p:3", ("spec", "a"): "p:4", ("spec", "new"): "p:5"}
    target = {"apiVersion": "a/v1", "kind": "K", "metadata": {"name": "k"}}
    patch = read_patch({**target, "spec": {"a": 1, "new": {"c": 2}}}, where="p:1", places=places)
    placed = patches.placed({**target, "spec": {"b": 3}}, {}, [patch], lambda _: (None, None))
    assert placed == {("spec", "a"): "p:4", ("spec", "new"): "p:5"}


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n$patch: delete\n",
        f"{HEAD}target: {{kind: Service}}\npatch: {{$patch: delete}}\n",
        HEAD + strategic("{$patch: delete}", "Service"),
    ],
    ids=["partial object", "merge", "strategic"],
)
def test_a_patch_deletes_a_whole_object_in_its_environment_alone(root: Path, text: str) -> None:
    write_tree(root, {"environments/dev/patches/web.yaml": text})
    write_tree(root, {"environments/prod/environment.yaml": ENVIRONMENT})
    kinds = {name: {obj.kind for obj in render.load(AppDir(root), name).objects} for name in ("dev", "prod")}
    assert kinds == {"dev": {"Deployment", "Widget"}, "prod": {"Deployment", "Service", "Widget"}}
