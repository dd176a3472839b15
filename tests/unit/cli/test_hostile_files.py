"""A FIFO, socket, device or endless file in the place of an app's file is refused with its place."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import Runner
from tests.support.registry import small_app

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
def test_it_is_refused_with_its_place(
    tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch, place: str, what: str
) -> None:
    root = small_app(tmp_path).root
    monkeypatch.chdir(root)
    run.ok("env add prod --no-preset")
    run.ok("generate web front --image nginx")
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
