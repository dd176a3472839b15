"""From an app directory to objects."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.components import read_overrides
from mlstack.disk_cache import NO_STORE, ByteStore
from mlstack.errors import ConfigError, NotFoundError, ParamError, TemplateError, YamlError
from mlstack.objects.kube_object import DesiredState
from mlstack.render import render
from tests.support import examples
from tests.support.builders import MemoryCache, Tree
from tests.support.packages import COMMON, JOBS, installed_app, vendored

Build = Callable[[Tree | None], Path]

TEMPLATE = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ name }}
spec:
  selector: {matchLabels: {app: {{ name }}}}
  template:
    metadata: {labels: {app: {{ name }}}}
    spec:
      containers:
      - name: main
        image: {{ params.image }}
"""


def packaged(template: str = TEMPLATE, **more: str | bytes) -> dict[str, str | bytes]:
    """Give an app whose prototype tf-cnn renders this template."""
    jobs = {**JOBS, "tf-cnn/templates/job.yaml.j2": template.encode()}
    return {**installed_app(), **vendored(COMMON, jobs), **more}


def load(
    root: Path, environment: str = "minikube", *, store: ByteStore = NO_STORE, **options: Any
) -> DesiredState:
    return render.load(AppDir.find(root, store=store), environment, **options)


def test_components_render_with_namespace_and_marks(app: Build) -> None:
    state = load(app(packaged()), "gke")
    (obj,) = state.objects
    assert (obj.kind, obj.name, obj.namespace) == ("Deployment", "cnn", "ml")
    assert obj.labels["mlstack.dev/component"] == "cnn"
    assert obj.labels["mlstack.dev/environment"] == "gke"
    assert obj.data["spec"]["template"]["metadata"]["labels"] == {"app": "cnn"}
    assert obj.data["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.org/cnn:1"
    assert (state.app, state.components) == ("demo", ("cnn",))


def test_templates_see_plain_values_of_app_environment_and_component(app: Build) -> None:
    template = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n"
        "  all: {{ [app.name, env.name, env.context, namespace, component.name] | join(' ') }}\n"
    )
    (obj,) = load(app(packaged(template)), "gke").objects
    assert obj.data["data"]["all"] == "demo gke gke ml cnn"


def test_parameters_for_one_run_win(app: Build) -> None:
    overrides = read_overrides(["cnn.image=other:2"], [])
    (obj,) = load(app(packaged()), overrides=overrides).objects
    assert obj.data["spec"]["template"]["spec"]["containers"][0]["image"] == "other:2"


def test_another_namespace_for_one_run(app: Build) -> None:
    assert load(app(packaged()), namespace="trial").objects[0].namespace == "trial"


def test_manifests_join_as_they_are(app: Build) -> None:
    text = """\
        apiVersion: v1
        kind: List
        items:
        - {apiVersion: v1, kind: ConfigMap, metadata: {name: one}}
        - {apiVersion: v1, kind: Namespace, metadata: {name: two}}
        ---
        apiVersion: v1
        kind: Secret
        metadata: {name: three, namespace: fixed}
        stringData: {a: b}
        """
    state = load(app({**packaged(), "components/plain.yaml": text}), components=["plain"])
    assert [(obj.kind, obj.name, obj.namespace) for obj in state.objects] == [
        ("Namespace", "two", ""),
        ("ConfigMap", "one", "default"),
        ("Secret", "three", "fixed"),
    ]
    assert state.objects[2].data["data"] == {"a": "Yg=="}


def test_only_selected_components_are_rendered(app: Build) -> None:
    root = app({**packaged(), "components/broken.yaml": "a: [", "components/other.yaml": ""})
    assert load(root, components=["cnn"]).components == ("cnn",)


def test_unknown_component_names_the_nearest(app: Build) -> None:
    with pytest.raises(NotFoundError) as caught:
        load(app(packaged()), components=["cn"])
    assert caught.value.near == "cnn"


