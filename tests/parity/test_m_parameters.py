"""Rows M: parameters at every level, in files and for one run."""

from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.oci import FakeRegistry

FRONT = "components/front.yaml"


def values(run: Runner, line: str = "param list front --env gke") -> dict[str, object]:
    return {row["name"]: row["value"] for row in run(f"{line} -o json").json["rows"]}


def changed(before: dict[str, bytes], root: Path) -> dict[str, list[str]]:
    """Give the lines that each changed or new file did not have before."""
    after = read_tree(root)
    return {
        path: [line for line in data.decode().splitlines() if line not in before.get(path, b"").decode()]
        for path, data in after.items()
        if data != before.get(path) and not path.startswith(".mlstack")
    }


def test_m1_set_for_a_component(demo: Path, run: Runner) -> None:
    before = read_tree(demo)
    run.ok("param set front replicas 2")
    assert changed(before, demo) == {FRONT: ["  replicas: 2"]}


def test_m2_set_for_a_component_in_an_environment(demo: Path, run: Runner) -> None:
    before = read_tree(demo)
    run.ok("param set front replicas 2 --env gke")
    assert changed(before, demo)["environments/gke/params.yaml"][-1] == "    replicas: 2"
    assert (values(run)["replicas"], values(run, "param list front")["replicas"]) == (2, 1)


def test_m3_set_for_the_app_a_module_and_an_environment(demo: Path, run: Runner) -> None:
    run.ok("generate web mod.back --image nginx")
    places = {"color green": "the whole app", "--module mod replicas 2": "module mod"}
    for words, place in {**places, "--env gke debug true": "all components in gke"}.items():
        assert run(f"param set {words} -o json").json["place"] == place
    assert "color: green" in (demo / "app.yaml").read_text()
    assert "replicas: 2" in (demo / "components/mod/params.yaml").read_text()
    assert "debug: true" in (demo / "environments/gke/params.yaml").read_text()
    back = values(run, "param list mod.back --env gke")
    assert (back["color"], back["replicas"], back["debug"]) == ("green", 2, True)
    both = run("param set --env gke --module mod replicas 3")
    assert both.code == 2


def test_m4_more_specific_wins(demo: Path, run: Runner) -> None:
    run.ok("generate web mod.back --image nginx")
    places = ("", "--module mod", "mod.back", "--env gke", "--env gke mod.back")
    wins = []
    for number, place in enumerate(places, 2):
        component = place.endswith("back")
        words = place.removesuffix("mod.back") + (" mod.back" if component else "")
        run.ok(f"param set {words} replicas {number}")
        wins.append(values(run, "param list mod.back --env gke")["replicas"])
    assert wins == [2, 3, 4, 5, 6]
    assert 'replicas: "9"' in run.ok("render gke -c mod.back --set replicas=9")


@pytest.mark.parametrize("place", ["front", "", "--env gke", "--env gke front"])
def test_m5_nested_keys_work_at_every_level(demo: Path, run: Runner, place: str) -> None:
    run.ok(f"param set {place} tags.team vision")
    run.ok("param", "set", *place.split(), r"tags.a\.b/c", "x")
    assert values(run)["tags"] == {"team": "vision", "a.b/c": "x"}
    run.ok(f"param unset {place} tags.team")
    assert values(run)["tags"] == {"a.b/c": "x"}


@pytest.mark.parametrize(
    ("text", "stored"), [("", "''"), ("-3.5", "'-3.5'"), ("-x", "-x"), ("--y=1", "--y=1")]
)
@pytest.mark.parametrize("place", ["front", "--env gke front"])
def test_m8_negative_numbers_and_empty_texts_can_be_set(
    demo: Path, run: Runner, place: str, text: str, stored: str
) -> None:
    run.ok("param", "set", *place.split(), "size", text)
    assert values(run)["size"] == text


TRICKY = """\
apiVersion: mlstack.dev/v1
kind: Component
prototype: ours/tools/web
params:   # ours
  image: &image nginx   # the image

  args: [a,  'b']
  size: *image
  tags: {a:   "1", b: -x}
  replicas:    1      # how many
  color: red
"""


def test_m9_setting_one_never_alters_another(demo: Path, run: Runner) -> None:
    (demo / FRONT).write_text(TRICKY)
    before = values(run)
    run.ok("param set front color green")
    assert values(run) == {**before, "color": "green"}


def test_m10_comments_and_order_are_kept(demo: Path, run: Runner) -> None:
    (demo / FRONT).write_text(TRICKY)
    run.ok("param set front replicas 7")
    assert (demo / FRONT).read_text() == TRICKY.replace("   1   ", "   7   ")


