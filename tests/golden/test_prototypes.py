"""Every example of every shipped prototype renders to what was read and approved, and is sound."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.app import files
from mlstack.app.app_dir import AppDir
from mlstack.objects.kube_object import KubeObject
from mlstack.validate.formats import Fault
from mlstack.validate.validate import load_schemas, validate_objects
from mlstack.yaml import read, write
from tests.conftest import Golden
from tests.generate import trainingjobs
from tests.support import examples, upstream
from tests.support.examples import Case

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
OLDEST, NEWEST = "1.30", "1.37"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> AppDir:
    return examples.shipped_app(tmp_path_factory.mktemp("examples") / "app")


Rendered = Callable[[Case], Sequence[KubeObject]]


@pytest.fixture(scope="module")
def rendered(app: AppDir) -> Rendered:
    """Render an example, once for all tests."""
    return cache(lambda case: examples.render(app, case).objects)


@pytest.fixture(scope="module")
def crds(app: AppDir) -> Sequence[Mapping[str, Any]]:
    """The definitions in the packages."""
    return [read.read_document(text, source=file).value for file, text in app.vendor.crds().items()]


@pytest.fixture(scope="module")
def upstream_crds(rendered: Rendered) -> Sequence[Mapping[str, Any]]:
    # TrainingJobs of EDL's time had no schema: ours is the only one there is.
    objects = [obj for case in examples.cases() for obj in rendered(case)]
    files = [*upstream.crds_of(objects), trainingjobs.FILES[0]]
    return [yaml.load(file.read_text(), yaml.CSafeLoader) for file in files]


@pytest.mark.parametrize("case", examples.cases(), ids=str)
def test_an_example_renders_as_approved(rendered: Rendered, case: Case, golden: Golden) -> None:
    documents = (readable(obj.data) for obj in rendered(case))
    golden(f"prototypes/{case}.yaml", write.to_yaml_documents(documents))


def readable(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give an object as it is; of a definition, whose fields a test of their own holds, only who it is."""
    if data["kind"] != "CustomResourceDefinition":
        return data
    digest = hashlib.sha256(write.to_json(data["spec"]).encode()).hexdigest()
    return {**data, "spec": {"names": data["spec"]["names"], "sha256 of the whole": digest}}


def test_no_approved_file_is_left_over() -> None:
    folder = Path(__file__).parent / "expected" / "prototypes"
    approved = {file.relative_to(folder).as_posix() for file in folder.rglob("*.yaml")}
    assert approved == {f"{case}.yaml" for case in examples.cases()}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("case", examples.cases(), ids=str)
def test_an_example_has_no_fault(
    rendered: Rendered, crds: Sequence[Mapping[str, Any]], case: Case, version: str
) -> None:
    needed = {need.kind for need in case.prototype.needs}
    faults = validate_objects(rendered(case), load_schemas(version), crds=crds, needed=needed).faults
    assert errors(faults) == []


@pytest.mark.parametrize("case", examples.cases(), ids=str)
def test_an_example_passes_upstreams_definitions(
    rendered: Rendered, upstream_crds: Sequence[Mapping[str, Any]], case: Case
) -> None:
    others = [obj for obj in rendered(case) if obj.kind != "CustomResourceDefinition"]
    assert errors(validate_objects(others, load_schemas(NEWEST), crds=upstream_crds).faults) == []


def errors(faults: Sequence[Fault]) -> list[Fault]:
    """Leave the warnings out: one example shows settings that are warned of."""
    return [fault for fault in faults if fault.severity == "error"]


IMAGE = re.compile(r"(?<![\w./:$-])[a-z0-9][\w.-]*(?:/[\w.-]+)*(?::[A-Za-z0-9][\w.-]*|@sha256:[0-9a-f]+)")
IN_ITS_PLACE = re.compile(r"definitions\.yaml$|/(examples?|files|crds)/|README\.md$")


def test_default_images_stand_in_the_definitions_of_their_package_alone() -> None:
    """A tag that one place alone says can be renewed there."""
    folder = files.folder("prototypes")
    texts = {
        file.relative_to(folder).as_posix(): file.read_text("utf-8")
        for file in folder.rglob("*")
        if file.suffix in (".yaml", ".j2") and not IN_ITS_PLACE.search(file.as_posix())
    }
    images = {
        f"{name}: {image}"
        for name, text in texts.items()
        for line in text.splitlines()
        if re.search(r"\b(image|default)\b", line, re.IGNORECASE) and "examples:" not in line
        for image in IMAGE.findall(line)
    }
    assert images == set()


PRINT_ALL = """
import sys
from pathlib import Path
from mlstack.app.app_dir import AppDir
from tests.golden.test_prototypes import digest_of_all
from tests.support import examples
app = AppDir(Path(sys.argv[1]))
print(digest_of_all(lambda case: examples.render(app, case).objects))
"""
OTHER_MACHINE = {
    **{"PYTHONHASHSEED": "4242", "TZ": "Pacific/Kiritimati", "LC_ALL": "C"},
    **{"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


def test_rendering_gives_the_same_bytes_on_any_machine(app: AppDir, rendered: Rendered) -> None:
    """In another process with its own seed of hashes, in another zone and locale, as in this one."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **OTHER_MACHINE}
    command = [sys.executable, "-c", PRINT_ALL, app.root]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, digest_of_all(rendered)), done.stderr


def digest_of_all(rendered: Rendered) -> str:
    """Give the digest of what all examples render to."""
    total = hashlib.sha256()
    for case in examples.cases():
        total.update(write.to_yaml_documents(obj.data for obj in rendered(case)).encode())
    return total.hexdigest()
