"""Tasks of Kubeflow's guides: what a guide asked for, and what mlstack asks for.

Both begin in an app with an environment, or where the guide began before that. Counted is what changes
something, on both sides: no looking, no variables, no `cd`; a click of a guide through pages is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.cli import Runner


@dataclass(frozen=True)
class Guide:
    """One guide: what it asked for, what we ask for, and what comes of ours."""

    source: str
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    kinds: str  # of the objects that are applied at last, beside others

    @property
    def environment(self) -> str:
        """Give the environment of the last command, which applies."""
        return self.ours[-1].split()[1]

    def prepare(self, run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run what comes before the last command in a new app; what other programs do is left out."""
        monkeypatch.chdir(folder)
        run.ok("init demo --env minikube --context minikube")
        monkeypatch.chdir(folder / "demo")
        for line in ("env add gke --context gke", *self.ours[:-1]):
            if not line.startswith("$ "):
                run.ok(line)


_TEXT = (Path(__file__).parent / "data" / "guides.yaml").read_text(encoding="utf-8")
GUIDES = {
    name: Guide(row["source"], tuple(row["theirs"]), tuple(row["ours"]), row["kinds"])
    for name, row in yaml.safe_load(_TEXT).items()
}
