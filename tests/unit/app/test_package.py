"""Package folders are read apart: prototypes with blocks and references inlined, digests over content."""

from pathlib import Path, PurePosixPath
from textwrap import dedent

import pytest

from mlstack.app.package import PackageFolder, digest
from mlstack.app.prototype import Package
from mlstack.disk_cache import NO_STORE, ByteStore
from mlstack.errors import ConfigError, SchemaError
from tests.support.builders import MemoryCache, Tree, write_tree
from tests.support.packages import COMMON, JOBS, as_files

BLOCK = "apiVersion: mlstack.dev/v1\nkind: ParameterBlock\n"
DEFINITIONS = "apiVersion: mlstack.dev/v1\nkind: Definitions\n"


def read(tree: Tree = JOBS) -> Package:
    common = PackageFolder(as_files(COMMON), source="vendor/common", registry="kubeflow")
    return PackageFolder(as_files(tree), source="vendor/jobs", registry="kubeflow").package(
        {"common": common}
    )


def with_parameters(text: str) -> Tree:
    head = "apiVersion: mlstack.dev/v1\nkind: Prototype\nname: tf-cnn\nsummary: s\n"
    return {**JOBS, "tf-cnn/prototype.yaml": head + dedent(text)}


def test_a_package_tells_what_it_is() -> None:
    package = read()
    assert (package.name, package.version, package.requires) == ("jobs", "0.1.0", {"common": {}})
    assert list(package.prototypes) == ["tf-cnn", "tf-serving"]
    assert package.digest == digest(as_files(JOBS))


def test_a_prototype_knows_its_parameters() -> None:
    cnn = read().prototypes["tf-cnn"]
    assert cnn.full_name == "kubeflow/jobs/tf-cnn"
    assert list(cnn.params) == ["image", "num_workers", "num_gpus", "token", "cloud", "args", "labels"]
    assert cnn.params["image"].required
    assert cnn.params["token"].secret
    assert cnn.params["num_workers"].aliases == ("numWorkers",)
    assert cnn.schema["additionalProperties"] is False


def test_a_prototype_has_other_names_and_some_of_them_set_parameters() -> None:
    cnn = read().prototypes["tf-cnn"]
    assert cnn.aliases == ("old-cnn", "gpu-cnn")
    assert cnn.alias_params == {"gpu-cnn": {"num_gpus": 1}}


def test_a_reference_is_inlined_with_the_words_beside_it_on_top() -> None:
    gpus = read().prototypes["tf-cnn"].params["num_gpus"]
    assert (gpus.schema["type"], gpus.schema["minimum"], gpus.schema["maximum"]) == ("integer", 0, 64)
    assert (gpus.default, gpus.unit, gpus.aliases) == (0, "GPUs", ("numGpus",))
    assert "$ref" not in gpus.schema


def test_a_blocks_parameter_takes_the_prototypes_own_words_on_top() -> None:
    cloud = read().prototypes["tf-cnn"].params["cloud"]
    assert (cloud.default, cloud.schema["enum"]) == ("minikube", ["", "minikube", "gke"])
    assert cloud.value_aliases == {"gcp": "gke"}


def test_conditions_of_blocks_join_the_prototypes_own() -> None:
    block = f"{BLOCK}properties: {{cloud: {{}}, labels: {{}}}}\nallOf: [{{required: [cloud]}}]\n"
    common = PackageFolder(as_files({**COMMON, "blocks/meta.yaml": block}), source="common")
    tree = with_parameters("blocks: [common/meta]\nparameters: {allOf: [{required: [labels]}]}\n")
    schema = PackageFolder(as_files(tree), source="jobs").prototype("tf-cnn", {"common": common}).schema
    assert schema["allOf"] == [{"required": ["labels"]}, {"required": ["cloud"]}]


def test_templates_files_and_examples_are_texts_by_name() -> None:
    cnn = read().prototypes["tf-cnn"]
    assert list(cnn.templates) == ["job.yaml.j2", "common/_meta.j2"]
    assert cnn.sources["job.yaml.j2"] == "vendor/jobs/tf-cnn/templates/job.yaml.j2"
    assert cnn.files == {"launcher.py": "print('hello')\n"}
    assert cnn.examples["one"].params == {"image": "a"}


