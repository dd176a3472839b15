"""Files that are no plain files, or another program's app, are refused by every command with their place."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.builders import read_tree
from tests.support.cli import Runner
from tests.support.commands import EDITS, READS
from tests.support.registry import small_app

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app with an environment and a component, in which commands run."""
    folder = small_app(tmp_path).root
    monkeypatch.chdir(folder)
    run.ok("env add prod --no-preset")
    run.ok("generate web front --image nginx")
    return folder


PLACES = {
    "components/x.yaml": "render prod",
    "components/front.yaml": "param set front color green",
    "components/shop/params.yaml": "param list",
    "environments/prod/environment.yaml": "env describe prod",
    "environments/prod/params.yaml": "render prod",
    "environments/prod/patches/front.yaml": "render prod",
    "mlstack.lock": "render prod",
    "vendor/ours/tools@1.2.0/web/x.txt": "prototype list",
    ".mlstack/current-environment": "env current",
}


@pytest.mark.parametrize(
    ("place", "what"),
    [
        *((place, "fifo") for place in PLACES),
        *(
            (place, what)
            for place in ("components/x.yaml", "mlstack.lock", "vendor/ours/tools@1.2.0/web/x.txt")
            for what in ("socket", "device", "huge")
        ),
    ],
)
def test_it_is_refused_with_its_place(run: Runner, root: Path, place: str, what: str) -> None:
    run.ok("generate web shop.cart --image nginx")
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    Path(place).unlink(missing_ok=True)
    if what == "fifo":
        os.mkfifo(place)
    elif what == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(place)
    elif what == "device":
        Path(place).symlink_to("/dev/zero")
    else:
        with Path(place).open("wb") as file:
            file.truncate(20 * 1024**3)  # takes no room on the disk
    done = subprocess.run(
        [sys.executable, "-m", "mlstack", *PLACES[place].split()],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode in (3, 5), done
    assert place.rpartition("/")[2] in done.stderr or place.partition("/web")[0] in done.stderr
    assert "hint: " in done.stderr or what == "huge"


OTHERS = (
    "pkg describe ours/tools",
    "prototype list",
    "prototype search web",
    "prototype describe web",
    "generate web --help",
    "param unset front image",
    "param diff prod prod",
    "render prod --out ../made",
    "diff prod",
    "plan prod --out ../plan.json",
    "delete prod --yes",
    "status prod",
    "history prod",
    "rollback prod --yes",
    "unlock prod --yes",
)
KSONNET = "apiVersion: 0.1.0\nkind: ksonnet.io/app\nname: old\nenvironments: {}\n"


@pytest.mark.parametrize("line", (*EDITS, *READS, *OTHERS))
@pytest.mark.parametrize("owner", ["ksonnet", "a newer mlstack"])
def test_each_command_leaves_it_alone(tmp_path: Path, run: Runner, root: Path, owner: str, line: str) -> None:
    run.ok("render prod")
    own = (root / "app.yaml").read_text().replace("mlstack.dev/v1", "mlstack.dev/v2")
    (root / "app.yaml").write_text(KSONNET if owner == "ksonnet" else own)
    (root / ".mlstack/lock").unlink()
    before = read_tree(tmp_path)
    ran = run(line)
    assert (ran.code, read_tree(tmp_path)) == (3, before), ran
    assert ("this is an app of ksonnet" if owner == "ksonnet" else "a newer mlstack wrote") in ran.err
    assert "app.yaml:" in ran.err
    assert run.clusters == {}
