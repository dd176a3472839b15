"""An app of ksonnet, or of a newer mlstack, is neither read nor changed by any command."""

from pathlib import Path

import pytest

from tests.support.builders import read_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

COMMANDS = (
    "registry add others ../registry",
    "registry list",
    "registry describe ours",
    "pkg install ours/base",
    "pkg list",
    "pkg describe ours/tools",
    "pkg rm ours/tools",
    "prototype list",
    "prototype search web",
    "prototype describe web",
    "prototype preview web --image nginx",
    "prototype use web back --image nginx",
    "generate web back --image nginx",
    "generate web --help",
    "component list",
    "component rm front",
    "param set front color green",
    "param set --env prod front replicas 3",
    "param unset front image",
    "param list",
    "param diff prod prod",
    "param explain front image",
    "env add gke",
    "env list",
    "env describe prod",
    "env set prod --namespace other",
    "env rm prod",
    "env current",
    "env current --set prod",
    "env current --unset",
    "render prod",
    "render prod --out ../made",
    "validate prod",
    "diff prod",
    "plan prod --out ../plan.json",
    "apply prod --yes",
    "delete prod --yes",
    "status prod",
    "history prod",
    "rollback prod --yes",
    "unlock prod --yes",
)
KSONNET = "apiVersion: 0.1.0\nkind: ksonnet.io/app\nname: old\nenvironments: {}\n"


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("owner", ["ksonnet", "a newer mlstack"])
def test_every_command_leaves_it_alone(
    tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch, owner: str, line: str
) -> None:
    root = small_app(tmp_path).root
    monkeypatch.chdir(root)
    run.ok("env add prod --no-preset")
    run.ok("generate web front --image nginx")
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
