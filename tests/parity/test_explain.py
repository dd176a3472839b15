"""Where values and fields come from: parameter to fields, and a field back to line, patch and parameter."""

from pathlib import Path

import pytest

from tests.support.builders import write_tree
from tests.support.cli import Runner

PAGE = "vendor/ours/tools@1.2.0/web/templates/page.yaml.j2"


def test_m19_a_map_reports_its_own_keys_alone(app: Path, run: Runner, tmp_path: Path) -> None:
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ name }}}\n"
    template = f"{head}data: {{{{ dict(params.tags, fixed='1') }}}}\n"
    write_tree(tmp_path / "registry/tools", {"web/templates/page.yaml.j2": template.encode()})
    for line in ("component rm web", "pkg rm ours/tools", "registry index ../registry"):
        run(line)
    for line in ("pkg install ours/tools", "generate web web --image nginx"):
        assert run(line).code == 0, run(line).err
    run("param set web tags team=a,cost.x=b")
    reaches = run("param explain web tags --env gke -o json").json["parameters"][0]["reaches"]
    assert [(reach["path"], reach["value"]) for reach in reaches] == [
        ("data.team", "a"),
        ('data["cost.x"]', "b"),
    ]
    run("param unset web tags")
    (reach,) = run("param explain web tags --env gke -o json").json["parameters"][0]["reaches"]
    assert (reach["path"], reach["value"]) == ("data", {})


def test_a_field_leads_to_the_key_of_a_map_that_made_it(app: Path, run: Runner, tmp_path: Path) -> None:
    page = tmp_path / "registry/tools/web/templates/page.yaml.j2"
    page.write_text(
        page.read_text().replace(
            "  args:",
            "{% for tag in params.tags %}\n  tag-{{ tag }}: {{ params.tags[tag] }}\n{% endfor %}\n  args:",
        )
    )
    for line in ("component rm web", "pkg rm ours/tools", "registry index ../registry"):
        run(line)
    for line in ("pkg install ours/tools", "generate web web --image nginx"):
        assert run(line).code == 0, line
    run("param set web tags team=a,cost=b")
    run("param set --env gke web tags.team c")
    (param,) = run("explain configmap/web data.tag-team --env gke -o json").json["parameters"]
    assert (param["name"], param["value"], param["layer"]) == ("tags.team", "c", "environment")
    (param,) = run("explain configmap/web data.tag-cost --env gke -o json").json["parameters"]
    assert (param["name"], param["value"], param["layer"]) == ("tags.cost", "b", "component")


def test_a_parameter_that_adds_an_object_names_it_without_a_field(app: Path, run: Runner) -> None:
    out = run("param explain web token --env gke").out
    assert "reaches Secret web:\n    the whole object\n" in out
    assert not [line for line in out.splitlines() if line.strip().startswith("= ")]


def test_a_field_leads_to_template_line_parameter_and_file(app: Path, run: Runner) -> None:
    run("param set --env gke web color green")
    field = run("explain configmap/web data.color --env gke -o json").json
    assert (field["object"], field["value"], field["component"]) == ("ConfigMap ml/web", "green", "web")
    assert (field["origin"], field["where"]) == ("template", f"{PAGE}:7")
    (param,) = field["parameters"]
    assert (param["name"], param["value"], param["layer"]) == ("color", "green", "environment")
    assert param["where"] == "environments/gke/params.yaml:5"
    table = run("explain ConfigMap/ml/web data.color --env gke").out
    assert table.startswith("ConfigMap ml/web: data.color = green\n")
    assert all(word in table for word in (f"{PAGE}:7", "environments/gke/params.yaml:5"))


def test_a_field_of_a_patch_a_label_and_what_is_added(app: Path, run: Runner) -> None:
    patch = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata:\n  color: blue\n  more: x\n"
    write_tree(app, {"environments/gke/patches/web.yaml": patch})
    (app / "app.yaml").write_text((app / "app.yaml").read_text() + "labels:\n  team: ml\n")

    def explained(field: str) -> tuple[str, str]:
        ran = run("explain", "configmap/web", field, "--env", "gke", "-o", "json")
        assert ran.code == 0, ran.err
        result = ran.json
        return result["origin"], result["where"]

    assert explained("data.color") == ("patch", "environments/gke/patches/web.yaml:5")
    assert explained("data.image") == ("template", f"{PAGE}:6")
    lines = (app / "app.yaml").read_text().splitlines()
    assert explained("metadata.labels.team") == ("app", f"app.yaml:{lines.index('  team: ml') + 1}")
    assert explained('metadata.labels["mlstack.dev/app"]') == ("mlstack", "")
    assert explained("metadata.namespace") == ("mlstack", "")


def test_secrets_stay_secret_and_wrong_names_lead_on(app: Path, run: Runner) -> None:
    run("param set web token correct-horse")
    ran = run("explain secret/web data.token --env gke")
    assert "********" in ran.out and "correct-horse" not in ran.out + ran.err
    wrong = run("explain configmap/wib data --env gke")
    assert (wrong.code, "did you mean `configmap/web`?" in wrong.err) == (4, True)
    wrong = run("explain configmap/web data.colour --env gke")
    assert (wrong.code, "`data` has no `colour`" in wrong.err) == (4, True)