@pytest.mark.parametrize(
    ("line", "near"),
    [
        ("param set frnt replicas 2", "front"),
        ("param set front replica 2", "replicas"),
        ("param set front replicas 2 --env gek", "gke"),
    ],
)
def test_m11_unknown_names_lead_to_the_nearest(demo: Path, run: Runner, line: str, near: str) -> None:
    before = read_tree(demo)
    refused = run(line)
    assert (refused.code, f"did you mean `{near}`?" in refused.err, read_tree(demo)) == (4, True, before)


def test_m12_a_value_comes_from_a_file_or_from_stdin(
    demo: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    write_tree(demo, {"list.yaml": "[a, b]\n"})
    run.ok("param set front args --file list.yaml")
    monkeypatch.setattr("sys.stdin", io.StringIO("typed\n  twice\n"))
    run.ok("param set front size -f -")
    assert (values(run)["args"], values(run)["size"]) == (["a", "b"], "typed\n  twice\n")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["unset", "delete"])
@pytest.mark.parametrize("place", ["front", "", "--env gke", "--env gke front"])
def test_m14_unset_takes_a_value_back_at_every_level(demo: Path, run: Runner, verb: str, place: str) -> None:
    before = values(run)
    run.ok(f"param set {place} replicas 5")
    run.ok(f"param {verb} {place} replicas")
    assert values(run) == before
    absent = run(f"param {verb} {place} replicas")
    assert (absent.code, "is not set" in absent.err) == (4, True)


def test_m16_the_list_is_what_is_rendered(demo: Path, run: Runner) -> None:
    run.ok("generate web mod.back --image caddy")
    run.ok("param set --env gke mod.back color green")
    run.ok("env set gke --target mod.back")
    assert run.ok("render gke -c front -o name") == "ConfigMap default/front\n"  # though it is no target
    rows = run("param list --env gke -o json").json["rows"]
    assert {row["component"] for row in rows} == {"mod.back"}
    listed = {row["name"]: row["value"] for row in rows}
    rendered = run("render gke -o json").json["items"]
    assert [(obj["data"]["image"], obj["data"]["color"]) for obj in rendered] == [
        (listed["image"], listed["color"])
    ]


def test_m18_environments_are_compared(demo: Path, run: Runner) -> None:
    run.ok("param set --env gke front replicas 2")
    run.ok("generate web back --image nginx")
    run.ok("param set --env gke back color green")
    ran = run("param diff minikube gke --component front --exit-code -o json")
    assert (ran.code, [row["name"] for row in ran.json["rows"]]) == (1, ["replicas"])
    assert (ran.json["rows"][0]["first"], ran.json["rows"][0]["second"]) == (1, 2)
    assert run("param diff minikube gke").code == 0
    assert run("param diff minikube minikube --exit-code").code == 0


def test_m19_explain_tells_file_and_line_and_the_fields_it_reaches(demo: Path, run: Runner) -> None:
    run.ok("param set --env gke front color green")
    text = run.ok("param explain front color --env gke")
    assert "environments/gke/params.yaml:5" in text
    assert "reaches ConfigMap front" in text
    assert "data.color = green" in text


def test_m20_values_for_one_run(demo: Path, run: Runner) -> None:
    write_tree(demo, {"v.yaml": "components: {front: {replicas: 3}}\n", "w.yaml": "color: green\n"})
    before = read_tree(demo)
    text = run.ok("render gke --values v.yaml --values w.yaml --set front.image=caddy")
    assert all(line in text for line in ('replicas: "3"', "color: green", "image: caddy"))
    assert "image: caddy" in run("diff gke --set image=caddy").out
    after = {path: data for path, data in read_tree(demo).items() if not path.startswith(".mlstack")}
    assert after == {path: data for path, data in before.items() if not path.startswith(".mlstack")}


@pytest.mark.parametrize("image", ["{host}/ml/shop:1", "{host}/ml/shop"])
def test_m13_an_image_is_pinned_to_its_digest(demo: Path, run: Runner, image: str) -> None:
    with FakeRegistry().running() as registry:
        content = b'{"schemaVersion": 2}'
        registry.manifests |= {("ml/shop", tag): content for tag in ("1", "latest")}
        name = image.format(host=registry.host)
        run.ok(f"param set front image {name} --resolve-image")
        tagged = name if name.endswith(":1") else f"{name}:latest"
        pinned = f"{tagged}@sha256:{sha256(content).hexdigest()}"
        assert values(run)["image"] == pinned
        run.ok(f"param set front image {pinned} --resolve-image")
        before = read_tree(demo)
        gone = run(f"param set front image {registry.host}/ml/gone:1 --resolve-image")
    away = run(f"param set front image {name} --resolve-image")
    assert (gone.code, away.code, read_tree(demo)) == (4, 5, before)


def test_m17_what_an_environment_itself_sets_can_be_listed(demo: Path, run: Runner) -> None:
    run.ok("param set --env gke front replicas 3")
    run.ok("param set front color green")
    assert values(run, "param list --env gke --without-modules") == {"replicas": 3}
