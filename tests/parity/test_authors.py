"""Prototypes that are not installed yet, and packages of one's own: rows C and R of the parity list."""

import re
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.app.components import ComponentRequest
from mlstack.errors import NotFoundError
from mlstack.operations import app, components, packages
from tests.support.builders import read_tree
from tests.support.cli import Runner
from tests.support.registry import small_app


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Runner:
    """A fresh app that knows the shipped registry, with nothing installed."""
    monkeypatch.chdir(tmp_path)
    run("init demo")
    monkeypatch.chdir(tmp_path / "demo")
    return run


@pytest.mark.parametrize("text", ["tf-cnn", "io.ksonnet.pkg.tf-cnn", "CNN"])
def test_c2_search_finds_what_is_not_installed_and_says_how_to_get_it(bare: Runner, text: str) -> None:
    ran = bare(f"prototype search {text} -o json")
    (row,) = ran.json["prototypes"]
    assert (row["name"], row["fullName"], row["installed"]) == ("tf-cnn", "kubeflow/tf-job/tf-cnn", False)
    assert "mlstack pkg install kubeflow/tf-job" in bare(f"prototype search {text}").err


@pytest.mark.parametrize(
    "line",
    [
        "generate tf-cnn cnn",
        "generate io.ksonnet.pkg.tf-cnn cnn",
        "prototype describe tf-cnn",
        "prototype list tf-job/tf-cnn",
        "prototype preview cnn",
    ],
)
def test_c2_a_prototype_that_is_not_installed_names_its_package(bare: Runner, line: str) -> None:
    ran = bare(line)
    assert ran.code == 4
    assert "is in package `kubeflow/tf-job`, which is not installed" in ran.err
    assert "hint: mlstack pkg install kubeflow/tf-job" in ran.err


def test_c1_a_name_as_ksonnet_wrote_it_is_listed(bare: Runner) -> None:
    bare("pkg install kubeflow/tf-job")
    assert bare("prototype list io.ksonnet.pkg.tf-job").out == bare("prototype list tf-job").out