def test_custom_resource_definitions_are_found_in_folders_called_crds() -> None:
    tree = {**JOBS, "crds/a.yaml": "a", "tf-cnn/files/crds/b.yaml": "b", "tf-cnn/files/c.yaml": "c"}
    assert read(tree).crds == {"vendor/jobs/crds/a.yaml": "a", "vendor/jobs/tf-cnn/files/crds/b.yaml": "b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("parameters: {properties: {a: {$ref: common#/nothing}}}", "refer to `common#/nothing`"),
        ("parameters: {properties: {a: {$ref: other#/x}}}", "refer to `other#/x`"),
        ("parameters: {properties: {a: {$ref: '#/x'}}}", "refer to `#/x`"),
        ("parameters: {}\nblocks: [common/nothing]", "`common` has no such block"),
        ("parameters: {}\nblocks: [other/meta]", "does not require `other`"),
        ("parameters: {required: [a]}", "require `a`, which is not declared"),
        ("parameters: {properties: {a: {}, b: {aliases: [a]}}}", "the name `a` for both `a` and `b`"),
        ("parameters: {}\naliases: [{name: a, params: {b: 1}}]", "set `b` for `a`, which is not declared"),
        ("parameters: {}\naliases: [{nmae: a}]", "`aliases[0].name` is required"),
        ("parameters: {}\naliases: a", "`aliases` must be a list, got"),
        ("parameters: []", "`parameters` must be a map, got a list"),
        ("parameterz: {}", "`parameterz` is"),
    ],
)
def test_a_wrong_prototype_is_refused_with_its_file(text: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        read(with_parameters(text))
    assert message in caught.value.describe()
    assert "vendor/jobs/tf-cnn/prototype.yaml" in caught.value.describe()


@pytest.mark.parametrize(
    ("schema", "message", "line"),
    [
        ("{type: integr}", '`parameters.properties.a.type` cannot be "integr"', 8),
        ('{type: string, pattern: "("}', '`parameters.properties.a.pattern` cannot be "("', 8),
        ("[1]", "`parameters.properties.a` must be a map", 8),
    ],
)
def test_parameters_that_are_no_json_schema_are_refused(schema: str, message: str, line: int) -> None:
    with pytest.raises(SchemaError) as caught:
        read(with_parameters(f"parameters:\n  type: object\n  properties:\n    a: {schema}\n"))
    assert message in caught.value.describe()
    assert f"vendor/jobs/tf-cnn/prototype.yaml:{line}" in caught.value.describe()


def test_references_in_a_circle_are_refused() -> None:
    text = f"{DEFINITIONS}definitions: {{a: {{$ref: common#/b}}, b: {{$ref: common#/a}}}}\n"
    folder = PackageFolder(as_files({**COMMON, "definitions.yaml": text}), source="c")
    tree = with_parameters("parameters: {properties: {a: {$ref: common#/a}}}")
    with pytest.raises(SchemaError, match="in a circle: common#/a → common#/b → common#/a"):
        PackageFolder(as_files(tree), source="j").prototype("tf-cnn", {"common": folder})


def test_the_folder_names_the_prototype() -> None:
    tree = {**JOBS, "other/prototype.yaml": JOBS["tf-cnn/prototype.yaml"]}
    with pytest.raises(SchemaError, match="`name` must be `other`"):
        read(tree)


def test_a_package_without_package_yaml_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"needs the file `package\.yaml`"):
        _ = PackageFolder({}, source="vendor/x").head


def test_the_digest_counts_paths_and_bytes_and_no_order() -> None:
    files = {PurePosixPath("a"): b"1", PurePosixPath("b"): b"2"}
    assert digest(files) == digest(dict(reversed(files.items())))
    others = [
        {"a": b"2", "b": b"1"},
        {"a": b"12", "b": b""},
        {"a": b"1"},
        {"a": b"1", "c": b"2"},
        {"a/b": b"1"},
    ]
    digests = {digest({PurePosixPath(k): v for k, v in other.items()}) for other in others}
    assert len(digests | {digest(files)}) == 6


def test_folder_and_files_give_the_same_digest(tmp_path: Path) -> None:
    write_tree(tmp_path, {**JOBS, ".DS_Store": "x", "tf-cnn/__pycache__/a.pyc": "x"})
    assert PackageFolder.read(tmp_path).digest == digest(as_files(JOBS))


def test_a_link_inside_is_followed_and_one_that_leaves_is_refused(tmp_path: Path) -> None:
    package = write_tree(tmp_path / "p", {"a.txt": "text"})
    (package / "inside.txt").symlink_to("a.txt")
    assert PackageFolder.read(package).files[PurePosixPath("inside.txt")] == b"text"
    write_tree(tmp_path, {"secret": "s"})
    (package / "outside.txt").symlink_to("../secret")
    with pytest.raises(ConfigError, match=r"`outside\.txt` is a link that leaves the folder"):
        PackageFolder.read(package)


@pytest.mark.parametrize("target", ["..", "nowhere"])
def test_links_to_folders_and_to_nothing_are_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(ConfigError, match="`link` is a link, and not to a file"):
        PackageFolder.read(tmp_path)


def stored(store: ByteStore, tree: Tree = JOBS, common: Tree = COMMON) -> Package:
    library = PackageFolder(as_files(common), source="vendor/common", registry="kubeflow", passed=store)
    folder = PackageFolder(as_files(tree), source="vendor/jobs", registry="kubeflow", passed=store)
    return folder.package({"common": library})


def test_what_a_store_remembers_is_what_the_files_say() -> None:
    store = MemoryCache()
    assert stored(store) == stored(store) == stored(NO_STORE)


def test_other_files_are_read_anew_whatever_a_store_remembers() -> None:
    store = MemoryCache()
    stored(store)
    common = {**COMMON, "definitions.yaml": str(COMMON["definitions.yaml"]).replace("64", "8")}
    gpus = stored(store, common=common).prototypes["tf-cnn"].params["num_gpus"]
    assert gpus.schema["maximum"] == 8
    jobs = {
        **JOBS,
        "tf-cnn/prototype.yaml": str(JOBS["tf-cnn/prototype.yaml"]).replace("A benchmark", "Other"),
    }
    assert stored(store, jobs).prototypes["tf-cnn"].summary == "Other"


def test_the_values_of_a_chart_are_read_once_for_each_content(monkeypatch: pytest.MonkeyPatch) -> None:
    chart = as_files({"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "values.yaml": "a: 1\n"})
    passed = MemoryCache()
    first = PackageFolder(chart, source="web", passed=passed).prototype("web", {})
    monkeypatch.delattr("mlstack.app.chart.read_prototype")
    assert PackageFolder(chart, source="web", passed=passed).prototype("web", {}) == first
