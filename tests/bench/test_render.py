"""Rendering beside `helm template` and `kustomize build` of the same objects, where they are installed."""

import shutil
from pathlib import Path

import pytest

from tests.bench.apps import MLSTACK, helm_chart, kustomization, rendered, serving_app
from tests.bench.measure import Command, run_in_turn, show

pytestmark = pytest.mark.bench


@pytest.mark.parametrize(("components", "rounds"), [(1, 15), (100, 7), (1000, 3)])
def test_render_one_environment(tmp_path: Path, components: int, rounds: int) -> None:
    app = serving_app(tmp_path / "app", components=components, environments=1)
    commands = [Command(name="mlstack render", argv=[*MLSTACK, "render", "e0"], cwd=app)]
    documents = rendered(app, "e0")
    if helm := shutil.which("helm"):
        chart = helm_chart(tmp_path / "chart", documents)
        commands.append(Command(name="helm template", argv=[helm, "template", "bench", str(chart)]))
    # 1,000 components take kustomize about a minute: its time grows faster than the number of objects.
    if (kustomize := shutil.which("kustomize")) and components <= 100:
        folder = kustomization(tmp_path / "kustomization", documents)
        commands.append(Command(name="kustomize build", argv=[kustomize, "build", str(folder)]))
    title = f"render {components} components ({len(documents)} objects)"
    show(title, run_in_turn(commands, rounds=rounds), unit="mlstack render")


def test_render_a_thousand_components_in_ten_environments(tmp_path: Path) -> None:
    app = serving_app(tmp_path / "app", components=1000, environments=10)
    script = " && ".join(f"{MLSTACK[0]} render e{number}" for number in range(10))
    commands = [Command(name="mlstack render, ten times", argv=["sh", "-c", script], cwd=app)]
    if helm := shutil.which("helm"):
        chart = helm_chart(tmp_path / "chart", rendered(app, "e0"))
        ten = " && ".join([f"{helm} template bench {chart}"] * 10)
        commands.append(Command(name="helm template, ten times", argv=["sh", "-c", ten]))
    show("render 1,000 components x 10 environments", run_in_turn(commands, rounds=3), unit=commands[0].name)
