"""An app directory is read as a whole, and what was read is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.app import files, reader
from mlstack.app.app import Component, Manifest, PackageRef
from mlstack.app.app_dir import AppDir
from mlstack.app.params import Overrides, parse_set
from mlstack.errors import (
    ConfigError,
    MlstackError,
    NotFoundError,
    ParamError,
    RegistryError,
    SchemaError,
    YamlError,
)
from mlstack.render import render
from tests.support.builders import Tree, write_tree
from tests.support.packages import COMMON, JOBS, installed_app, vendored
from tests.support.registry import Passed

Build = Callable[[Tree], Path]


def build(make: Build, **changes: str | bytes) -> AppDir:
    """Make the installed app with some files changed; `/` is written `__`, `.yaml` is added."""
    renamed = {f"{name.replace('__', '/')}.yaml": text for name, text in changes.items()}
    return AppDir(make({**installed_app(), **renamed}))


def own(app: AppDir, name: str = "cnn") -> Component:
    found = app.component(name)
    assert isinstance(found, Component)
    return found


def refused(call: Callable[[], object], kind: type[MlstackError]) -> str:
    with pytest.raises(kind) as caught:
        call()
    return caught.value.describe()


# Finding


def test_find_searches_upward(app: Build) -> None:
    root = app({"components/deep/er/x.yaml": "a: 1\n"})
    assert AppDir.find(root / "components" / "deep" / "er").root == root


def test_find_says_how_to_make_one(tmp_path: Path) -> None:
    assert refused(lambda: AppDir.find(tmp_path), NotFoundError).endswith("hint: mlstack init NAME makes one")


# app.yaml


def test_app_tells_name_registries_and_packages(app: Build) -> None:
    read = build(app).app
    assert read.name == "demo"
    assert [registry.name for registry in read.registries] == ["kubeflow"]
    assert read.packages == (PackageRef(registry="kubeflow", name="jobs"),)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a: [", YamlError, "broken YAML"),
        ("", YamlError, "the file holds nothing (app.yaml)"),
        ("- a\n", SchemaError, "error: the file must be a map, got a list (app.yaml:1)"),
        ("kind: App\n", SchemaError, "`apiVersion` is required"),
        (
            "apiVersion: mlstack.dev/v2\nkind: App\nname: x\n",
            SchemaError,
            "`apiVersion` is `mlstack.dev/v2`, which a newer mlstack wrote; this one reads `mlstack.dev/v1`: "
            "upgrade mlstack (app.yaml:1)",
        ),
        (
            "apiVersion: ksonnet.io/v1\nkind: App\nname: x\n",
            SchemaError,
            "must be `mlstack.dev/v1`, got `ksonnet",
        ),
        ("apiVersion: mlstack.dev/v1\nkind: Lock\n", SchemaError, "must be `App` in this file, got `Lock`"),
        (
            "apiVersion: mlstack.dev/v1\nkind: App\nname: 5\n",
            SchemaError,
            "`name` must be a string, got 5: put it in quotes (app.yaml:3)",
        ),
        (
            "apiVersion: mlstack.dev/v1\nkind: App\nname: x\nparam: {}\n",
            SchemaError,
            "did you mean `params`?",
        ),
        ("apiVersion: mlstack.dev/v1\nkind: App\nname: x\npackages: [core]\n", SchemaError, "(app.yaml:4)"),
    ],
)
def test_a_wrong_app_file_is_told_with_its_line(
    app: Build, text: str, kind: type[MlstackError], message: str
) -> None:
    assert message in refused(lambda: build(app, app=text).app, kind)


def test_a_file_that_is_not_text_is_told_with_its_line(app: Build) -> None:
    assert "not UTF-8 text (app.yaml:2)" in refused(lambda: build(app, app=b"a: 1\nb: \xff\n").app, YamlError)


def test_an_unreadable_file_is_a_config_error(app: Build) -> None:
    read = build(app)
    (read.root / "mlstack.lock").unlink()
    (read.root / "mlstack.lock").mkdir()
    assert "a folder stands in the place of the file (mlstack.lock)" in refused(
        lambda: read.lock, ConfigError
    )


@pytest.mark.parametrize("target", ["nothing", "itself"])
@pytest.mark.parametrize("name", ["params.yaml", "environment.yaml"])
def test_a_link_that_leads_nowhere_is_no_missing_file(app: Build, name: str, target: str) -> None:
    read = build(app)
    file = read.root / "environments" / "gke" / name
    file.unlink(missing_ok=True)
    file.symlink_to(name if target == "itself" else target)
    assert f"(environments/gke/{name})" in refused(lambda: read.environment("gke"), ConfigError)


# Components


def test_components_are_prototypes_used_and_plain_manifests(app: Build) -> None:
    read = build(app, components__web="a: 1\n", components__ml__deep__job="b: 1\n")
    write_tree(
        read.root, {"components/list.json": "{}", "components/notes.txt": "", "components/.hidden.yaml": "a"}
    )
    kinds = {component.full_name: type(component) for component in read.components()}
    assert kinds == {"cnn": Component, "list": Manifest, "ml.deep.job": Manifest, "web": Manifest}
    assert read.modules == ("ml", "ml.deep")


def test_a_component_knows_its_prototype_parameters_and_file(app: Build) -> None:
    cnn = own(build(app))
    assert (cnn.name, cnn.prototype, cnn.file) == ("cnn", "kubeflow/jobs/tf-cnn", "components/cnn.yaml")
    assert cnn.params == {"image": "registry.example.org/cnn:1"}


def test_an_unknown_component_tells_the_nearest(app: Build) -> None:
    message = refused(lambda: build(app).component("cn"), NotFoundError)
    assert message == "error: no component `cn`\nhint: did you mean `cnn`?"


def test_two_files_for_one_component_are_refused(app: Build) -> None:
    read = build(app)
    write_tree(read.root, {"components/cnn.json": "{}"})
    assert "`components/cnn.json` and `components/cnn.yaml` both stand for" in refused(
        read.components, ConfigError
    )


@pytest.mark.parametrize("file", ["my file.yaml", "x" * 64 + ".yaml", "a.b/c.yaml", "a b/c.yaml", "-x.json"])
def test_a_file_whose_name_cannot_be_a_label_is_refused(app: Build, file: str) -> None:
    read = build(app)
    write_tree(read.root, {f"components/{file}": "a: 1\n"})
    message = refused(read.components, ConfigError)
    assert "cannot be the name of a component" in message
    assert f"(components/{file})" in message


def test_module_parameters_at_the_root_are_refused(app: Build) -> None:
    text = "apiVersion: mlstack.dev/v1\nkind: ModuleParams\nparams: {}\n"
    message = refused(build(app, components__params=text).components, SchemaError)
    assert "a file of kind `ModuleParams` is no component (components/params.yaml:1)" in message
    assert "app.yaml" in message


def test_a_manifest_gives_all_its_documents_with_places(app: Build) -> None:
    read = build(app, components__web="a: 1\n---\n---\nb: 2\n")
    manifest = read.component("web")
    assert isinstance(manifest, Manifest)
    assert [(each.value, each.content.line) for each in read.read_manifest(manifest)] == [
        ({"a": 1}, 1),
        ({"b": 2}, 4),
    ]


def test_selection_by_name_module_and_target(app: Build) -> None:
    read = build(
        app,
        components__ml__a="a: 1\n",
        components__ml__b="a: 1\n",
        environments__gke__environment="apiVersion: mlstack.dev/v1\nkind: Environment\ntargets: [ml]\n",
    )
    gke = read.environment("gke")
    assert [c.full_name for c in read.selected(None)] == ["cnn", "ml.a", "ml.b"]
    assert [c.full_name for c in read.selected(gke)] == ["ml.a", "ml.b"]
    assert [c.full_name for c in read.selected(gke, ["cnn", "ml.a"])] == ["cnn", "ml.a"]
    assert "did you mean `cnn`?" in refused(lambda: read.selected(gke, ["cnnn"]), NotFoundError)


# Environments


def test_an_environment_knows_context_and_namespace(app: Build) -> None:
    gke = build(app).environment("gke")
    assert (gke.context, gke.namespace, gke.kubernetes_version, gke.protected) == ("gke", "ml", "1.36", False)


def test_environments_may_be_nested(app: Build) -> None:
    text = "apiVersion: mlstack.dev/v1\nkind: Environment\n"
    read = build(app, **{"environments__us-west__staging__environment": text})
    assert [each.name for each in read.environments()] == ["gke", "minikube", "us-west/staging"]


def test_an_unknown_environment_tells_the_nearest_or_how_to_add_it(app: Build) -> None:
    read = build(app)
    assert "did you mean `gke`?" in refused(lambda: read.environment("gkee"), NotFoundError)
    assert "hint: mlstack env add prod" in refused(lambda: read.environment("prod"), NotFoundError)


ENVIRONMENT = "apiVersion: mlstack.dev/v1\nkind: Environment\n"


def test_an_environment_inherits_what_it_does_not_say(app: Build) -> None:
    read = build(
        app,
        environments__gke__environment=ENVIRONMENT
        + "context: gke\nnamespace: ml\ntargets: [cnn]\nprotected: true\ncluster: {uid: u}\n",
        environments__canary__environment=ENVIRONMENT + "extends: gke\nnamespace: canary\n",
        environments__other__environment=ENVIRONMENT + "extends: gke\ncontext: elsewhere\nprotected: false\n",
    )
    canary, other = read.environment("canary"), read.environment("other")
    assert (canary.context, canary.namespace, canary.targets, canary.protected) == (
        "gke",
        "canary",
        ("cnn",),
        True,
    )
    assert canary.cluster is not None
    assert canary.cluster.uid == "u"
    assert (other.context, other.namespace, other.protected) == ("elsewhere", "ml", False)
    assert other.cluster is None


def test_environments_that_extend_each_other_are_refused(app: Build) -> None:
    read = build(
        app,
        environments__a__environment=ENVIRONMENT + "extends: b\n",
        environments__b__environment=ENVIRONMENT + "extends: a\n",
    )
    assert "in a circle: a → b → a (environments/b/environment.yaml)" in refused(
        lambda: read.environment("a"), ConfigError
    )


def test_extending_nothing_is_told_with_its_file(app: Build) -> None:
    read = build(app, environments__a__environment=ENVIRONMENT + "extends: gkee\n")
    message = refused(lambda: read.environment("a"), NotFoundError)
    assert "no environment `gkee`, which `a` extends (environments/a/environment.yaml)" in message


def test_values_for_a_component_that_is_not_there_are_refused(app: Build) -> None:
    text = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\ncomponents:\n  cn: {a: 1}\n"
    message = refused(lambda: build(app, environments__gke__params=text).environment("gke"), NotFoundError)
    assert message == ("error: no component `cn` (environments/gke/params.yaml:4)\nhint: did you mean `cnn`?")


def test_the_kubernetes_version_must_look_like_one(app: Build) -> None:
    read = build(app, environments__gke__environment=ENVIRONMENT + 'kubernetesVersion: "v1.30.2"\n')
    message = refused(lambda: read.environment("gke"), SchemaError)
    assert '`kubernetesVersion` must match `^1\\.[0-9]{1,3}$`, got "v1.30.2"' in message
    assert "(environments/gke/environment.yaml:3)" in message


def test_the_current_environment(app: Build) -> None:
    read = build(app)
    assert read.current_environment() is None
    write_tree(read.root, {".mlstack/current-environment": "gke\n"})
    assert read.current_environment() == "gke"


# Parameters


def test_values_come_from_their_layers_with_file_and_line(app: Build) -> None:
    read = build(app)
    resolved = read.resolve(own(read), "gke")
    assert resolved.values["num_gpus"] == 1
    assert resolved.values["cloud"] == "gke"
    assert {name: str(resolved.origin(name)) for name in ("num_gpus", "cloud", "image", "num_workers")} == {
        "num_gpus": "environments/gke/params.yaml:8",
        "cloud": "environments/gke/params.yaml:5",
        "image": "components/cnn.yaml:5",
        "num_workers": "prototype kubeflow/jobs/tf-cnn",
    }
    assert read.resolve(own(read), "minikube").values["num_gpus"] == 0
    assert read.resolve(own(read)).values["num_gpus"] == 0


COMPONENT = "apiVersion: mlstack.dev/v1\nkind: Component\n"
PARAMS = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\n"


def test_the_whole_order_of_layers(app: Build) -> None:
    module = "apiVersion: mlstack.dev/v1\nkind: ModuleParams\nparams: {args: [%s]}\n"
    read = build(
        app,
        app="apiVersion: mlstack.dev/v1\nkind: App\nname: demo\nparams: {args: [app]}\n",
        components__ml__params=module % "ml",
        components__ml__deep__params=module % "deep",
        components__ml__deep__cnn=COMPONENT + "prototype: tf-cnn\nparams: {args: [c]}\n",
        environments__child__environment=ENVIRONMENT + "extends: gke\n",
        environments__child__params=PARAMS
        + "globals: {args: [child]}\ncomponents: {ml.deep.cnn: {args: [child c]}}\n",
        environments__gke__params=PARAMS
        + "globals: {args: [parent]}\ncomponents: {ml.deep.cnn: {args: [parent c]}}\n",
    )
    overrides = Overrides(sets=(parse_set("args=x,y"), parse_set("ml.deep.cnn.args=z")))
    chain = read.resolve(own(read, "ml.deep.cnn"), "child", overrides).chains["args"]
    assert [(setting.layer, setting.value) for setting in chain] == [
        ("app", ["app"]),
        ("module", ["ml"]),
        ("module", ["deep"]),
        ("component", ["c"]),
        ("environment globals", ["parent"]),
        ("environment globals", ["child"]),
        ("environment", ["parent c"]),
        ("environment", ["child c"]),
        ("command line", ["x", "y"]),
        ("command line", ["z"]),
    ]
    assert str(chain[4].origin) == "environments/gke/params.yaml:3"
    assert [setting.target for setting in chain[:8]] == [
        "",
        "--module=ml",
        "--module=ml.deep",
        "ml.deep.cnn",
        "--env=gke",
        "--env=child",
        "--env=gke ml.deep.cnn",
        "--env=child ml.deep.cnn",
    ]


def test_a_component_that_is_not_written_yet_resolves(app: Build) -> None:
    read = build(app)
    draft = Component(name="new", prototype="tf-cnn", params={"image": "a"}, file="components/new.yaml")
    assert read.resolve(draft).values["image"] == "a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "num_gpu=1",
            "no component has a parameter `num_gpu` (--set num_gpu)\nhint: did you mean `num_gpus`?",
        ),
        ("cnnn.num_gpus=1", "no component has a parameter `cnnn`"),
        ("cnn.num_gpu=1", "prototype `tf-cnn` has no parameter `num_gpu` (--set cnn.num_gpu)"),
    ],
)
def test_a_misspelt_set_is_refused(app: Build, text: str, message: str) -> None:
    read = build(app)
    overrides = Overrides(sets=(parse_set(text),))
    assert message in refused(lambda: read.resolve(own(read), "gke", overrides), ParamError)


MISSPELT = PARAMS + "globals:\n  clout: gke\n  model_path: x\n"
NOTE = "no installed prototype declares `clout` (environments/gke/params.yaml:4); did you mean `cloud`?"


def test_a_global_that_no_installed_prototype_declares_is_noted(app: Build) -> None:
    read = build(app, environments__gke__params=MISSPELT)
    assert read.undeclared_globals("gke", read.components()) == (NOTE,)
    assert read.undeclared_globals("gke", ()) == (NOTE,)
    assert read.undeclared_globals(None, read.components()) == ()


def test_globals_of_the_app_and_of_modules_are_looked_at_too(app: Build) -> None:
    module = "apiVersion: mlstack.dev/v1\nkind: ModuleParams\nparams: {clouds: gke}\n"
    web = "apiVersion: v1\nkind: ConfigMap\n"
    text = "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\nparams: {num_gpu: 2}\n"
    read = build(app, app=text, components__in__params=module, components__in__deep__web=web)
    places = [
        note.partition(" (")[2].partition(")")[0] for note in read.undeclared_globals(None, read.components())
    ]
    assert places == ["app.yaml:4", "components/in/params.yaml:3"]
    assert len(read.undeclared_globals(None, [own(read)])) == 1


PRESET = (files.folder("environments") / "minikube" / "params.yaml").read_text("utf-8")
"""Has `notebookStorage`, which no prototype here declares."""


def test_what_a_preset_brings_for_other_packages_is_not_noted(app: Build) -> None:
    read = build(app, environments__gke__params=PRESET)
    assert read.undeclared_globals("gke", read.components()) == ()


@pytest.mark.parametrize(
    ("line", "name"),
    [("notebookStorage: 3Gi", "notebookStorage"), ("notebookStore: 2Gi", "notebookStore")],
    ids=["another value", "another name"],
)
def test_what_differs_from_a_preset_is_noted(app: Build, line: str, name: str) -> None:
    read = build(app, environments__gke__params=PRESET.replace("notebookStorage: 2Gi", line))
    [note] = read.undeclared_globals("gke", read.components())
    assert note.startswith(f"no installed prototype declares `{name}` (environments/gke/params.yaml:8)")


def test_no_package_is_read_for_globals_once_their_names_are_known(app: Build) -> None:
    read = build(app, environments__gke__params=MISSPELT)
    passed = Passed()
    assert AppDir(read.root, store=passed).undeclared_globals("gke", ()) == (NOTE,)
    (read.root / "vendor").rename(read.root / "gone")
    assert AppDir(read.root, store=passed).undeclared_globals("gke", ()) == (NOTE,)


def test_a_package_that_cannot_be_read_fails_nothing_for_a_remark(app: Build) -> None:
    read = build(app, environments__gke__params=MISSPELT)
    (read.root / "vendor").rename(read.root / "gone")
    assert AppDir(read.root).undeclared_globals("gke", ()) == ()


def test_an_alias_of_a_prototype_is_noted(app: Build) -> None:
    read = build(
        app, components__cnn="apiVersion: mlstack.dev/v1\nkind: Component\nprototype: kubeflow/jobs/old-cnn\n"
    )
    assert read.resolve(own(read)).notes == ("`old-cnn` is prototype `tf-cnn` (components/cnn.yaml)",)


ALIASED = "apiVersion: mlstack.dev/v1\nkind: Component\nprototype: kubeflow/jobs/gpu-cnn\n"


def test_what_an_alias_sets_lies_just_above_the_defaults(app: Build) -> None:
    read = build(app, components__cnn=ALIASED)
    found = read.resolve(own(read))
    assert found.values["num_gpus"] == 1
    assert [(step.layer, step.value, str(step.origin)) for step in found.chains["num_gpus"]] == [
        ("default", 0, "prototype kubeflow/jobs/tf-cnn"),
        ("default", 1, "prototype kubeflow/jobs/tf-cnn as gpu-cnn"),
    ]
    assert found.notes == ("`gpu-cnn` is prototype `tf-cnn` with `num_gpus: 1` (components/cnn.yaml)",)


def test_every_other_layer_wins_over_an_alias(app: Build) -> None:
    text = "apiVersion: mlstack.dev/v1\nkind: App\nname: demo\nparams: {num_gpus: 2}\n"
    read = build(app, components__cnn=ALIASED, app=text)
    assert read.resolve(own(read)).values["num_gpus"] == 2


def test_an_alias_that_sets_parameters_goes_by_its_whole_name(app: Build) -> None:
    read = build(app)
    assert read.prototype("gpu-cnn").name == "tf-cnn"
    jobs = {
        **JOBS,
        "tf-cnn/prototype.yaml": str(JOBS["tf-cnn/prototype.yaml"]).replace("gpu-cnn", "gpu-fast"),
    }
    write_tree(read.root, vendored(COMMON, jobs))
    assert AppDir(read.root).prototype("gpu-fast").name == "tf-cnn"
    with pytest.raises(NotFoundError):
        AppDir(read.root).prototype("fast")


def test_patches_of_ancestors_come_first(app: Build) -> None:
    read = build(
        app,
        environments__child__environment=ENVIRONMENT + "extends: gke\n",
        environments__child__patches__cnn="kind: B\n---\nkind: C\n",
        environments__gke__patches__cnn="kind: A\n",
    )
    assert [patch.value["kind"] for patch in read.patches("child", "cnn")] == ["A", "B", "C"]
    assert str(read.patches("child", "cnn")[2].origin()) == "environments/child/patches/cnn.yaml:3"
    assert read.patches("gke", "other") == ()


# Prototypes


@pytest.mark.parametrize(
    "name",
    [
        "kubeflow/jobs/tf-cnn",
        "kubeflow/jobs@0.1.0/tf-cnn",
        "jobs/tf-cnn",
        "tf-cnn",
        "cnn",
        "old-cnn",
        "kubeflow/jobs/old-cnn",
        "io.ksonnet.pkg.tf-cnn",
    ],
)
def test_a_prototype_is_found_by_any_of_its_names(app: Build, name: str) -> None:
    assert build(app).prototype(name).full_name == "kubeflow/jobs/tf-cnn"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tf-cn", "no installed package has a prototype `tf-cn`\nhint: did you mean `tf-cnn`?"),
        ("nn", "no installed package has a prototype `nn`"),
        (
            "kubeflow/jobs/tf-cn",
            "package `kubeflow/jobs` has no prototype `tf-cn`\nhint: did you mean `tf-cnn`?",
        ),
        (
            "kubeflow/seldon/x",
            "package `kubeflow/seldon` is not installed\nhint: mlstack pkg install kubeflow/seldon",
        ),
        ("kubeflow/jobs@9.9.9/tf-cnn", "package `kubeflow/jobs@9.9.9` is not installed"),
    ],
)
def test_an_unknown_prototype_says_what_to_do(app: Build, name: str, message: str) -> None:
    assert message in refused(lambda: build(app).prototype(name), NotFoundError)


def test_an_ambiguous_name_lists_the_candidates(app: Build) -> None:
    from tests.support.packages import COMMON, JOBS, vendored

    other = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("name: jobs", "name: more")}
    read = AppDir(app({**installed_app(), **vendored(COMMON, JOBS, other)}))
    message = refused(lambda: read.prototype("tf-cnn"), NotFoundError)
    assert "`kubeflow/jobs/tf-cnn`, `kubeflow/more/tf-cnn`" in message


def test_the_newest_installed_version_is_meant_unless_one_is_named(app: Build) -> None:
    from tests.support.packages import COMMON, JOBS, vendored

    newer = {**JOBS, "package.yaml": str(JOBS["package.yaml"]).replace("0.1.0", "0.10.0")}
    read = AppDir(app({**installed_app(), **vendored(COMMON, newer, JOBS)}))
    assert read.prototype("tf-cnn").version == "0.10.0"
    assert read.prototype("kubeflow/jobs/tf-cnn").version == "0.10.0"
    assert read.prototype("kubeflow/jobs@0.1.0/tf-cnn").version == "0.1.0"


def test_a_changed_vendored_file_is_refused(app: Build) -> None:
    read = build(app)
    write_tree(read.root, {"vendor/kubeflow/jobs@0.1.0/tf-cnn/files/launcher.py": "evil"})
    message = refused(lambda: read.prototype("tf-cnn"), RegistryError)
    assert "the content of package `kubeflow/jobs@0.1.0` is not what mlstack.lock says" in message
    assert "mlstack pkg install --force kubeflow/jobs@0.1.0" in message


def test_a_missing_vendored_package_is_refused(app: Build) -> None:
    from shutil import rmtree

    read = build(app)
    rmtree(read.root / "vendor/kubeflow/common@0.1.0")
    message = refused(lambda: read.prototype("tf-cnn"), RegistryError)
    assert "package `kubeflow/common@0.1.0` is missing from vendor/" in message


def test_reading_the_packages_lists_all_prototypes(app: Build) -> None:
    read = build(app)
    assert [package.name for package in read.vendor.packages()] == ["common", "jobs"]
    assert [each.name for each in read.vendor.prototypes()] == ["tf-cnn", "tf-serving"]


def test_reading_imports_no_library_but_the_yaml_reader(app: Build) -> None:
    import subprocess
    import sys

    root = app(installed_app())
    code = f"""
