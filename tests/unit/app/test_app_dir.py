"""An app directory is read as a whole, and what was read is known."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest

from mlstack.app import files
from mlstack.app.app import Component, Manifest
from mlstack.app.app_dir import AppDir
from mlstack.app.components import Overrides, parse_set
from mlstack.errors import ConfigError, MlstackError, NotFoundError, RegistryError, SchemaError
from mlstack.render import render
from tests.support.builders import Tree, write_tree
from tests.support.packages import COMMON, JOBS, built, installed_app, of_kind, own, vendored
from tests.support.registry import Passed

pytestmark = pytest.mark.slow

Build = Callable[[Tree], Path]
ENVIRONMENT, PARAMS = of_kind("Environment"), of_kind("EnvironmentParams")


def refused(call: Callable[[], object], kind: type[MlstackError]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return caught.value.describe()


# --- the app ---


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("kind: App\n", SchemaError, "`apiVersion` is required"),
        ("apiVersion: ksonnet.io/v1\nkind: App\n", SchemaError, "must be `mlstack.dev/v1`, got `ksonnet"),
        (
            of_kind("App", "name: 5\n"),
            SchemaError,
            "`name` must be a string, got 5: put it in quotes (app.yaml:3)",
        ),
        (of_kind("App", "name: x\nparam: {}\n"), SchemaError, "did you mean `params`?"),
        (of_kind("App", "name: x\npackages: [core]\n"), SchemaError, "(app.yaml:4)"),
    ],
)
def test_a_wrong_app_file_is_told_with_its_line(
    app: Build, text: str | bytes, kind: type[MlstackError], message: str
) -> None:
    assert message in refused(lambda: built(app, app=text).app, kind)


def test_a_folder_in_the_place_of_a_file_is_a_config_error(app: Build) -> None:
    read = built(app)
    (read.root / "mlstack.lock").unlink()
    (read.root / "mlstack.lock").mkdir()
    message = refused(lambda: read.lock, ConfigError)
    assert "a folder stands in the place of the file (mlstack.lock)" in message


@pytest.mark.parametrize("target", ["nothing", "itself"])
@pytest.mark.parametrize("name", ["params.yaml", "environment.yaml"])
def test_a_link_that_leads_nowhere_is_no_missing_file(app: Build, name: str, target: str) -> None:
    read = built(app)
    file = read.root / "environments" / "gke" / name
    file.unlink(missing_ok=True)
    file.symlink_to(name if target == "itself" else target)
    assert f"(environments/gke/{name})" in refused(lambda: read.environment("gke"), ConfigError)


# --- components ---


def test_components_are_prototypes_used_and_plain_manifests(app: Build) -> None:
    read = built(app, components__web="a: 1\n---\n---\nb: 2\n", components__ml__deep__job="b: 1\n")
    write_tree(
        read.root, {"components/list.json": "{}", "components/notes.txt": "", "components/.hidden.yaml": "a"}
    )
    kinds = {component.full_name: type(component) for component in read.components()}
    assert kinds == {"cnn": Component, "list": Manifest, "ml.deep.job": Manifest, "web": Manifest}
    assert read.modules == ("ml", "ml.deep")
    cnn, web = own(read), read.component("web")
    assert (cnn.name, cnn.prototype, cnn.file) == ("cnn", "kubeflow/jobs/tf-cnn", "components/cnn.yaml")
    assert cnn.params == {"image": "registry.example.org/cnn:1"}
    assert isinstance(web, Manifest)
    documents = [(document.value, document.content.line) for document in read.read_manifest(web)]
    assert documents == [({"a": 1}, 1), ({"b": 2}, 4)]


LABEL = "cannot be the name of a component"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("cnn.json", "`components/cnn.json` and `components/cnn.yaml` both stand for"),
        ("my file.yaml", LABEL),
        ("x" * 64 + ".yaml", LABEL),
        ("a.b/c.yaml", LABEL),
        ("a b/c.yaml", LABEL),
        ("-x.json", LABEL),
    ],
)
def test_a_file_that_cannot_be_a_component_is_refused(app: Build, file: str, message: str) -> None:
    read = built(app)
    write_tree(read.root, {f"components/{file}": "{}"})
    refusal = refused(read.components, ConfigError)
    assert message in refusal
    assert f"components/{file}" in refusal


# --- environments ---


def test_an_environment_inherits_what_it_does_not_say(app: Build) -> None:
    facts = "context: gke\nnamespace: ml\ntargets: [cnn]\nprotected: true\ncluster: {uid: u}\n"
    read = built(
        app,
        environments__gke__environment=ENVIRONMENT + facts,
        environments__canary__environment=ENVIRONMENT + "extends: gke\nnamespace: canary\n",
        environments__other__environment=ENVIRONMENT + "extends: gke\ncontext: elsewhere\nprotected: false\n",
    )
    canary, other = read.environment("canary"), read.environment("other")
    assert (canary.context, canary.namespace, canary.targets) == ("gke", "canary", ("cnn",))
    assert canary.protected
    assert canary.cluster is not None
    assert canary.cluster.uid == "u"
    assert (other.context, other.namespace, other.protected) == ("elsewhere", "ml", False)
    assert other.cluster is None


UNFIT = (
    '`kubernetesVersion` must match `^1\\.[0-9]{1,3}$`, got "v1.30.2" (environments/gke/environment.yaml:3)'
)


@pytest.mark.parametrize(
    ("changes", "name", "kind", "message"),
    [
        (
            {"a__environment": ENVIRONMENT + "extends: b\n", "b__environment": ENVIRONMENT + "extends: a\n"},
            "a",
            ConfigError,
            "in a circle: a → b → a (environments/b/environment.yaml)",
        ),
        (
            {"a__environment": ENVIRONMENT + "extends: gkee\n"},
            "a",
            NotFoundError,
            "no environment `gkee`, which `a` extends (environments/a/environment.yaml)",
        ),
        ({"gke__environment": ENVIRONMENT + 'kubernetesVersion: "v1.30.2"\n'}, "gke", SchemaError, UNFIT),
    ],
)
def test_an_environment_that_is_wrong_or_not_there_is_told_with_its_file(
    app: Build, changes: dict[str, str], name: str, kind: type[MlstackError], message: str
) -> None:
    read = built(app, **{f"environments__{file}": text for file, text in changes.items()})
    assert message in refused(lambda: read.environment(name), kind)


def test_patches_of_ancestors_come_first(app: Build) -> None:
    read = built(
        app,
        environments__child__environment=ENVIRONMENT + "extends: gke\n",
        environments__child__patches__cnn="kind: B\n---\nkind: C\n",
        environments__gke__patches__cnn="kind: A\n",
    )
    assert [patch.value["kind"] for patch in read.patches("child", "cnn")] == ["A", "B", "C"]
    assert str(read.patches("child", "cnn")[2].origin()) == "environments/child/patches/cnn.yaml:3"
    assert read.patches("gke", "other") == ()


# --- parameters ---


def test_the_whole_order_of_layers(app: Build) -> None:
    values = "globals: {args: [%s]}\ncomponents: {ml.deep.cnn: {args: [%s c]}}\n"
    read = built(
        app,
        app=of_kind("App", "name: demo\nparams: {args: [app]}\n"),
        components__ml__params=of_kind("ModuleParams", "params: {args: [ml]}\n"),
        components__ml__deep__params=of_kind("ModuleParams", "params: {args: [deep]}\n"),
        components__ml__deep__cnn=of_kind("Component", "prototype: tf-cnn\nparams: {args: [c]}\n"),
        environments__child__environment=ENVIRONMENT + "extends: gke\n",
        environments__child__params=PARAMS + values % ("child", "child"),
        environments__gke__params=PARAMS + values % ("parent", "parent"),
    )
    overrides = Overrides(sets=(parse_set("args=x,y"), parse_set("ml.deep.cnn.args=z")))
    chain = read.resolve(own(read, "ml.deep.cnn"), "child", overrides).chains["args"]
    assert [(setting.layer, setting.value, setting.target) for setting in chain] == [
        ("app", ["app"], ""),
        ("module", ["ml"], "--module=ml"),
        ("module", ["deep"], "--module=ml.deep"),
        ("component", ["c"], "ml.deep.cnn"),
        ("environment globals", ["parent"], "--env=gke"),
        ("environment globals", ["child"], "--env=child"),
        ("environment", ["parent c"], "--env=gke ml.deep.cnn"),
        ("environment", ["child c"], "--env=child ml.deep.cnn"),
        ("command line", ["x", "y"], ""),
        ("command line", ["z"], ""),
    ]
    assert str(chain[4].origin) == "environments/gke/params.yaml:3"


MISSPELT = PARAMS + "globals:\n  clout: gke\n  model_path: x\n"
NOTE = "no installed prototype declares `clout` (environments/gke/params.yaml:4); did you mean `cloud`?"


def test_a_global_that_no_installed_prototype_declares_is_noted(app: Build) -> None:
    read = built(app, environments__gke__params=MISSPELT)
    assert read.undeclared_globals("gke", read.components()) == (NOTE,)
    assert read.undeclared_globals(None, read.components()) == ()
    # Once the names are known, no package is read for them; without it, none fails anything for a remark.
    passed = Passed()
    assert AppDir(read.root, store=passed).undeclared_globals("gke", ()) == (NOTE,)
    (read.root / "vendor").rename(read.root / "gone")
    assert AppDir(read.root, store=passed).undeclared_globals("gke", ()) == (NOTE,)
    assert AppDir(read.root).undeclared_globals("gke", ()) == ()


def test_globals_of_the_app_and_of_modules_are_looked_at_too(app: Build) -> None:
    read = built(
        app,
        app=of_kind("App", "name: demo\nparams: {num_gpu: 2}\n"),
        components__in__params=of_kind("ModuleParams", "params: {clouds: gke}\n"),
        components__in__deep__web="apiVersion: v1\nkind: ConfigMap\n",
    )
    notes = read.undeclared_globals(None, read.components())
    places = [note.partition(" (")[2].partition(")")[0] for note in notes]
    assert places == ["app.yaml:4", "components/in/params.yaml:3"]
    assert len(read.undeclared_globals(None, [own(read)])) == 1


PRESET = (files.folder("environments") / "minikube" / "params.yaml").read_text("utf-8")
"""Has `notebookStorage`, which no prototype here declares."""


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("notebookStorage: 2Gi", []),
        ("notebookStorage: 3Gi", ["notebookStorage"]),
        ("notebookStore: 2Gi", ["notebookStore"]),
    ],
    ids=["as the preset", "another value", "another name"],
)
def test_what_differs_from_a_preset_is_noted(app: Build, line: str, names: list[str]) -> None:
    read = built(app, environments__gke__params=PRESET.replace("notebookStorage: 2Gi", line))
    notes = [note.partition(")")[0] for note in read.undeclared_globals("gke", read.components())]
    place = "(environments/gke/params.yaml:8"
    assert notes == [f"no installed prototype declares `{name}` {place}" for name in names]


ALIASED = of_kind("Component", "prototype: kubeflow/jobs/gpu-cnn\n")


def test_what_an_alias_sets_lies_just_above_the_defaults(app: Build) -> None:
    read = built(app, components__cnn=ALIASED)
    resolved = read.resolve(own(read))
    assert resolved.values["num_gpus"] == 1
    assert [(step.layer, step.value, str(step.origin)) for step in resolved.chains["num_gpus"]] == [
        ("default", 0, "prototype kubeflow/jobs/tf-cnn"),
        ("default", 1, "prototype kubeflow/jobs/tf-cnn as gpu-cnn"),
    ]
    assert resolved.notes == ("`gpu-cnn` is prototype `tf-cnn` with `num_gpus: 1` (components/cnn.yaml)",)
    other = built(app, components__cnn=ALIASED, app=of_kind("App", "name: demo\nparams: {num_gpus: 2}\n"))
    assert other.resolve(own(other)).values["num_gpus"] == 2
    old = built(app, components__cnn=of_kind("Component", "prototype: kubeflow/jobs/old-cnn\n"))
    assert old.resolve(own(old)).notes == ("`old-cnn` is prototype `tf-cnn` (components/cnn.yaml)",)


# --- prototypes ---


@pytest.mark.parametrize(
    "name",
    [
        "kubeflow/jobs/tf-cnn",
        "kubeflow/jobs@0.1.0/tf-cnn",
        "jobs/tf-cnn",
        "tf-cnn",
        "cnn",
        "old-cnn",
        "gpu-cnn",
        "kubeflow/jobs/old-cnn",
        "io.ksonnet.pkg.tf-cnn",
    ],
)
def test_a_prototype_is_found_by_any_of_its_names(app: Build, name: str) -> None:
    assert built(app).prototype(name).full_name == "kubeflow/jobs/tf-cnn"


def jobs(file: str, old: str, new: str) -> Tree:
    return {**JOBS, file: str(JOBS[file]).replace(old, new)}


def test_an_alias_that_sets_parameters_goes_by_its_whole_name(app: Build) -> None:
    root = app({**installed_app(), **vendored(COMMON, jobs("tf-cnn/prototype.yaml", "gpu-cnn", "gpu-fast"))})
    assert AppDir(root).prototype("gpu-fast").name == "tf-cnn"
    with pytest.raises(NotFoundError):
        AppDir(root).prototype("fast")


def test_the_newest_installed_version_is_meant_unless_one_is_named(app: Build) -> None:
    newer = jobs("package.yaml", "0.1.0", "0.10.0")
    read = AppDir(app({**installed_app(), **vendored(COMMON, newer, JOBS)}))
    names = ("tf-cnn", "kubeflow/jobs/tf-cnn", "kubeflow/jobs@0.1.0/tf-cnn")
    assert [read.prototype(name).version for name in names] == ["0.10.0", "0.10.0", "0.1.0"]


def test_a_vendored_package_that_is_missing_is_refused(app: Build) -> None:
    read = built(app)
    rmtree(read.root / "vendor/kubeflow/common@0.1.0")
    message = refused(lambda: read.prototype("tf-cnn"), RegistryError)
    assert "package `kubeflow/common@0.1.0` is missing from vendor/" in message


def test_reading_imports_no_library_but_the_yaml_reader(app: Build) -> None:
    root = app(installed_app())
    code = f"""
