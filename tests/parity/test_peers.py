"""What people know from other deployers: packaging, versions, parameters, environments.

The ids are rows of the comparison with them: A1 to A12, B13 to B21, C22 to C35, D36 to D43, K114 to K118.
Those that another test covers, as one of a row of ks, are named in `ELSEWHERE`.
"""

import re
from pathlib import Path
from shutil import copytree

import pytest

from mlstack.kube.client import ObjectRef
from mlstack.yaml.write import to_yaml
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.deploying import deployment, existing
from tests.support.images import push_image
from tests.support.names import names_of_tests
from tests.support.oci import FakeRegistry, Reply

# Row -> the test that holds it, wherever it stands.
ELSEWHERE = {
    1: "test_a1_an_app_with_its_first_environment_renders_at_once",
    2: "test_p16_what_a_package_says_of_itself_is_shown",
    3: "test_r11_describe_lists_packages_with_version_and_summary",
    4: "test_r4_any_git_address_works_with_the_users_settings",
    5: "test_a_real_registry_holds_packages",
    6: "test_r2_a_relative_address_is_read_from_where_one_stands",
    8: "test_c7_generate_takes_parameters_as_options",
    9: "test_c4_preview_prints_the_objects_that_would_result",
    10: "test_a_package_is_published_added_and_installed",
    13: "test_p14_requirements_are_resolved_across_registries_and_locked",
    14: "test_p3_what_is_installed_is_locked_and_comes_again_byte_for_byte",
    17: "test_only_signed_packages_of_a_registry_come_in_where_that_is_asked",
    18: "test_an_artifact_has_the_same_digest_wherever_it_is_published",
    19: "test_p13_outdated_packages_are_listed_and_updated",
    20: "test_two_versions_are_compared",
    21: "test_an_app_for_another_mlstack_is_refused_before_anything_else",
    22: "test_m1_set_for_a_component",
    23: "test_c11_values_are_checked_by_the_type_of_their_parameter",
    25: "test_c9_all_missing_parameters_are_told_at_once",
    27: "test_c10_an_unknown_option_names_the_nearest_parameter",
    28: "test_c3_describe_shows_every_parameter_whole",
    29: "test_m15_one_level_lists_what_it_sets_itself",
    30: "test_m18_environments_are_compared",
    31: "test_m19_explain_tells_file_and_line_and_the_fields_it_reaches",
    34: "test_m21_no_secret_is_printed",
    35: "test_tab_offers_parameters_and_their_values",
    36: "test_e2_an_environment_holds_context_and_namespace_alone",
    37: "test_e5_environments_inherit",
    38: "test_e14_a_context_that_leads_elsewhere_is_refused",
    39: "test_apply_asks_one_question_and_goes_in_order",
    40: "test_parameters_images_replicas_and_gpus_stand_side_by_side",
    43: "test_expired_environments_are_deleted_from_their_clusters",
    114: "test_r5_a_chart_renders_as_helm_template_does",
    115: "test_c25_somebody_elses_kustomization_is_copied_and_pinned",
    118: "test_c25_import_of_a_ksonnet_app_says_what_is_equal",
}
# Rows without a test, each with what is missing.
MISSING: dict[int, str] = {}
RULES = """\
          if: {properties: {color: {const: green}}, required: [color]}
          then: {required: [token]}
          dependentRequired: {size: [debug]}
"""


def test_every_row_is_held_by_a_test_or_stands_as_missing() -> None:
    names = names_of_tests()
    here = {int(match[1]) for name in names if (match := re.match(r"test_peers_(\d+)_", name))}
    assert not set(ELSEWHERE.values()) - names
    assert sorted([*here, *ELSEWHERE, *MISSING]) == [*range(1, 44), *range(114, 119)]


def mine(run: Runner, folder: Path, old: str, new: str) -> None:
    """Install the package `tools` with another schema, from a registry `mine`, and make `back` of it."""
    copytree(folder / "registry", folder / "mine")
    path = folder / "mine/tools/web/prototype.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    run.ok("registry add mine ../mine")
    run.ok("pkg install mine/tools")
    run.ok("generate mine/tools/web back --image nginx")


