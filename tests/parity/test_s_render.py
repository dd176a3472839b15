"""Rows S: `render` and `validate`, which need no cluster."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.errors import InvalidError
from mlstack.yaml.write import to_yaml
from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.deploying import crd

PACKAGES = ["ours/base@1.0.0", "ours/tools@1.2.0"]
FRONT, BACK = (f"{name}/configmap_default_{name}.yaml" for name in ("front", "back"))
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selecter: {matchLabels: {app: shop}}
  replicas: many
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: main, image: nginx, prots: []}]}
"""


def test_s1_render_prints_every_object(demo: Path, run: Runner) -> None:
    run.ok("generate web back --image caddy --token t")
    documents = list(yaml.safe_load_all(run.ok("render gke")))
    listed = run("show gke -o json").json
    assert (listed["kind"], listed["items"]) == ("List", documents)
    names = {f"{obj['kind']} {obj['metadata']['name']}" for obj in documents}
    assert names == {"Secret back", "ConfigMap back", "ConfigMap front"}


def test_s2_the_same_files_give_the_same_bytes_in_the_order_of_apply(
    demo: Path, run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.ok("generate web back --image caddy --token t")
    here, order = run.ok("render gke"), run.ok("render gke -o name").split("\n")
    applied = [row["object"] for row in run("apply gke -o json").json["objects"]]
    assert [name for name in order if name] == applied
    shutil.copytree(demo, tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert run.ok("render gke") == here


def test_s3_components_may_be_named_and_an_unknown_one_is_an_error(demo: Path, run: Runner) -> None:
    for name in ("a", "b"):
        run.ok(f"generate web {name} --image nginx")
    for line in ("render gke -c a,b -o name", "render gke -c a -c b -o name"):
        assert run.ok(line).splitlines() == ["ConfigMap default/a", "ConfigMap default/b"]
    assert run("render gke -c a,nope").code == 4


def test_s4_only_what_was_asked_for_is_rendered(demo: Path, run: Runner) -> None:
    write_tree(demo, {"components/broken.yaml": "kind: [\n"})
    assert run.ok("render gke -c front -o name") == "ConfigMap default/front\n"
    assert run("render gke").code == 3


def test_s5_the_namespace_stands_in_every_object(demo: Path, run: Runner) -> None:
    run.ok("env set gke -n ml")
    run.ok("generate web back --image caddy --token t")
    assert {obj["metadata"]["namespace"] for obj in run("render gke -o json").json["items"]} == {"ml"}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n---\n"])
def test_s1_a_manifest_without_objects_is_told(demo: Path, run: Runner, text: str) -> None:
    (demo / "components/cut.yaml").write_text(text)
    note = "note: component `cut` brings nothing: its file holds no objects (components/cut.yaml)\n"
    for line in ("render gke", "render gke", "validate gke"):
        ran = run(line)
        assert (ran.code, ran.err) == (0, note)


def test_s6_render_and_validate_need_no_cluster(demo: Path, run: Runner) -> None:
    run.contexts = {}
    run.ok("render gke")
    run.ok("validate gke")
    assert run.clusters == {}


def test_s7_a_folder_holds_a_file_an_object_with_an_index_and_can_be_checked(demo: Path, run: Runner) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    run.play("""
        render --all | 2 | --out DIR
        render gke --check | 2 | --out DIR
        render --all --out out --check | 1 | missing  out/gke/front/configmap_default_front.yaml
        render --all --out out
        render --all --out out --check | 0 | out/minikube is up to date
    """)
    written = read_tree(demo / "out")
    index = yaml.safe_load(written["gke/mlstack.gke.index"])
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
    assert (index["commit"], index["dirty"], [*index["packages"]]) == (commit, False, PACKAGES)
    source = "vendor/ours/tools@1.2.0/web/templates/page.yaml.j2"
    assert index["files"] == {FRONT: {"object": "ConfigMap default/front", "source": source}}
    run.ok("param set front color green --env gke")
    changed = f"changed  out/gke/{FRONT}\nchanged  out/gke/mlstack.gke.index\n"
    assert run("render --all --out out --check").out == changed
    assert read_tree(demo / "out") == written
    run.play("generate web back --image caddy\nrender gke -c back --out out/gke")
    assert yaml.safe_load(read_tree(demo / "out")["gke/mlstack.gke.index"])["files"].keys() == {FRONT, BACK}
    run.play("component rm back\nrender gke --out out/gke | 0 | removed what is gone")
    assert read_tree(demo / "out").keys() == written.keys()


def test_s9_unknown_fields_are_reported_with_line_and_nearest_name(demo: Path, run: Runner) -> None:
    write_tree(demo, {"components/shop.yaml": DEPLOYMENT})
    faults = run("validate gke")
    assert "unknown field `selecter`, did you mean `selector`?" in " ".join(faults.out.split())
    assert "components/shop.yaml:5" in faults.out


def test_s10_all_faults_are_listed(demo: Path, run: Runner) -> None:
    write_tree(demo, {"components/shop.yaml": DEPLOYMENT})
    faults = run("validate gke")
    assert faults.code == 1
    assert all(word in faults.out for word in ("selecter", "replicas", "prots"))


@pytest.mark.parametrize("verb", ["render", "images", "status", "validate", "apply", "delete", "diff"])
def test_s11_a_word_too_many_is_an_error(demo: Path, run: Runner, verb: str) -> None:
    refused = run(f"{verb} gke more")  # where several environments may be named, it is one that there is not
    assert (refused.code, refused.out, run.clusters) == (4 if "`more`" in refused.err else 2, "", {})


def test_s8_validate_asks_the_server_and_its_definitions_on_request(
    demo: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real cluster: tests/cluster/test_validation_agrees.py."""
    widget = {"apiVersion": "a.example.org/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
    write_tree(demo, {"components/widget.yaml": to_yaml(widget)})
    offline = run("validate gke")
    assert (offline.code, "Widget" in offline.out, run.clusters) == (1, True, {})
    run.cluster("gke").create(crd(group="a.example.org"))
    before = read_tree(demo)
    run.ok("validate gke --server")
    apply = run.cluster("gke").apply

    def refusing(obj: Mapping[str, Any], **options: Any) -> object:
        if obj["kind"] == "Widget":
            raise InvalidError("`Widget default/w` is refused: too odd")
        return apply(obj, **options)

    monkeypatch.setattr(run.cluster("gke"), "apply", refusing)
    refused = run("validate gke --server -o json")
    assert (refused.code, [fault["component"] for fault in refused.json["faults"]]) == (1, ["widget"])
    assert "too odd" in refused.json["faults"][0]["message"]
    assert {path for path, text in read_tree(demo).items() if before.get(path) != text} <= {".mlstack/lock"}