STRATEGIC = "type: strategic\npatch: {spec: {containers: [{name: new}, {name: side, env: [{name: A}]}]}}\n"
JSON = """\
type: json
patch:
- {op: add, path: /spec/containers/0, value: {name: new, image: x}}
- {op: add, path: /spec/containers/1/args/-, value: c}
- {op: remove, path: /spec/containers/1/args/0}
"""


@pytest.mark.parametrize(
    ("patch", "lines"),
    [
        (STRATEGIC, {"new].name": 5, "side].env[A].name": 5, "side].image": -12, "main].args[0]": -10}),
        (JSON, {"new].image": 6, "main].args[1]": 7, "main].args[0]": -11, "main].image": -7}),
        ("", {"main].image": -7, "0].image": -7}),
    ],
)
def test_items_of_lists_lead_to_who_wrote_them(
    app: Path, run: Runner, patch: str, lines: dict[str, int]
) -> None:
    manifest = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: main\n"
    manifest += "    image: nginx\n    args:\n\n    - a\n    - b\n  - {name: side, image: busybox}\n"
    head = "apiVersion: mlstack.dev/v1\nkind: Patch\ntarget: {kind: Pod}\n" if patch else ""
    write_tree(app, {"components/pod.yaml": manifest, "environments/gke/patches/pod.yaml": head + patch})
    for field, line in lines.items():  # those of the manifest are below zero
        file = "environments/gke/patches" if line > 0 else "components"
        result = run(f"explain pod/p spec.containers[{field} --env gke -o json").json
        assert (field, result["where"]) == (field, f"{file}/pod.yaml:{abs(line)}")


def test_m19_a_place_inside_a_value_reports_its_own_chain(app: Path, run: Runner) -> None:
    run.ok("param set web tags team=a,cost=b")
    run.ok("param set --env gke web tags.team c")
    explained = run("param explain web tags.team --env gke -o json").json["parameters"][0]
    chain = [(step["layer"], step["value"], step["wins"]) for step in explained["chain"]]
    assert (explained["name"], explained["value"]) == ("tags.team", "c")
    assert chain == [("component", "a", False), ("environment", "c", True)]
    assert explained["where"] == "environments/gke/params.yaml:6"
    other = run("param explain web tags.cost --env gke -o json").json["parameters"][0]
    assert [step["layer"] for step in other["chain"]] == ["component"]
    wrong = run("param explain web tags.taem --env gke")
    assert (wrong.code, "did you mean `team`?" in wrong.err) == (4, True)


def test_m19_an_item_of_a_list_reports_its_own_chain(app: Path, run: Runner) -> None:
    run.ok("param set web args a,b")
    run.ok("param set --env gke web args[1] c")
    explained = run("param explain web args[1] --env gke -o json").json["parameters"][0]
    chain = [(step["layer"], step["value"], step["where"]) for step in explained["chain"]]
    assert [part[:2] for part in chain] == [("component", "b"), ("environment", "c")]
    assert chain[1][2] == "environments/gke/params.yaml:7"
    assert [(reach["path"], reach["value"]) for reach in explained["reaches"]] == [("data.args", "a c")]
    assert "default" not in run.ok("param explain web args[0] --set web.args[0]=q").partition("reaches")[0]
    wrong = run("param explain web args[7] --env gke")
    assert (wrong.code, "`args` has no `[7]`" in wrong.err) == (4, True)


def test_labels_of_pods_and_hashes_lead_to_who_adds_them(app: Path, run: Runner) -> None:
    manifest = """\
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: d}
        spec:
          selector: {matchLabels: {app: d}}
          template:
            metadata: {labels: {app: d}}
            spec:
              containers: [{name: main, image: nginx, envFrom: [{configMapRef: {name: web}}]}]
        """
    write_tree(app, {"components/d.yaml": manifest})
    (app / "app.yaml").write_text((app / "app.yaml").read_text() + "podLabels: {cost: ml, app: other}\n")
    inside = "spec.template.metadata"
    for field, origin in {
        f"{inside}.labels.cost": "app",
        f"{inside}.labels.app": "manifest",
        f'{inside}.annotations["mlstack.dev/config-hash"]': "mlstack",
        "spec.selector.matchLabels.app": "manifest",
    }.items():
        assert run("explain", "deployment/d", field, "--env", "gke", "-o", "json").json["origin"] == origin


def test_an_object_that_a_patch_deletes_leads_to_the_patch(app: Path, run: Runner) -> None:
    patch = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n$patch: delete\n"
    write_tree(app, {"environments/gke/patches/web.yaml": patch})
    ran = run("explain configmap/web data.color --env gke")
    assert (ran.code, "a patch deletes it" in ran.err) == (4, True)
    assert "environments/gke/patches/web.yaml:1" in ran.err


def test_a_field_without_its_path_leads_to_where_it_lies(app: Path, run: Runner) -> None:
    ran = run("explain configmap/web color --env gke")
    assert (ran.code, "did you mean `data.color`?" in ran.err) == (4, True)
