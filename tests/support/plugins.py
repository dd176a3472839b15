"""Credential plug-ins for tests: programs that answer as they are told, and note what they were asked."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"

_PROGRAM = """\
import json, os, pathlib, sys
folder = pathlib.Path(__file__).parent
runs = folder / "runs"
with runs.open("a") as file:
    print(os.environ["KUBERNETES_EXEC_INFO"].strip(), file=file)
number = len(runs.read_text().splitlines())
said = (folder / "answers").read_text().splitlines()
answer = said[min(number, len(said)) - 1]
{code}
print(answer)
"""


@dataclass(frozen=True)
class FakePlugin:
    """A plug-in in a folder of its own.

    Attributes:
        folder: where it lies.
    """

    folder: Path

    @property
    def command(self) -> str:
        """Give its path."""
        return str(self.folder / "login")

    @property
    def asked(self) -> list[Any]:
        """Give what it was asked, run by run."""
        runs = self.folder / "runs"
        return [json.loads(line) for line in runs.read_text().splitlines()] if runs.exists() else []

    def user(self, **more: Any) -> dict[str, Any]:
        """Give the user of a kubeconfig that logs in by it."""
        entry = {"apiVersion": V1, "command": self.command, "interactiveMode": "Never", **more}
        return {"exec": {key: value for key, value in entry.items() if value is not None}}


def credential(status: Mapping[str, Any] | None, *, version: str = V1, kind: str = "ExecCredential") -> str:
    """Write an answer."""
    return json.dumps({"apiVersion": version, "kind": kind, "status": status})


def token(text: str, **more: Any) -> str:
    """Write an answer with a token."""
    return credential({"token": text, **more})


def make(folder: Path, *answers: str, code: str = "") -> FakePlugin:
    """Make a plug-in that gives one answer a run, and the last one for ever.

    Args:
        folder: where it is put.
        answers: what it gives, each in one line.
        code: Python that runs before it answers.
    """
    folder.mkdir(exist_ok=True)
    (folder / "answers").write_text("".join(f"{answer}\n" for answer in answers or ("",)))
    (folder / "login.py").write_text(_PROGRAM.replace("{code}", code))
    starter = folder / "login"
    words = shlex.join([sys.executable, "-I", str(folder / "login.py")])
    starter.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    starter.chmod(0o700)
    return FakePlugin(folder)