@pytest.mark.slow
def test_peers_11_a_package_and_its_images_are_taken_to_where_nothing_else_is_reached(
    demo: Path, tmp_path: Path, run: Runner
) -> None:
    with FakeRegistry().running() as outside, FakeRegistry().running() as inside:
        digest = push_image(outside.host, "team/web", "1", "amd64", "arm64")
        mine(
            run,
            tmp_path,
            "image: {type: string, minLength: 1,",
            f"image: {{type: string, x-image: true, default: '{outside.host}/team/web:1',",
        )
        copied = run.ok(f"pkg copy mine/tools --to oci://{inside.host}/ml")
        image = f"{inside.host}/ml/{outside.host.replace(':', '-')}/team/web:1@{digest}"
        assert f"image {image}" in copied
        assert "is there already: " in run.ok(f"pkg copy mine/tools --to oci://{inside.host}/ml")
        outside.fault = lambda running, method, path, headers: Reply(status=500)
        run.ok(f"registry add here oci://{inside.host}/ml")
        run.ok("pkg install here/tools")
        run.ok("generate here/tools/web there")
        run.ok(f"images copy minikube -c there --to {inside.host}/ml")
        assert run.ok("images minikube -c there -o name").split() == [image]
        digests = {run(f"pkg describe {name}/tools -o json").json["digest"] for name in ("mine", "here")}
        assert len(digests) == 1


def test_peers_12_every_image_of_an_environment_is_listed_once(demo: Path, run: Runner) -> None:
    digest = "sha256:" + "0" * 64
    workload = deployment("shop", image=f"registry.example.org/shop@{digest}")
    first = {"name": "first", "image": "busybox:1"}
    workload["spec"]["template"]["spec"]["initContainers"] = [first]
    write_tree(demo, {"components/shop.yaml": to_yaml(workload)})
    write_tree(demo, {"components/again.yaml": to_yaml(deployment("again", image="busybox:1"))})
    write_tree(demo, {"environments/gke/patches/again.yaml": to_yaml(deployment("again", image="busybox:2"))})
    assert run.ok("images minikube -o name").split() == ["busybox:1", f"registry.example.org/shop@{digest}"]
    assert run.ok("images gke -c again -o name").split() == ["busybox:2"]
    busy, shop = run("images minikube -o json").json["images"]
    assert (busy["pinned"], shop["pinned"]) == (False, True)
    assert busy["usedBy"] == ["again: Deployment default/again", "shop: Deployment default/shop"]


def test_peers_16_a_package_is_installed_by_its_digest(demo: Path, run: Runner) -> None:
    run.ok("component rm front")
    run.ok("pkg rm ours/tools")
    digest = run("pkg describe ours/tools -o json").json["digest"]
    refused = run(f"pkg install ours/tools@sha256:{'0' * 64}")
    assert (refused.code, "has no version" in refused.err) == (4, True)
    run.ok(f"pkg install ours/tools@{digest}")
    assert "ours/tools@1.2.0" in (demo / "app.yaml").read_text()
    assert digest in (demo / "mlstack.lock").read_text()


@pytest.mark.parametrize("line", ["param set front repliccas 2", "render gke --set front.repliccas=2"])
def test_peers_24_an_unknown_parameter_is_an_error_wherever_it_stands(
    demo: Path, run: Runner, line: str
) -> None:
    refused = run(line)
    assert (refused.code, "did you mean `replicas`?" in refused.err) == (4, True), refused
    file = demo / "components/front.yaml"
    file.write_text(file.read_text().replace("params:\n", "params:\n  repliccas: 2\n"))
    refused = run("render gke")
    assert (refused.code, "components/front.yaml:5" in refused.err) == (3, True), refused


def test_peers_26_rules_across_parameters(demo: Path, tmp_path: Path, run: Runner) -> None:
    mine(run, tmp_path, "parameters:\n", f"parameters:\n{RULES.replace('          ', '  ')}")
    run.ok("render gke -c back")
    run.ok("param set back color green")
    refused = run("render gke -c back")
    assert (refused.code, "`token` is required" in refused.err) == (3, True), refused
    run.ok("param set back token abc")
    run.ok("render gke -c back")