import sys
from pathlib import Path
from mlstack.app import files as bundled
from mlstack.app.app_dir import AppDir
from mlstack.disk_cache import Cache
from mlstack.app.schema import check_params
for _ in range(2):
    app = AppDir.find(Path({str(root)!r}), store=Cache(Path({str(root / "cache")!r})))
    component = app.component("cnn")
    check_params(app.prototype(component.prototype), app.resolve(component, "gke"), passed=app.store)
    if "--second" in sys.argv:
        break
heavy = ("jsonschema", "jinja2", "ruamel", "kubernetes", "typer", "subprocess")
print([name for name in heavy if name in sys.modules])
"""
    for arguments, expected in (([], "['jsonschema']"), (["--second"], "[]")):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True
        )
        assert done.stdout.strip() == expected


ENVIRONMENT_FILE = "apiVersion: mlstack.dev/v1\nkind: Environment\ncontext: gke\n"
SETTINGS = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"
FILES = {"components/one.yaml": SETTINGS, "environments/gke/environment.yaml": ENVIRONMENT_FILE}


def read(root: Path, **options: object) -> dict[str, str]:
    app = AppDir.find(root)
    render.load(app, "gke", **options)  # type: ignore[arg-type]
    return reader.digests(app)


def test_every_file_that_was_read_is_named(app: Callable[[Tree], Path]) -> None:
    found = read(app(FILES))
    assert {"app.yaml", "components/one.yaml", "environments/gke/environment.yaml"} <= found.keys()
    assert found["environments/gke/params.yaml"] == ""


def test_what_was_not_selected_does_not_count(app: Callable[[Tree], Path]) -> None:
    root = app({**FILES, "components/two.yaml": SETTINGS.replace("settings", "two")})
    assert "components/two.yaml" not in read(root, components=["one"])
    assert "components/two.yaml" in read(root)


def test_a_file_that_comes_later_is_a_difference(app: Callable[[Tree], Path]) -> None:
    root = app(FILES)
    before = read(root)
    (root / "environments/gke/params.yaml").write_text(
        "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\n"
    )
    after = read(root)
    assert {name for name in after if after[name] != before.get(name)} == {"environments/gke/params.yaml"}


def test_the_bound_cluster_is_no_input(app: Callable[[Tree], Path]) -> None:
    root = app(FILES)
    before = read(root)
    file = root / "environments/gke/environment.yaml"
    file.write_text(ENVIRONMENT_FILE + "cluster: {uid: abc}\n")
    assert read(root) == before
    file.write_text(ENVIRONMENT_FILE + "namespace: other\n")
    assert read(root) != before