import sys
from pathlib import Path
from mlstack.app import files as bundled
from mlstack.app.app_dir import AppDir
from mlstack.disk_cache import Cache
from mlstack.app.schema import check_params
app = AppDir.find(Path({str(root)!r}), store=Cache(Path({str(root / "cache")!r})))
component = app.component("cnn")
check_params(app.prototype_of(component), app.resolve(component, "gke"), passed=app.store)
heavy = ("jsonschema_rs", "jinja2", "ruamel", "kubernetes", "typer", "subprocess")
print([name for name in heavy if name in sys.modules])
"""
    for expected in ("['jsonschema_rs']", "[]"):
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout.strip() == expected


# --- what a render was made from ---

SETTINGS = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
FILES = {"components/one.yaml": SETTINGS, "environments/gke/environment.yaml": ENVIRONMENT + "context: gke\n"}


def digests(root: Path, **options: object) -> dict[str, str]:
    app = AppDir.find(root)
    render.load(app, "gke", **options)  # type: ignore[arg-type]
    return app.files.inputs()


def test_every_file_that_was_read_counts_and_no_other(app: Callable[[Tree], Path]) -> None:
    root = app({**FILES, "components/two.yaml": SETTINGS.replace("settings", "two")})
    before = digests(root)
    assert {"app.yaml", "components/two.yaml", "environments/gke/environment.yaml"} <= before.keys()
    assert before["environments/gke/params.yaml"] == ""
    assert "components/two.yaml" not in digests(root, components=["one"])
    (root / "environments/gke/params.yaml").write_text(PARAMS)
    after = digests(root)
    assert {name for name in after if after[name] != before.get(name)} == {"environments/gke/params.yaml"}


def test_the_bound_cluster_is_no_input(app: Callable[[Tree], Path]) -> None:
    root = app(FILES)
    before, file = digests(root), root / "environments/gke/environment.yaml"
    file.write_text(ENVIRONMENT + "context: gke\ncluster: {uid: abc}\n")
    assert digests(root) == before
    file.write_text(ENVIRONMENT + "context: gke\nnamespace: other\n")
    assert digests(root) != before
