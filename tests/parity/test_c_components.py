"""Rows C: prototypes, `generate`, components and plain manifests."""

from pathlib import Path
from shutil import copytree

import pytest

from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner

OBJECT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {}}}\n"


@pytest.mark.parametrize(
    ("text", "names"),
    [(text, ["web"]) for text in ("web", "WEB", "settings", "'one PAGE'")] + [("nothing-like-it", [])],
)
def test_c2_search_finds_names_and_descriptions(demo: Path, run: Runner, text: str, names: list[str]) -> None:
    assert run.ok(f"prototype search {text} -o name").split() == names


def test_c3_describe_shows_every_parameter_whole(demo: Path, run: Runner) -> None:
    parameters = {row["name"]: row for row in run("prototype describe web -o json").json["parameters"]}
    assert parameters["image"]["required"]
    replicas = parameters["replicas"]
    assert (replicas["type"], replicas["default"], replicas["unit"]) == ("integer", 1, "pods")
    assert replicas["description"] == "How many run."
    assert "replicas: integer, default 1, unit pods" in run.ok("prototype describe web")


def test_c4_preview_prints_the_objects_that_would_result(demo: Path, run: Runner) -> None:
    before = read_tree(demo)
    text = run.ok("prototype preview web back --image nginx")
    assert ("kind: ConfigMap" in text, "name: back" in text, "image: nginx" in text) == (True, True, True)
    assert run("prototype preview web back --image nginx -o json").json["kind"] == "List"
    assert read_tree(demo) == before


def test_c5_a_short_name_is_enough_unless_several_fit(demo: Path, run: Runner) -> None:
    assert "web" in run.ok("prototype describe web -o name")
    run.ok("registry add twin ../registry")
    run.ok("pkg install twin/tools")
    refused = run("prototype describe web")
    assert refused.code == 4
    assert ("ours/tools/web" in refused.err, "twin/tools/web" in refused.err) == (True, True)


def test_c7_generate_takes_parameters_as_options(demo: Path, run: Runner) -> None:
    run.ok("generate web back --image=nginx --num-replicas 2 --set color=green --debug")
    text = (demo / "components/back.yaml").read_text()
    assert all(line in text for line in ("image: nginx", "replicas: 2", "color: green", "debug: true"))


def test_c8_generate_help_lists_the_parameters_of_the_prototype(demo: Path, run: Runner) -> None:
    assert "replicas: integer, default 1, unit pods" in run.ok("generate web --help")


def changed_package(run: Runner, folder: Path, file: str, old: str, new: str) -> None:
    """Install the package `tools` with another text in a file, from a registry `mine`."""
    copytree(folder / "registry", folder / "mine")
    path = folder / "mine/tools/web" / file
    path.write_text(path.read_text().replace(old, new))
    run.ok("registry add mine ../mine")
    run.ok("pkg install mine/tools")


def test_c9_all_missing_parameters_are_told_at_once(demo: Path, tmp_path: Path, run: Runner) -> None:
    changed_package(run, tmp_path, "prototype.yaml", "required: [image]", "required: [image, size, token]")
    refused = run("generate mine/tools/web back")
    assert (refused.code, "prototype `web` needs `image`, `token`, `size`" in refused.err) == (2, True)


def test_c10_an_unknown_option_names_the_nearest_parameter(demo: Path, run: Runner) -> None:
    refused = run("generate web back --image nginx --replica 2")
    assert (refused.code, "did you mean `replicas`?" in refused.err) == (4, True)
    assert not (demo / "components/back.yaml").exists()


def test_c13_the_name_of_the_component_is_that_of_its_objects(demo: Path, run: Runner) -> None:
    run.ok("generate web mycomp --image nginx")
    assert "name: mycomp" in run.ok("render minikube -c mycomp")


def test_c14_options_win_over_a_file_of_values(demo: Path, run: Runner) -> None:
    write_tree(demo, {"v.yaml": "image: caddy\nreplicas: 3\n", "odd.yaml": "image: caddy\n\nreplica: 3\n"})
    run.ok("generate web back --values-file v.yaml --replicas 4")
    text = (demo / "components/back.yaml").read_text()
    assert ("image: caddy" in text, "replicas: 4" in text) == (True, True)
    assert run("generate web other --values-file nowhere.yaml").code == 4
    unknown = run("generate web other --values-file odd.yaml")
    assert (unknown.code, "odd.yaml:3" in unknown.err) == (4, True)


