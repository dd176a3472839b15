"""Environments: first ones, copies, personal overrides, other machines, those that end; row by row."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

HEAD = "apiVersion: mlstack.dev/v1\nkind: {}\n"
DAY_S = 86400.0
CLAIM = "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"


@pytest.fixture
def app(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    app_dir = small_app(tmp_path)
    monkeypatch.chdir(app_dir.root)
    run.ok("generate web front --image nginx")
    return app_dir.root


def shared(app: Path) -> dict[str, bytes]:
    return {name: data for name, data in read_tree(app).items() if not name.startswith(".mlstack/")}


# --- init ---


def test_a1_an_app_with_its_first_environment_renders_at_once(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.ok("init shop --env dev")
    monkeypatch.chdir("shop")
    assert run("render").code == 0
    assert run.ok("env current").strip() == "dev"


def test_a4_the_first_environment_has_the_name_it_is_given(run: Runner) -> None:
    ran = run("init shop --dir deep/er --env us/dev -o json")
    assert (ran.json["environment"], ran.json["context"]) == ("us/dev", "minikube")
    assert Path("deep/er/environments/us/dev/environment.yaml").is_file()


def test_a5_the_first_environment_takes_the_context_and_namespace_that_are_named(run: Runner) -> None:
    run.ok("init shop --context gke -n ml")
    text = Path("shop/environments/default/environment.yaml").read_text()
    assert text == HEAD.format("Environment") + "context: gke\nnamespace: ml\n"
    context = run("init at --server https://gke.invalid -o json").json["context"]
    assert context == "gke"
    ran = run("init other --context nowhere")
    assert (ran.code, Path("other").exists()) == (4, False)
    run.contexts, run.current = {}, ""
    assert run("init none --env dev -o json").json["context"] == ""


def test_a8_a_gitignore_that_is_there_is_completed(run: Runner) -> None:
    write_tree(Path("shop"), {".gitignore": "*.pyc\nvendor/"})
    run.ok("init shop")
    lines = Path("shop/.gitignore").read_text().splitlines()
    assert lines[:2] == ["*.pyc", "vendor/"]
    assert {"/.mlstack/", "!/vendor/"} < {*lines}
    write_tree(Path("other"), {".gitignore": ".mlstack/\n"})
    run.ok("init other")
    assert Path("other/.gitignore").read_text() == ".mlstack/\n"


# --- personal overrides ---


def test_a14_overrides_come_and_go_without_touching_shared_files(run: Runner, app: Path) -> None:
    run.ok("env add dev --no-preset")
    before, plain = shared(app), run.ok("render dev")
    run.ok("env set dev --override --context gke -n ada")
    assert "namespace: ada" in run.ok("render dev")
    assert shared(app) == before
    run.ok("apply dev")  # binds to the cluster behind one's own context, in one's own file
    assert (shared(app), list(run.clusters)) == (before, ["gke"])
    run.ok("env rm dev --override")
    assert (shared(app), run.ok("render dev")) == (before, plain)
    assert run("env rm dev --override").code == 4


def test_a14_parameters_and_registries_can_be_ones_own(run: Runner, app: Path, tmp_path: Path) -> None:
    run.ok("env add dev --no-preset")
    (tmp_path / "registry").rename(tmp_path / "mine")
    assert run("registry describe ours").code == 5
    own = "environments:\n- name: dev\n  components: {front: {replicas: 7}}\n"
    own += "registries: [{name: ours, address: ../mine}]\n"
    before = shared(app)
    write_tree(app, {".mlstack/overrides.yaml": HEAD.format("PersonalOverrides") + own})
    chain = run.ok("param explain front replicas --env dev")
    assert ".mlstack/overrides.yaml:5" in chain
    run.ok("registry describe ours")
    run.ok("pkg install ours/tools --force")
    assert shared(app) == before
    assert [row["overridden"] for row in run("registry list -o json").json["registries"]] == [True]


def test_a14_the_address_of_a_registry_can_be_ones_own(run: Runner, app: Path, tmp_path: Path) -> None:
    before = shared(app)
    (tmp_path / "registry").rename(tmp_path / "mine")
    assert run("registry set ours --uri ../nowhere --override").code == 5
    run.ok("registry set ours --uri ../mine --override")
    run.ok("registry describe ours")
    assert shared(app) == before
    run.ok("registry rm ours --override")
    assert (run("registry describe ours").code, shared(app)) == (5, before)
    assert run("registry rm ours --override").code == 4


def test_e12_a_component_that_is_no_target_is_told_of(run: Runner, app: Path) -> None:
    run.ok("generate web back --image nginx")
    run.ok("env add dev --no-preset")
    run.ok("env targets dev front")
    assert "`back` is no target of `dev`" in run("apply dev -c back").err
    assert "no target" not in run("apply dev -c front").err


def test_e6_env_list_marks_what_is_current_and_overridden(run: Runner, app: Path) -> None:
    run.ok("env add a --no-preset")
    run.ok("env add b --no-preset")
    headings = run.ok("env list").partition("\n")[0].split()
    assert headings == [
        "NAME",
        "CONTEXT",
        "NAMESPACE",
        "KUBERNETES",
    ]  # what is empty everywhere takes no room
    run.ok("env current --set b")
    run.ok("env set a --override -n mine")
    rows = run("env list -o json").json["environments"]
    assert [(row["current"], row["overridden"], row["namespace"]) for row in rows] == [
        (False, True, "mine"),
        (True, False, "default"),
    ]
    assert "OVERRIDDEN" in run.ok("env list")


def test_e10_env_set_leaks_nothing_personal(run: Runner, app: Path) -> None:
    run.ok("env add dev --no-preset")
    run.ok("env set dev --override --context gke -n ada")
    run.ok("env set dev --protected")
    text = (app / "environments/dev/environment.yaml").read_text()
    assert text == HEAD.format("Environment") + "context: minikube\nnamespace: default\nprotected: true\n"
    run.ok("env rename dev own")
    assert run("env describe own -o json").json["namespace"] == "ada"
    run.ok("env rm own --yes-i-mean own")
    run.ok("env add own --no-preset")
    assert run("env describe own -o json").json["namespace"] == "default"
    assert run("env set own --override --protected").code == 2


# --- what a namespace would take along ---


@pytest.mark.parametrize(
    ("kind", "head", "rest", "option"),
    [
        ("PersistentVolumeClaim", "", CLAIM, "--claims"),
        ("ConfigMap", "annotations: {mlstack.dev/prune: 'false'}", "data: {a: b}", "--foreign"),
    ],
)
def test_x7_a_namespace_never_takes_along_what_is_kept(
    run: Runner, app: Path, kind: str, head: str, rest: str, option: str
) -> None:
    manifest = f"apiVersion: v1\nkind: {kind}\nmetadata:\n  name: kept\n  {head}\n{rest}\n"
    write_tree(app, {"components/kept.yaml": manifest})
    run.ok("env add dev --no-preset -n own")
    run.ok("apply dev --no-wait")
    for words in ("delete dev --namespaces --yes", "delete dev --namespaces --dry-run"):
        ran = run(words)
        assert (ran.code, option in ran.err) == (2, True)
    assert run("status dev -o json").json["components"][1]["objects"][0]["state"] != "missing"
    run.ok(f"delete dev --namespaces {option} --yes")


# --- more environments ---


def test_e1_the_address_of_a_server_finds_its_context(run: Runner, app: Path) -> None:
    run.ok("env add dev --no-preset --server https://gke.invalid/")
    assert run("env describe dev -o json").json["context"] == "gke"
    run.ok("env set dev --server https://minikube.invalid")
    assert run("env describe dev -o json").json["context"] == "minikube"
    ran = run("env set dev --server https://gkee.invalid")
    assert (ran.code, "did you mean `https://gke.invalid`?" in ran.err) == (4, True)


@pytest.mark.parametrize("name", ["dev/patches", "a/", "/a", "dev/params.yaml"])
def test_e3_names_that_would_break_another_environment_are_refused(run: Runner, app: Path, name: str) -> None:
    run.ok("env add dev --no-preset")
    before = read_tree(app)
    assert run("env", "add", name).code == 2
    assert run("env", "copy", "dev", name).code == 2
    assert read_tree(app) == before


def test_e9_a_deployed_environment_that_is_renamed_says_how_to_go_on(run: Runner, app: Path) -> None:
    run.ok("env add us/dev --no-preset")
    run.ok("apply us/dev")
    ran = run("env rename us/dev eu/dev")
    assert "mlstack apply eu/dev --adopt" in ran.err
    assert sorted(path.name for path in (app / "environments").iterdir()) == ["eu"]
    assert run("apply eu/dev --adopt --yes -o json").json["counts"] == {"updated": 1}


def test_e9_what_an_environment_extends_can_change(run: Runner, app: Path) -> None:
    run.ok("env add base --no-preset -n shared")
    run.ok("env add dev --no-preset")
    run.ok("env set dev --extends base")
    assert run("env describe dev -o json").json["extends"] == "base"
    ran = run("env set base --extends dev")
    assert (ran.code, "extends" in ran.err) == (2, True)
    assert run("env set dev --extends nope").code == 4
    run.ok("env set dev --no-extends")
    assert run("env describe dev -o json").json["extends"] is None


def test_e12_targets_are_chosen_shown_and_given_up(run: Runner, app: Path) -> None:
    run.ok("env add dev --no-preset")
    run.ok("module create shop")
    assert run.ok("env targets dev front shop front").split() == ["front", "shop"]
    assert run.ok("env targets dev -o name").split() == ["front", "shop"]
    assert run("env targets dev nope").code == 4
    assert run("env targets dev --all -o json").json["targets"] == []


def test_e13_a_copy_has_all_but_the_cluster(run: Runner, app: Path) -> None:
    run.ok("env add dev --no-preset")
    run.ok("param set --env=dev front replicas 3")
    write_tree(app, {"environments/dev/patches/front.yaml": PATCH})
    run.ok("apply dev")
    assert "deploys to the same context and namespace" in run("env copy dev same").err
    ran = run("env copy dev us/prod --context gke -n ml --ttl 48h")
    assert (ran.code, "same context" in ran.err) == (0, False)
    described = run("env describe us/prod -o json").json
    assert (described["context"], described["namespace"], described["cluster"]) == ("gke", "ml", None)
    assert 'replicas: "3"' in run.ok("render us/prod")
    assert 'patched: "yes"' in run.ok("render us/prod")


PATCH = """\
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: front}
    data: {patched: 'yes'}
    """


def test_e16_an_environment_can_use_the_account_of_its_pod(run: Runner, app: Path) -> None:
    run.contexts, run.current = {}, ""
    run.ok("env add prod --no-preset --in-cluster -n ml")
    assert run("env describe prod -o json").json["context"] == "in-cluster"
    run.ok("render prod")
    run.ok("apply prod")
    assert list(run.clusters) == ["in-cluster"]


def test_e2_a_context_of_another_machine_is_taken_as_it_is(run: Runner, app: Path) -> None:
    assert run("env add prod --context elsewhere").code == 4
    run.ok("env add prod --no-preset --context elsewhere --offline -n ml")
    run.ok("env add bare --no-preset --offline")
    assert run("render bare").code == run("validate prod").code == 0
    ran = run("apply bare")
    assert (ran.code, "mlstack env set bare --context CONTEXT" in ran.err) == (3, True)


def test_e11_environments_that_are_over_are_listed(run: Runner, app: Path) -> None:
    run.ok("env add pr-12 --no-preset --ttl 48h")
    run.ok("env add pr-13 --no-preset --ttl 72h")
    run.ok("env add stays --no-preset")
    assert run.ok("env expired -o name") == ""
    run.clock.sleep(2.5 * DAY_S)
    assert run.ok("env expired -o name").split() == ["pr-12"]
    run.ok("env set pr-12 --ttl 1h")
    assert run.ok("env expired -o name") == ""
    run.ok("env set pr-12 --ttl never")
    assert run("env describe pr-12 -o json").json["expires"] == ""


# --- labels and annotations ---


def test_labels_come_and_go_and_give_the_file_back(run: Runner, app: Path) -> None:
    run.ok("env add dev --no-preset")
    before = shared(app)
    run.ok("env set dev --label team=ml --label cost=1 --pod-annotation x.io/scrape=true")
    labels = run("render dev -o json").json["items"][0]["metadata"]["labels"]
    assert (labels["team"], labels["cost"]) == ("ml", "1")
    run.ok("env set dev --label team- --label cost- --pod-annotation x.io/scrape-")
    assert shared(app) == before
    assert run("env set dev --label team-").code == 4


def test_a_label_of_the_app_is_taken_away_in_one_environment(run: Runner, app: Path) -> None:
    run.ok("env add dev --no-preset")
    before = shared(app)
    run.ok("app set --label team=core --pod-label zone=eu")
    run.ok("env set dev --label team-")
    for _ in range(2):
        assert "team: null" in (app / "environments/dev/environment.yaml").read_text()
        assert "team" not in run("render dev -o json").json["items"][0]["metadata"]["labels"]
        run.ok("env set dev --label team-")
    run.ok("env set dev --label team=own")
    assert "`labels.team` is `core` again" in run("env set dev --label team-").err
    run.ok("app set --label team- --pod-label zone-")
    assert shared(app) == before


@pytest.mark.parametrize(
    "option", ["team", "mlstack.dev/app=x", "team=a/b", "'a b=c'", "app.kubernetes.io/part-of=x"]
)
def test_what_is_no_label_changes_nothing(run: Runner, app: Path, option: str) -> None:
    run.ok("env add dev --no-preset")
    before = shared(app)
    for command in ("env set dev", "app set"):
        ran = run(f"{command} --label fine=1 --label {option}")
        assert (ran.code, "hint:" in ran.err) == (2, True)
    assert shared(app) == before


def test_a1_the_only_environment_is_the_one_that_is_meant(run: Runner, app: Path) -> None:
    none = run("render")
    assert (none.code, "mlstack env add NAME" in none.err) == (2, True)
    run.ok("env add dev --no-preset")
    assert "kind: ConfigMap" in run.ok("render")
    run.ok("env add prod --no-preset")
    several = run("render")
    assert (several.code, "There are dev, prod" in several.err) == (2, True)
    run.ok("env current --set prod")
    assert "mlstack.dev/environment: prod" in run.ok("render")


def test_a14_a_parameter_is_made_ones_own_and_taken_back(run: Runner, app: Path) -> None:
    run.ok("env add dev --no-preset")
    run.ok("param set --env dev front replicas 2")
    before = shared(app)
    text = run.ok("param set --env dev --override front replicas 7")
    assert "for you alone, .mlstack/overrides.yaml" in text
    run.ok("param set --env dev --override color green")
    run.ok("param set --env dev --override front tags.team me")
    run.ok("param set --env dev --override front args a,b")
    run.ok("param set --env dev --override front args[1] c")
    chain = run("param explain front replicas --env dev -o json").json["parameters"][0]
    assert (chain["value"], chain["where"]) == (7, ".mlstack/overrides.yaml:7")
    described = run.ok("env describe dev")
    assert "globals.color, components.front.replicas" in described
    assert ".mlstack/overrides.yaml" in described
    assert 'replicas: "7"' in run.ok("render dev") and "color: green" in run.ok("render dev")
    for words in ("color", "front replicas", "front tags.team", "front args"):
        run.ok(f"param unset --env dev --override {words}")
    assert run("param unset --env dev --override front replicas").code == 4
    assert not (app / ".mlstack/overrides.yaml").exists()
    assert shared(app) == before
    run.ok("env set dev --override -n ada")
    own = (app / ".mlstack/overrides.yaml").read_bytes()
    run.ok("param set --env dev --override front replicas 7")
    run.ok("param unset --env dev --override front replicas")
    assert (app / ".mlstack/overrides.yaml").read_bytes() == own
    assert run("param set --override front replicas 7").code == 2
    assert run("param set --module m --override front replicas 7").code == 2


READ_ONLY = """
import sys
from mlstack.cli.main import main
from tests.support.cli import Runner
runner = Runner(capsys=None, contexts={"minikube": "default"})
lines = ("render dev", "diff dev", "apply dev", "apply dev", "status dev")
codes = [main(line.split(), ports=runner.ports()) for line in lines]
print(codes, file=sys.stderr)
"""


@pytest.mark.slow
def test_a_first_apply_of_a_checkout_that_cannot_be_written_goes_ahead(run: Runner, app: Path) -> None:
    run.ok("env add dev --no-preset")
    before = read_tree(app)
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && cd "$1"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    arguments = [f'{mount} && exec "$2" -c "$0"', READ_ONLY, str(app), sys.executable]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [*command, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip(f"nothing may be mounted here: {done.stderr}")
    assert done.stderr.endswith("[0, 1, 0, 0, 0]\n"), done.stderr
    assert "is bound to no cluster, as the app cannot be written" in done.stderr
    assert read_tree(app) == before


def test_a_lifetime_without_a_unit_is_refused(demo: Path, run: Runner) -> None:
    ran = run("env add pr-7 --offline --no-preset --ttl 48")
    assert (ran.code, "hint: --ttl 48h" in ran.err) == (2, True)
    assert not (demo / "environments/pr-7").exists()


def test_a_wrong_name_among_several_environments_shows_those_there_are(demo: Path, run: Runner) -> None:
    ran = run("env matrix minikube nowhere")
    assert (ran.code, "there is gke, minikube;" in ran.err) == (4, True)
