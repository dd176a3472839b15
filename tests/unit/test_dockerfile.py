"""The Dockerfile, its steps run in folders of this machine: no container engine is assumed."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]


class Step(NamedTuple):
    """One instruction of a Dockerfile."""

    word: str
    rest: str


def steps() -> list[list[Step]]:
    """Read the Dockerfile: a list of stages, each with its instructions."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    stages: list[list[Step]] = []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        stages[-1].append(Step(word, rest.strip()))
    return stages


def only(stage: list[Step], word: str) -> str:
    """Give what the one instruction of this name says."""
    (rest,) = [step.rest for step in stage if step.word == word]
    return rest


class Image:
    """The file systems of a build as folders, with the packages of the tests in place of a registry."""

    def __init__(self, folder: Path) -> None:
        """Begin with nothing but the sources."""
        self.source, self.opt = folder / "source", folder / "opt"
        self.source.mkdir()
        self.opt.mkdir()
        installed = sysconfig.get_path("purelib")
        self.offline = {
            "PYTHONPATH": installed,
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PATH": os.defpath,
        }

    def here(self, command: str) -> str:
        """Move the paths of the image into the folder."""
        return command.replace("/opt/", f"{self.opt}/").replace("/source", str(self.source))

    def carry_out(self, step: Step) -> None:
        """Do one COPY or RUN of the build stage."""
        if step.word == "COPY":
            *names, target = shlex.split(step.rest)
            for name in names:
                self._copy(
                    ROOT / name, self.source / target if (ROOT / name).is_dir() else self.source / name
                )
        elif step.word == "RUN":
            command = re.sub(r"^python ", f"{shlex.quote(sys.executable)} ", self.here(step.rest))
            done = subprocess.run(
                ["sh", "-ec", command], cwd=self.source, env=self.offline, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{step.rest}\n{done.stdout}\n{done.stderr}"

    def _copy(self, origin: Path, target: Path) -> None:
        if origin.is_dir():
            shutil.copytree(origin, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(origin, target)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Build the image once."""
    image = Image(tmp_path_factory.mktemp("image"))
    for step in steps()[0]:
        image.carry_out(step)
    return image


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--version"], ["elastic", "run", "--help"]])
def test_the_image_answers_without_the_sources_it_was_built_from(
    image: Image, tmp_path: Path, arguments: list[str]
) -> None:
    stage = steps()[-1]
    (entry,) = json.loads(only(stage, "ENTRYPOINT"))
    shutil.rmtree(image.source, ignore_errors=True)
    program = image.opt / "mlstack" / "bin" / entry

    done = subprocess.run(
        [program, *arguments],
        cwd=tmp_path,
        env={"PATH": os.defpath, "PYTHONPATH": sysconfig.get_path("purelib"), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "mlstack" in done.stdout


@pytest.mark.slow
def test_the_package_in_the_image_is_its_own_and_brings_the_registry(image: Image) -> None:
    (package,) = image.opt.glob("mlstack/lib/python3*/site-packages/mlstack")

    assert (package / "_bundled" / "registry" / "registry.yaml").is_file()
    assert list(package.glob("__pycache__/*.pyc")), "compiled once, since the root may be read-only"


def test_it_runs_as_a_number_that_is_not_root() -> None:
    user = only(steps()[-1], "USER")

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "runAsNonRoot is checked by number"


def test_every_stage_begins_with_one_pinned_base() -> None:
    bases = {only(stage, "FROM").removesuffix(" AS build") for stage in steps()}

    (base,) = bases
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base)


def test_the_builder_is_sent_all_that_is_copied_and_no_more() -> None:
    allowed = [
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    copied = [name for step in steps()[0] if step.word == "COPY" for name in shlex.split(step.rest)[:-1]]

    assert sorted(allowed) == sorted(copied)
    assert all(not fnmatch(".git", pattern) for pattern in allowed)
