"""A prototype begun: from nothing, and from manifests whose objects it must render."""

from pathlib import Path

import pytest

from mlstack.operations import authors
from mlstack.operations.components import new_prototype
from tests.support.builders import read_tree
from tests.support.cli import Runner

MANIFEST = """\
# The shop.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop   # what people see
  namespace: store
  labels: {app: shop, tier: "front"}
spec:
  replicas: 3
  selector:
    matchLabels: {app: shop}
  template:
    metadata:
      labels: {app: shop}
    spec:
      serviceAccountName: shop-sa
      initContainers:
      - {name: init, image: 'shop:1'}
      containers:
      - name: shop
        image: "shop:1"
        args: ["{{ not ours }}", "{% raw %}", "{#"]
        env: [{name: SHOP, value: shop}]
      - name: log-sidecar
        image: logger:2
---
---
apiVersion: v1
kind: ConfigMap
metadata: {name: shop-settings, namespace: store}
data:
  name: shop
  text: |
    {{ x }}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.yaml").write_text(MANIFEST)
    return tmp_path


def test_a_prototype_from_nothing_is_sound(here: Path) -> None:
    result = new_prototype("web")
    assert (result.package, result.new_package, result.parameters) == (
        "web",
        True,
        ("name", "replicas", "image"),
    )
    assert result.objects == ("Deployment web", "Service web")
    assert [fault.message for fault in authors.lint_registry(here / "web").faults] == [
        "the package names no `license`"
    ]


def test_a_manifest_keeps_its_text_and_offers_its_literals(here: Path) -> None:
    result = new_prototype("shop", source="shop.yaml")
    assert result.parameters == ("name", "replicas", "image", "logSidecarImage")
    text = (here / "shop/shop/templates/shop.yaml.j2").read_text()
    for line in (
        "# The shop.",
        "  name: {{ name }}   # what people see",
        "  namespace: {{ namespace }}",
        '  labels: {app: {{ name }}, tier: "front"}',
        "  replicas: {{ params.replicas }}",
        "      - name: shop",
        "      - {name: init, image: {{ params.image }}}",
        "        image: {{ params.image }}",
        "        image: {{ params.logSidecarImage }}",
        "        env: [{name: SHOP, value: shop}]",
        'metadata: {name: {{ name ~ "-settings" }}, namespace: {{ namespace }}}',
        "  name: shop",
    ):
        assert line in text.splitlines()


def test_a_prototype_goes_into_the_package_one_stands_in(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_prototype("shop", source="shop.yaml")
    monkeypatch.chdir(here / "shop")
    before = (here / "shop/package.yaml").read_bytes()
    result = new_prototype("web")
    assert (result.new_package, result.files[0]) == (False, "web/prototype.yaml")
    assert (here / "shop/package.yaml").read_bytes() == before


def test_a_folder_of_manifests_becomes_a_template_each(here: Path) -> None:
    first, _, second = MANIFEST.partition("---\n---\n")
    (here / "manifests/parts").mkdir(parents=True)
    (here / "manifests/shop.yaml").write_text(first)
    (here / "manifests/parts/settings.yaml").write_text(second)
    new_prototype("shop", source="manifests")
    names = sorted(file.name for file in (here / "shop/shop/templates").iterdir())
    assert names == ["parts-settings.yaml.j2", "shop.yaml.j2"]


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("prototype new shop", 2, "there is `shop/shop` already"),
        ("prototype new other --package taken", 2, "is no package, and not empty"),
        ("prototype new 'a b'", 2, "`a b`"),
        ("prototype new other --from nowhere.yaml", 4, "no file or folder `nowhere.yaml`"),
        ("prototype new other --from odd.yaml", 3, "no Kubernetes object"),
        ("prototype new other --from empty.yaml", 3, "no Kubernetes object"),
    ],
)
def test_what_cannot_be_begun_writes_nothing(
    here: Path, run: Runner, line: str, code: int, message: str
) -> None:
    new_prototype("shop")
    (here / "taken").mkdir()
    (here / "taken/file").write_text("mine")
    (here / "odd.yaml").write_text("x: 1\n")
    (here / "empty.yaml").write_text("# nothing\n")
    before = read_tree(here)
    ran = run(line)
    assert (ran.code, message in ran.err) == (code, True), ran.err
    assert read_tree(here) == before


def test_the_command_names_files_and_the_next_step(here: Path, run: Runner) -> None:
    ran = run("prototype new shop --from shop.yaml")
    assert ran.code == 0
    assert "wrote shop/shop/templates/shop.yaml.j2" in ran.out
    assert "next: mlstack pkg test shop" in ran.err
    assert run("pkg test shop").code == 0


def test_the_items_of_a_list_are_offered_too(here: Path) -> None:
    manifest, _, _ = MANIFEST.partition("---")
    items = "".join(f"  {line}" for line in manifest.splitlines(keepends=True)[1:]).replace(
        "  apiV", "- apiV", 1
    )
    (here / "list.yaml").write_text(f"apiVersion: v1\nkind: List\nitems:\n{items}")
    result = new_prototype("shop", source="list.yaml")
    assert result.parameters == ("name", "replicas", "image", "logSidecarImage")
    assert result.objects == ("Deployment shop",)
