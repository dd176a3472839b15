"""Secret parameters whose values stand elsewhere: taken when objects are rendered, and left on no disk."""

import base64
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.builders import read_tree
from tests.support.cli import Runner
from tests.support.tools import tool

SECRET = "correct-horse-battery"
KEPT = "kept-in-a-safe"


def rendered(run: Runner, *words: str) -> str:
    ran = run("render", "gke", *words)
    assert ran.code == 0, ran.err
    encoded = ran.out.partition("  token: ")[2].split("\n")[0]
    return base64.b64decode(encoded).decode()


def assert_on_no_disk(secrets: tuple[str, ...], *folders: Path) -> None:
    forms = {form for text in secrets for form in (text.encode(), base64.b64encode(text.encode()))}
    for file in (file for folder in folders for file in folder.rglob("*") if file.is_file()):
        data = file.read_bytes()
        assert not any(form in data for form in forms), file


@pytest.mark.slow
@pytest.mark.parametrize("level", ["", "web", "--env gke", "--env gke web"])
def test_a_variable_of_the_environment_is_taken_when_rendering(
    app: Path, run: Runner, home: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    ran = run(f"param set {level} token '{{fromEnv: WEB_TOKEN}}'")
    assert ran.out.startswith('set token = {"fromEnv": "WEB_TOKEN"}'), ran
    assert "fromEnv: WEB_TOKEN" in "".join(file.read_text() for file in app.rglob("*.yaml"))
    missing = run("render gke")
    assert (missing.code, "the environment variable `WEB_TOKEN` is not set (" in missing.err) == (3, True)
    assert ".yaml:" in missing.err
    assert run("param list web --env gke").code == 0
    assert run("param explain web token --env gke").code == 0
    assert run("validate gke").code == 0
    monkeypatch.setenv("WEB_TOKEN", SECRET)
    assert rendered(run) == SECRET
    assert rendered(run) == SECRET
    monkeypatch.setenv("WEB_TOKEN", "other")
    assert rendered(run) == "other"
    monkeypatch.setenv("WEB_TOKEN", SECRET)
    assert run("plan gke --out ../plan.json").code in (0, 1)
    assert run("apply gke").code == 0
    for line in ("param list --env gke", "env describe gke", "param explain web token --env gke", "diff gke"):
        ran = run(line)
        assert SECRET not in ran.out + ran.err, line
    assert_on_no_disk((SECRET,), app, home, app.parent)


def test_what_a_variable_brings_is_checked(
    app: Path, run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WEB_TOKEN", SECRET)
    (tmp_path / "v.yaml").write_text("token: {fromEnv: WEB_TOKEN}\n")
    assert rendered(run, "--values", f"{tmp_path}/v.yaml") == SECRET
    assert rendered(run, "--set", "token={fromEnv: WEB_TOKEN}") == SECRET
    assert rendered(run, "--set-string", "token={fromEnv: WEB_TOKEN}") == "{fromEnv: WEB_TOKEN}"
    refused = run("render gke --set 'image={fromEnv: WEB_TOKEN}'")  # it is no secret parameter
    assert refused.code == 0 and SECRET not in refused.out
    assert run("generate web two --image a --token '{fromEnv: NOBODY}'").code == 0
    assert "the environment variable `NOBODY` is not set (components/two.yaml:" in run("render gke").err


def test_who_needs_no_secret_does_without(app: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    run("param set web token '{fromEnv: WEB_TOKEN}'")
    monkeypatch.setenv("WEB_TOKEN", SECRET)
    assert run("apply gke").code == 0
    monkeypatch.delenv("WEB_TOKEN")
    for line in (
        "status gke",
        "component list --kinds",
        "prototype preview web b --image c --token '{fromEnv: X}'",
        "explain secret/web data --env gke",
        "delete gke --yes",
    ):
        ran = run(line)
        assert ran.code == 0, (line, ran)
        assert SECRET not in ran.out + ran.err
    assert run("apply gke").code == 3


@pytest.mark.parametrize("text", ["{fromEnv: }", "{fromEnv: [A]}", "{fromEnvv: A}", "{fromEnv: A"])
def test_a_reference_to_nothing_is_refused(app: Path, run: Runner, text: str) -> None:
    refused = run("param", "set", "web", "token", text)
    assert (refused.code, "`token` names no environment variable" in refused.err) == (2, True)


@pytest.fixture(scope="session")
def program() -> Path:
    """The real program: where it is cached is told by the user's own home."""
    return tool("sops")


@pytest.fixture
def sops(app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path) -> Path:
    """The real program on the PATH, and a key that is made for the test."""
    key = tmp_path / "keys/id_ed25519"
    key.parent.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("SOPS_AGE_SSH_PRIVATE_KEY_FILE", str(key))
    return key


def encrypt(key: Path, file: Path, text: str) -> None:
    file.write_text(text)
    recipient = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    command = ["sops", "--encrypt", "--age", recipient, "--input-type", "yaml", "--in-place", str(file)]
    subprocess.run(command, check=True)
    assert SECRET not in file.read_text()


@pytest.mark.slow
def test_an_encrypted_file_of_an_environment_is_read_when_rendering(
    app: Path, run: Runner, sops: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(f"param set --env gke web token {KEPT}")
    file = app / "environments/gke/params.sops.yaml"
    encrypt(sops, file, f"globals:\n  token: lower\ncomponents:\n  web:\n    token: {SECRET}\n")
    assert rendered(run) == SECRET
    assert (
        "in `gke` another value counts (environments/gke/params.sops.yaml:"
        in run(f"param set --env gke web token {KEPT}").err
    )
    for line in (
        "param list web --env gke",
        "param list --own --env gke",
        "env describe gke",
        "param explain web token --env gke",
    ):
        ran = run(line)
        assert ran.code == 0, ran.err
        assert "********" in ran.out and SECRET not in ran.out + ran.err
    assert "environments/gke/params.sops.yaml:" in run("param explain web token --env gke").out
    assert run("apply gke --yes").code == 0
    (app / "environments/gke/params.yaml").unlink()
    assert_on_no_disk((SECRET, KEPT), app, home)
    monkeypatch.delenv("SOPS_AGE_SSH_PRIVATE_KEY_FILE")
    without = run("render gke")
    assert (without.code, "environments/gke/params.sops.yaml" in without.err) == (3, True)
    assert run("validate gke").code == 0
    monkeypatch.setenv("PATH", "/nowhere")
    missing = run("render gke")
    assert (missing.code, "the program `sops` is not installed" in missing.err) == (5, True)


@pytest.mark.slow
def test_an_encrypted_values_file_counts_for_one_run(
    app: Path, run: Runner, sops: Path, tmp_path: Path
) -> None:
    encrypt(sops, tmp_path / "values.yaml", f"token: {SECRET}\n")
    assert rendered(run, "--values", f"{tmp_path}/values.yaml") == SECRET
    encrypt(sops, tmp_path / "values.yaml", f"image: {SECRET}\n")
    refused = run(f"render gke --values {tmp_path}/values.yaml")
    assert (refused.code, "`image` is not secret, and the file is encrypted" in refused.err) == (3, True)


def test_a_file_that_should_be_encrypted_and_is_not_is_refused(app: Path, run: Runner) -> None:
    (app / "environments/gke/params.sops.yaml").write_text(f"globals: {{token: {SECRET}}}\n")
    refused = run("render gke")
    assert (refused.code, "the file is not encrypted" in refused.err) == (3, True)
    assert "sops encrypt --in-place environments/gke/params.sops.yaml" in refused.err


@pytest.mark.slow
def test_a_renamed_component_keeps_its_encrypted_values(
    app: Path, run: Runner, sops: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = app / "environments/gke/params.sops.yaml"
    encrypt(sops, file, f"globals:\n  token: lower\ncomponents:\n  web:\n    token: {SECRET}\n")
    run.ok("component rename web shop.page")
    assert rendered(run) == SECRET
    text = file.read_text()
    assert "shop.page:" in text and "web:" not in text
    assert_on_no_disk((SECRET,), app, home)
    before = read_tree(app)
    monkeypatch.delenv("SOPS_AGE_SSH_PRIVATE_KEY_FILE")
    refused = run("component rename shop.page web")
    assert (refused.code, "environments/gke/params.sops.yaml" in refused.err) == (3, True)
    assert read_tree(app) == before
    monkeypatch.setenv("SOPS_AGE_SSH_PRIVATE_KEY_FILE", str(sops))
    run.ok("component rm shop.page")
    assert "page" not in file.read_text()
    assert run("env describe gke").code == 0


def test_the_matrix_tells_that_secrets_differ_and_shows_none(app: Path, run: Runner) -> None:
    run.ok("env add prod --no-preset --namespace ml")
    for name in ("gke", "prod"):
        run.ok(f"param set --env {name} web token {SECRET}")
    assert run("env matrix gke prod -o json").json["rows"] == []
    run.ok(f"param set --env prod web token {KEPT}")
    ran = run("env matrix gke prod -o json")
    (row,) = ran.json["rows"]
    assert (ran.code, row["values"]) == (1, {"gke": "********", "prod": "******** (another)"})
    assert "another" in run("env matrix gke prod").out
    assert SECRET not in ran.out + ran.err and KEPT not in ran.out + ran.err
    run.ok("env", "matrix", "gke", "prod", "--approve", "own passwords")
    assert run("env matrix gke prod").code == 0