def test_peers_32_maps_merge_and_lists_replace(demo: Path, run: Runner) -> None:
    run.ok("param set front tags '{a: 1x, b: 2x}'")
    run.ok("param set front args '[a, b]'")
    run.ok("param set --env gke front tags '{b: 3x}'")
    run.ok("param set --env gke front args '[c]'")
    values = {row["name"]: row["value"] for row in run("param list front --env gke -o json").json["rows"]}
    assert (values["tags"], values["args"]) == ({"a": "1x", "b": "3x"}, ["c"])


def test_peers_33_null_removes(demo: Path, run: Runner) -> None:
    run.ok("param set front tags '{a: 1x, b: 2x}'")
    run.ok("param set --env gke front tags.a null")
    run.ok("param set front replicas 3")
    run.ok("param set --env gke front replicas null")
    rows = {row["name"]: row["value"] for row in run("param list front --env gke -o json").json["rows"]}
    assert rows["tags"] == {"b": "2x"}
    assert rows.get("replicas") in (None, 1)


@pytest.mark.parametrize(
    "line", ["render gke", "validate gke", "prototype describe web", "pkg list --installed"]
)
def test_peers_7_a_clone_needs_no_registry(
    demo: Path, tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    expected = run.ok(line)
    copytree(demo, tmp_path / "elsewhere/demo")
    monkeypatch.chdir(tmp_path / "elsewhere/demo")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    assert run.ok(line) == expected


def test_peers_15_a_changed_byte_in_vendor_names_its_file(demo: Path, run: Runner) -> None:
    file = demo / "vendor/ours/tools@1.2.0/web/templates/page.yaml.j2"
    file.write_bytes(file.read_bytes().replace(b"color", b"colour"))
    refused = run("render gke")
    assert (refused.code, "web/templates/page.yaml.j2" in refused.err) == (5, True)


def test_peers_41_an_environment_has_a_version_of_kubernetes(demo: Path, run: Runner) -> None:
    run.ok("env set gke --kubernetes-version 1.34")
    assert run("validate gke -o json").json["kubernetesVersion"] == "1.34"
    assert run("env set gke --kubernetes-version 1.7").code == 2


def test_peers_42_an_environment_deploys_a_part_of_the_app(demo: Path, run: Runner) -> None:
    run.ok("generate web mod.back --image nginx")
    run.ok("env set gke --target mod")
    assert run.ok("render gke -o name") == "ConfigMap default/back\n"
    assert run.ok("render minikube -o name").count("ConfigMap") == 2


def test_peers_116_manifests_become_packages_with_parameters(demo: Path, tmp_path: Path, run: Runner) -> None:
    write_tree(tmp_path, {"shop.yaml": to_yaml(deployment("shop", image="nginx:1"))})
    run.ok("prototype new shop --from ../shop.yaml --package ../registry/shop")
    run.ok("registry index ../registry")
    run.ok("pkg install ours/shop")
    run.ok("generate shop store --image nginx:2 --replicas 3")
    (store,) = run("render gke -c store -o json").json["items"]
    container = store["spec"]["template"]["spec"]["containers"][0]
    assert (store["metadata"]["name"], store["spec"]["replicas"]) == ("store", 3)
    assert container["image"] == "nginx:2"


def test_peers_117_live_objects_are_taken_over_on_request_alone(demo: Path, run: Runner) -> None:
    """On a real cluster: tests/cluster/test_apply.py; fields in doubt: tests/unit/deploy/test_adopt.py."""
    metadata = {
        "name": "front",
        "namespace": "default",
        "labels": {"app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"meta.helm.sh/release-name": "old"},
    }
    live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"color": "blue"}}
    run.cluster("gke").create(live, manager="helm")
    left = run.ok("apply gke --yes")
    assert "applied by `helm` (Helm release `old`)" in " ".join(left.split())
    front = ObjectRef("v1", "ConfigMap", "default", "front")
    assert existing(run.cluster("gke"), front)["data"]["color"] == "blue"
    run.ok("apply gke --yes --adopt")
    taken = existing(run.cluster("gke"), front)
    assert (taken["data"]["color"], taken["metadata"].get("annotations")) == ("red", None)