def test_r11_a_registry_without_index_offers_every_version(
    tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_app(tmp_path, installed=False)
    tools = tmp_path / "registry" / "tools"
    older = tmp_path / "registry" / "tools-old"
    older.mkdir()
    (older / "package.yaml").write_text((tools / "package.yaml").read_text().replace("1.2.0", "1.1.0"))
    monkeypatch.chdir(tmp_path / "demo")
    offers = {row["name"]: row for row in run("registry describe ours -o json").json["packages"]}
    assert (offers["tools"]["version"], offers["tools"]["versions"]) == ("1.2.0", ["1.1.0", "1.2.0"])


# Every prototype of the registries of Kubeflow 0.1 to 0.5, and every package of theirs.
KUBEFLOW = """
ambassador application argo aws-alb-ingress-controller aws-efs-csi-driver aws-efs-pv aws-fsx-csi-driver
aws-fsx-pv-dynamic aws-fsx-pv-static basic-auth basic-auth-ingress centraldashboard cert-manager chainer-job
chainer-job-simple chainer-operator cloud-endpoints echo-server gcp-credentials-admission-webhook
gcp-credentials-pod-preset google-cloud-filestore-pv gpu-driver iap-ingress istio-ingress jupyter
jupyter-web-app jupyterhub katib katib-studyjob-test-v1alpha1 knative-build kubebench-dashboard
kubebench-job kubebench-operator kubeflow-core kubeflow-openmpi metacontroller metric-collector modeldb
mpi-job-custom mpi-job-simple mpi-operator mxnet-job mxnet-operator notebook-controller notebooks
nvidia-inference-server openvino pachyderm paddle-job paddle-operator pipeline profiles prometheus
pytorch-job pytorch-operator release seldon seldon-abtest-v1alpha1 seldon-abtest-v1alpha2
seldon-mab-v1alpha1 seldon-mab-v1alpha2 seldon-outlier-detector-v1alpha1 seldon-outlier-detector-v1alpha2
seldon-serve-simple seldon-serve-simple-v1alpha1 seldon-serve-simple-v1alpha2 some-prototype-name spark-job
spark-operator spartakus tensorboard tensorboard-aws tensorboard-gcp tf-batch-predict tf-cnn tf-job
tf-job-operator tf-job-simple tf-job-simple-v1alpha1 tf-job-simple-v1beta1 tf-job-simple-v1beta2 tf-serving
tf-serving-aws tf-serving-deployment-aws tf-serving-deployment-gcp tf-serving-gcp tf-serving-request-log
tf-serving-service tf-serving-simple tf-serving-with-istio weaveflux
"""
KUBEFLOW_PACKAGES = """
application argo automation aws chainer-job common core credentials-pod-preset examples gcp jupyter katib
knative-build kubebench metacontroller modeldb mpi-job mxnet-job new-package-stub nvidia-inference-server
openmpi openvino pachyderm paddle-job pipeline profiles pytorch-job seldon spark tensorboard
tf-batch-predict tf-job tf-serving tf-training weaveflux
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> AppDir:
    """An app that knows the shipped registry, with nothing installed."""
    folder = tmp_path_factory.mktemp("fresh") / "demo"
    app.init(folder, "demo")
    return AppDir(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", KUBEFLOW.split())
def test_c2_every_prototype_of_kubeflow_is_found(fresh: AppDir, name: str) -> None:
    rows = packages.search_prototypes(fresh, f"io.ksonnet.pkg.{name}").prototypes
    assert any(row.retired or not row.installed for row in rows)
    with pytest.raises(NotFoundError) as caught:
        components.generate(fresh, ComponentRequest(prototype=name, name="it"))
    assert re.match(
        rf"error: (prototype )?`{re.escape(name)}` is (in package|retired:|planned:) ",
        caught.value.describe(),
    )


@pytest.mark.parametrize("name", KUBEFLOW_PACKAGES.split())
def test_p1_every_package_of_kubeflow_has_an_answer(fresh: AppDir, name: str) -> None:
    try:
        assert packages.describe_package(fresh, f"kubeflow/{name}").package == f"kubeflow/{name}"
    except NotFoundError as error:
        assert re.match(rf"error: `{re.escape(name)}` is (retired|planned): ", error.describe())


@pytest.mark.parametrize(
    ("options", "params"),
    [
        ("jupyterhub hub --image=hub:1 --serviceType=NodePort", "jupyterHubImage: hub:1"),
        ("jupyter hub --ui=rok --accessLocalFs=true", "ui` has no effect any more"),
        ("pytorch-operator op --pytorchJobImage=operator:2", "tfJobImage: operator:2"),
    ],
)
def test_c7_old_names_take_their_old_parameters(bare: Runner, options: str, params: str) -> None:
    bare("pkg install kubeflow/core")
    ran = bare(f"generate {options}")
    assert ran.code == 0, ran.err
    assert params in ran.err + Path("components", f"{options.split()[1]}.yaml").read_text()


def test_c7_a_component_file_may_name_an_old_prototype_and_its_parameters(bare: Runner) -> None:
    bare("pkg install kubeflow/core")
    hub = Path("components/hub.yaml")
    hub.write_text(
        "apiVersion: mlstack.dev/v1\nkind: Component\nprototype: kubeflow/core/jupyterhub\n"
        "params:\n  image: example.org/hub:1\n  accessLocalFs: 'true'\n"
    )
    assert bare("param set hub serviceType NodePort").code == 0
    assert "jupyterHubServiceType: NodePort" in hub.read_text()
    rows = bare("param list hub -o json").json["rows"]
    values = {row["name"]: row["value"] for row in rows}
    assert (values["jupyterHubImage"], values["installOperator"]) == ("example.org/hub:1", False)
    bare("env add test --offline")
    ran = bare("render test")
    assert "`accessLocalFs` is deprecated: it has no effect any more (components/hub.yaml:6)" in ran.err
    assert "example.org/hub:1" in ran.out


def test_m9_old_spellings_stay_usable_after_generate(bare: Runner) -> None:
    bare("pkg install kubeflow/core")
    assert bare("generate jupyterhub hub --serviceType=NodePort --disks=null").code == 0
    file = Path("components/hub.yaml")
    before = file.read_text()
    assert "disks" not in before and "jupyterHubServiceType: NodePort" in before
    ran = bare("param set hub serviceType ClusterIP")
    assert (ran.code, "`serviceType` is called `jupyterHubServiceType` now" in ran.err) == (0, True)
    assert file.read_text() == before.replace("NodePort", "ClusterIP")
    assert bare("param unset hub serviceType").code == 0
    assert "ServiceType" not in file.read_text()
    ran = bare("param set hub accessLocalFs true")
    assert (ran.code, "hint: it has no effect any more" in ran.err) == (4, True)


def test_c7_generate_starts_from_an_example(bare: Runner) -> None:
    bare("pkg install kubeflow/tf-job")
    ran = bare("generate tf-cnn mine --example gpu --num_workers=3")
    assert (ran.code, "mlstack env add gke" in ran.err) == (0, True)
    text = Path("components/mine.yaml").read_text()
    assert "num_gpus: 1" in text and "num_workers: 3" in text and "name: cnn" not in text
    assert bare("generate tf-cnn --example cpu -o name").out == "cnn\n"
    assert "\n  gpu: Two workers with a GPU each on GKE\n" in bare("prototype describe tf-cnn").out
    ran = bare("prototype preview tf-cnn other --example gpus")
    assert (ran.code, "did you mean `gpu`?" in ran.err) == (4, True)


KSONNET = {  # ksonnet's own prototypes, with the parameters they took, and the kinds they brought
    "single-port-deployment": ("--image=nginx --replicas=2 --containerPort=8080", ["Deployment"]),
    "single-port-service": (
        "--targetLabelSelector=app=web --servicePort=80 --targetPort=80 --protocol=TCP --type=ClusterIP",
        ["Service"],
    ),
    "deployed-service": (
        "--image=nginx --servicePort=80 --containerPort=80 --replicas=1 --type=LoadBalancer",
        ["Service", "Deployment"],
    ),
    "configMap": ("--data=a=1,b=2", ["ConfigMap"]),
    "namespace": ("", ["Namespace"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KSONNET)
def test_c18_ksonnets_own_prototypes_work_under_their_names(bare: Runner, name: str) -> None:
    options, kinds = KSONNET[name]
    bare("pkg install kubeflow/starter")
    assert bare(f"prototype describe io.ksonnet.pkg.{name}").code == 0
    ran = bare(f"prototype preview io.ksonnet.pkg.{name} web {options} -o json")
    objects = ran.json["items"]
    assert [obj["kind"] for obj in objects] == kinds
    assert {obj["metadata"]["name"] for obj in objects} == {"web"}


def test_c3_a_name_that_objects_cannot_have_is_refused_at_once(bare: Runner) -> None:
    bare.play(
        f"""
        pkg install kubeflow/starter kubeflow/core kubeflow/serving
        generate kserve-inferenceservice {41 * "x"} --example canary | 2 | at most 40
        generate config-map Bad_Name | 2 | `Bad_Name` is no name for objects | hint: add --name=VALUE
        prototype preview config-map Bad_Name | 2 | hint: add --name=VALUE
        component list -o name | 0 | !Bad_Name
        generate config-map Bad_Name --name=good
        generate core Any_Name
        component list -o name | 0 | Any_Name | Bad_Name
        """
    )


def test_c18_pods_of_an_image_without_root_pass_pod_security_restricted(bare: Runner) -> None:
    bare("pkg install kubeflow/starter")
    ran = bare("prototype preview deployment web --image web:1 --runAsNonRoot=true -o json")
    (deployment,) = ran.json["items"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_c1_built_in_prototypes_are_listed_and_need_no_installation(bare: Runner) -> None:
    rows = {row["name"]: row for row in bare("prototype list -o json").json["prototypes"]}
    assert {"deployment", "service", "config-map", "namespace"} <= set(rows)
    assert not rows["deployment"]["installed"]
    assert bare("prototype describe deployed-service").code == 0
    assert "image" in bare("prototype list io.ksonnet.pkg.deployed-service").out
    assert not Path("vendor").exists()
    ran = bare("generate deployed-service ui --image nginx")
    assert ran.code == 0, ran.err
    assert (
        Path("components/ui.yaml").read_text().splitlines()[2]
        == "prototype: kubeflow/starter/deployed-service"
    )
    assert [row["package"] for row in bare("pkg list --installed -o json").json["packages"]] == [
        "kubeflow/common",
        "kubeflow/starter",
    ]
    bare("env add minikube")
    assert bare("render minikube").code == 0


def test_c18_a_built_in_component_that_cannot_be_made_installs_nothing(bare: Runner) -> None:
    before = read_tree(Path())
    assert bare("generate deployed-service ui").code == 2
    assert bare("generate deployed-service ui --image x --replicas=-1").code != 0
    assert read_tree(Path()) == before


def test_c18_a_built_in_name_comes_before_the_end_of_another(bare: Runner) -> None:
    bare("pkg install kubeflow/tf-serving")
    bare("generate service front")
    assert "kubeflow/starter/service" in Path("components/front.yaml").read_text()


def test_c2_a_near_name_names_its_package(bare: Runner) -> None:
    ran = bare("generate tf-cn x")
    assert ran.code == 4
    assert "did you mean `tf-cnn` of `kubeflow/tf-job`? mlstack pkg install" in ran.err


def test_c30_an_error_in_a_template_names_line_and_parameter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner
) -> None:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    Path("nothing.yaml").write_text("args: null\n")
    ran = run("prototype preview web front --image nginx --values nothing.yaml")
    assert ran.code == 3
    assert "component `front`" in ran.err
    assert "the line reads `args`, which is not set" in ran.err
    assert "templates/page.yaml.j2:9" in ran.err


def test_r17_a_registry_is_looked_through_before_it_is_published(tmp_path: Path, run: Runner) -> None:
    small_app(tmp_path, installed=False)
    prototype = tmp_path / "registry/tools/web/prototype.yaml"
    prototype.write_text(prototype.read_text().replace("type: integer", "type: integr"))
    template = tmp_path / "registry/tools/web/templates/page.yaml.j2"
    template.write_text(template.read_text().replace("{% if params.token %}", "{% if %}"))
    ran = run("registry lint registry -o json")
    assert (ran.code, ran.json["ok"]) == (1, False)
    places = [fault["where"] for fault in ran.json["faults"]]
    assert "registry/tools/web/prototype.yaml:14" in places
    assert "registry/tools/web/templates/page.yaml.j2:10" in places
    assert "registry/registry.yaml" in places