def test_c15_defaults_are_not_frozen_into_the_app(demo: Path, run: Runner) -> None:
    lines = (demo / "components/front.yaml").read_text().splitlines()
    assert lines[2:] == ["prototype: ours/tools/web", "params:", "  image: nginx"]


def test_c16_an_existing_component_is_replaced_on_request_alone(demo: Path, run: Runner) -> None:
    before = read_tree(demo)
    refused = run("generate web front --image caddy")
    assert (refused.code, "--force" in refused.err, read_tree(demo)) == (2, True, before)
    run.ok("generate web front --image caddy --force")
    assert "image: caddy" in (demo / "components/front.yaml").read_text()


@pytest.mark.parametrize("suffix", ["yaml", "yml", "json"])
def test_c22_plain_manifests_are_deployed(demo: Path, run: Runner, suffix: str) -> None:
    text = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}}'
    write_tree(demo, {f"components/own.{suffix}": text})
    assert run.ok("render minikube -c own -o name").split() == ["ConfigMap", "default/own"]


def test_c23_every_document_and_item_of_a_list_is_deployed(demo: Path, run: Runner) -> None:
    items = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: d}}\n"
    texts = [OBJECT.format(name) for name in "abc"]
    write_tree(demo, {"components/many.yaml": "---\n".join([*texts, "\n", items])})
    names = run.ok("render minikube -c many -o name").splitlines()
    assert names == [f"ConfigMap default/{name}" for name in "abcd"]


def test_c24_a_patch_changes_a_manifest_and_globals_do_not(demo: Path, run: Runner) -> None:
    patch = OBJECT.format("own") + "data: {color: blue}\n"
    write_tree(
        demo,
        {
            "components/own.yaml": OBJECT.format("own") + "data: {color: red, list: a}\n",
            "environments/gke/patches/own.yaml": patch,
        },
    )
    run.ok("param set color green --env gke")
    assert "color: blue\n  list: a" in run.ok("render gke -c own")
    assert "color: red\n  list: a" in run.ok("render minikube -c own")
    refused = "`own` is a plain manifest, which has no parameters"
    run.play(f"render gke --set own.color=green | 2 | {refused} | patches/own.yaml")
    with (demo / "environments/gke/params.yaml").open("a") as file:
        file.write("components: {own: {color: green}}\n")
    run.play(f"render gke | 3 | {refused} (environments/gke/params.yaml:5)")


def test_c26_templates_know_the_environment(demo: Path, tmp_path: Path, run: Runner) -> None:
    text = '"{{ env.name }} {{ env.namespace }} {{ env.context }} {{ app.name }}"'
    changed_package(run, tmp_path, "templates/page.yaml.j2", "{{ params.image }}", text)
    run.ok("generate mine/tools/web back --image nginx")
    assert "image: gke default gke demo" in run.ok("render gke -c back")


def test_c11_values_are_checked_by_the_type_of_their_parameter(demo: Path, run: Runner) -> None:
    before = read_tree(demo)
    for words, error in {
        "--replicas many": '`replicas` must be an integer, got "many"',
        "--replicas 99": "`replicas` must be 0 to 9 pods, got 99",
        "--color blue": '`color` must be one of `red`, `green`, got "blue"',
        "--debug maybe": "`debug` must be true or false",
        "--tags [a]": "`tags` must be ",
    }.items():
        refused = run(f"generate web back --image x {words}")
        assert (refused.code, error in refused.err) == (2, True), refused.err
    assert read_tree(demo) == before
    run.ok("generate web back --image 5 --replicas 3 --debug false --args a,b --tags k=v")
    row = {param["name"]: param["value"] for param in run("param list back -o json").json["rows"]}
    assert (row["image"], row["replicas"], row["debug"]) == ("5", 3, False)
    assert (row["args"], row["tags"]) == (["a", "b"], {"k": "v"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["null", "yes", "012", "1e3", "", "'", '"', "{{ x }}", "a: b", "# c", "%d", "é\u2028", "x\ny\n"]
)
def test_c12_any_text_is_stored_safely(demo: Path, run: Runner, text: str) -> None:
    run.ok("param", "set", "--as-string", "front", "size", text)
    rows = {row["name"]: row["value"] for row in run("param list front -o json").json["rows"]}
    assert rows["size"] == text
    assert run("param", "set", "front", "size", "a\x07").code == 2