def test_patches_of_the_environment_are_laid_over(app: Build) -> None:
    patch = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: cnn, annotations: {a: b}}
        spec: {replicas: 3}
        """
    root = app({**packaged(), "environments/gke/patches/cnn.yaml": patch})
    (obj,) = load(root, "gke").objects
    assert obj.data["spec"]["replicas"] == 3
    assert obj.annotations == {"a": "b"}
    assert "replicas" not in load(root, "minikube").objects[0].data["spec"]


def test_a_patch_without_target_names_its_line(app: Build) -> None:
    patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: cmm}\n"
    with pytest.raises(NotFoundError, match="renders no `Deployment cmm`") as caught:
        load(app({**packaged(), "environments/gke/patches/cnn.yaml": patch}), "gke")
    assert caught.value.near == "Deployment cnn"
    assert caught.value.where == "environments/gke/patches/cnn.yaml:1"


def test_a_template_fault_names_component_file_and_line(app: Build) -> None:
    with pytest.raises(TemplateError, match="component `cnn`: `nam` is not defined") as caught:
        load(app(packaged(TEMPLATE.replace("{{ name }}", "{{ nam }}", 1))))
    assert caught.value.where == "vendor/kubeflow/jobs@0.1.0/tf-cnn/templates/job.yaml.j2:4"


REFUSING = "{{ fail('`image` is used up, and so are `num_gpus`') }}\n"


def refusal(root: Path, environment: str = "minikube", **options: Any) -> tuple[str, str | None, str | None]:
    with pytest.raises(TemplateError) as caught:
        load(root, environment, **options)
    return caught.value.message, caught.value.where, caught.value.hint


def test_a_refusal_names_the_component_and_where_its_parameter_is_set(app: Build) -> None:
    assert refusal(app(packaged(REFUSING))) == (
        "component `cnn`: `image` is used up, and so are `num_gpus`",
        "components/cnn.yaml:5",
        "mlstack param set cnn image VALUE",
    )


def test_a_refusal_leads_to_the_environment_that_decides(app: Build) -> None:
    params = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\ncomponents:\n  cnn: {image: x}\n"
    assert refusal(app(packaged(REFUSING, **{"environments/gke/params.yaml": params})), "gke")[1:] == (
        "environments/gke/params.yaml:4",
        "mlstack param set --env=gke cnn image VALUE",
    )


def test_a_refusal_leads_to_the_command_line_that_decides(app: Build) -> None:
    overrides = read_overrides(["cnn.image=x"], [])
    assert refusal(app(packaged(REFUSING)), overrides=overrides)[1:] == (
        "--set cnn.image",
        "--set cnn.image=VALUE",
    )


def test_a_refusal_of_a_default_is_mended_in_the_component(app: Build) -> None:
    root = app(packaged("{{ fail('`args` must be set with `image`') }}"))
    assert refusal(root)[1:] == ("components/cnn.yaml:5", "mlstack param set cnn args VALUE")


def test_a_refusal_that_names_no_parameter_names_the_line_of_the_template(app: Build) -> None:
    assert refusal(app(packaged("\n{{ fail('not on `Sundays`') }}"))) == (
        "component `cnn`: not on `Sundays`",
        "vendor/kubeflow/jobs@0.1.0/tf-cnn/templates/job.yaml.j2:2",
        None,
    )


def test_broken_rendered_text_names_the_line_of_the_template(app: Build) -> None:
    with pytest.raises(YamlError, match="component `cnn`: the template renders no sound YAML") as caught:
        load(
            app(
                packaged(
                    "{% if true %}\n{% endif %}\n" + TEMPLATE.replace("kind: Deployment", "kind Deployment")
                )
            )
        )
    assert caught.value.where == "vendor/kubeflow/jobs@0.1.0/tf-cnn/templates/job.yaml.j2:5"


OBJECT = "apiVersion: v1\nkind: ConfigMap\n"


@pytest.mark.parametrize(
    ("template", "message", "line"),
    [
        ("- a\n", "expected a map, got a list", 1),
        ("kind: ConfigMap\n", "it has no `apiVersion`, `metadata.name`", 1),
        (OBJECT + "metadata: {generateName: a}\n", "it has no `metadata.name`", 1),
        (OBJECT + "metadata: [a]\n", "it has no `metadata.name`", 1),
        (OBJECT + "metadata:\n  name: 12\n", "`metadata.name` must be a string, got 12", 4),
        (OBJECT + "metadata:\n  name: a\n  labels: [b]\n", "`metadata.labels` must be a map, got a list", 5),
        (OBJECT + "metadata:\n  name: a\n  annotations: b\n", "`metadata.annotations` must be a map", 5),
        (OBJECT + "metadata:\n  name: a\n  namespace: {}\n", "`metadata.namespace` must be a string", 5),
        (
            f"{OBJECT}metadata: {{name: a}}\n---\n" * 2,
            "component `cnn` brings `ConfigMap default/a` twice",
            5,
        ),
    ],
)
@pytest.mark.parametrize("kind", ["template", "manifest"])
def test_what_is_no_object_is_refused_with_its_line(
    app: Build, kind: str, template: str, message: str, line: int
) -> None:
    root = app(packaged(template) if kind == "template" else {**packaged(), "components/cnn.yaml": template})
    with pytest.raises(ConfigError) as caught:
        load(root)
    assert message in str(caught.value)
    assert str(caught.value.where).endswith(f".yaml{'.j2' if kind == 'template' else ''}:{line}")


@pytest.mark.parametrize("field", ["labels: [a]", "annotations: a"])
def test_a_patch_that_spoils_an_object_is_refused_with_its_line(app: Build, field: str) -> None:
    patch = f"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: cnn\n  {field}\n"
    root = app({**packaged(), "environments/gke/patches/cnn.yaml": patch})
    with pytest.raises(ConfigError, match="must be a map") as caught:
        load(root, "gke")
    assert caught.value.where == "environments/gke/patches/cnn.yaml:5"


@pytest.mark.parametrize(("name", "near"), [("cn.yaml", "cnn"), ("cnn.yml", "cnn"), ("other.yaml", None)])
def test_a_patch_for_no_component_is_refused(app: Build, name: str, near: str | None) -> None:
    root = app({**packaged(), f"environments/gke/patches/{name}": "a: 1\n"})
    with pytest.raises(NotFoundError, match="to patch") as caught:
        load(root, "gke")
    assert (caught.value.near, caught.value.where) == (near, f"environments/gke/patches/{name}")
    load(root, "minikube")


def test_a_fault_of_the_lock_is_no_components(app: Build) -> None:
    with pytest.raises(YamlError, match=r"^broken YAML") as caught:
        load(app({**packaged(), "mlstack.lock": "a: [\n"}))
    assert caught.value.where == "mlstack.lock:2"


def test_parameter_faults_name_their_own_line(app: Build) -> None:
    root = app({**packaged(), "environments/gke/params.yaml": _gpus(65)})
    with pytest.raises(ParamError) as caught:
        load(root, "gke")
    assert caught.value.where == "environments/gke/params.yaml:5"


def _gpus(count: int) -> str:
    return f"""\
        apiVersion: mlstack.dev/v1
        kind: EnvironmentParams
        components:
          cnn:
            num_gpus: {count}
        """


def test_the_same_object_twice_names_both_places(app: Build) -> None:
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: cnn}\n"
    with pytest.raises(ConfigError, match=r"component `cnn` .*component `twin` \(components/twin.yaml:1\)"):
        load(app({**packaged(), "components/twin.yaml": text}))


def test_places_of_parts_are_found_on_demand(app: Build) -> None:
    source = load(app(packaged()), locate=True).objects[0].source
    assert source is not None
    file = "vendor/kubeflow/jobs@0.1.0/tf-cnn/templates/job.yaml.j2"
    assert source.at(("spec", "template", "spec", "containers", 0, "image")) == f"{file}:12"
    assert source.at(("spec", "replicas")) == f"{file}:5"
    assert load(app(packaged())).objects[0].source != source


def test_two_renders_give_the_same_objects(app: Build) -> None:
    root = app(packaged())
    assert load(root) == load(root)


def test_compiled_templates_are_kept_between_runs(app: Build) -> None:
    store = MemoryCache()
    first = load(app(packaged()), store=store)
    before: Mapping[str, bytes] = dict(store)
    assert load(app(packaged()), store=store) == first
    templates = {key: data for key, data in store.items() if key.startswith("templates:")}
    assert templates
    assert templates.items() <= before.items()


def test_shapes_of_texts_are_kept_between_runs_but_none_with_secrets(app: Build) -> None:
    def shapes(files: Tree) -> set[bytes]:
        store = MemoryCache()
        for _ in range(2):
            load(app(files), store=store)
        return {data for key, data in store.items() if key.startswith("shapes:")}

    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: 'b c'}\n"
    assert shapes(packaged())
    assert not shapes({**packaged(), "components/s.yaml": secret})


def test_what_is_read_by_a_kept_shape_is_what_is_read_without(app: Build) -> None:
    store = MemoryCache()
    for count in (1, 2, 3):
        root = app({**packaged(), "environments/gke/params.yaml": _gpus(count)})
        assert load(root, "gke", store=store) == load(root, "gke")


@pytest.mark.slow
def test_every_shipped_example_comes_out_of_the_store_as_it_was_rendered(tmp_path: Path) -> None:
    app = AppDir(examples.shipped_app(tmp_path / "app").root, store=MemoryCache())
    for case in examples.cases():
        rendered = render.load(app, case.environment, components=[case.component])
        again = render.load(app, case.environment, components=[case.component])
        assert again == rendered


def test_templates_do_not_run_again_for_the_same_values(app: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    root, store = app(packaged(TEMPLATE + "{{ note('mind the gap') }}")), MemoryCache()
    first = load(root, store=store)
    assert first.notes == ("cnn: mind the gap",)
    monkeypatch.setattr("mlstack.render.component.Renderer", lambda *_, **__: pytest.fail("ran again"))
    assert load(root, store=store) == first


def test_places_are_noted_whatever_is_remembered(app: Build) -> None:
    root, store = app(packaged()), MemoryCache()
    located = load(root, store=store, locate=True)
    load(root, store=store)
    assert load(root, store=store, locate=True) == located
    assert located.objects[0].source != load(root, store=store).objects[0].source


def test_an_environment_without_context_leads_nowhere(app: Build) -> None:
    text = "apiVersion: mlstack.dev/v1\nkind: Environment\n"
    root = app({"environments/lost/environment.yaml": text})
    with pytest.raises(ConfigError, match="names no kubectl context"):
        render.place(AppDir.find(root), "lost")
    assert render.place(AppDir.find(root), "lost", context="c", namespace="n").namespace == "n"


@pytest.mark.parametrize(
    ("value", "notes"),
    [
        ("model_path: gs://m", ()),
        (
            "num_gpu: 1",
            (
                "no installed prototype declares `num_gpu` (environments/gke/params.yaml:3)"
                "; did you mean `num_gpus`?",
            ),
        ),
    ],
    ids=["another-prototype-declares-it", "nobody-declares-it"],
)
def test_a_value_for_all_components_that_nobody_declares_is_noted(
    app: Build, value: str, notes: tuple[str, ...]
) -> None:
    params = f"apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\nglobals: {{{value}}}\n"
    state = load(app(packaged(**{"environments/gke/params.yaml": params})), "gke", components=["cnn"])
    assert state.notes == notes
