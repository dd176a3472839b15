"""Packages of one's own: what a trial finds in what they render, and whether users come through an update."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.errors import NotFoundError, UsageError
from mlstack.operations import authors
from mlstack.operations.authors import PackageTested
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.registry import REGISTRY, edited, small_app
from tests.support.registry import WEB_TEMPLATE as TEMPLATE

pytestmark = pytest.mark.slow


# --- trials ---


def faults(result: PackageTested, check: str) -> list[str]:
    return [fault.message for fault in result.faults if fault.check == check]


def test_a_sound_package_passes(registry: Path) -> None:
    result = authors.test_package(registry / "tools")
    assert (result.ok, result.faults, result.package, result.golden) == (True, (), "tools@1.2.0", "none")
    (row,) = result.prototypes
    assert (row.name, row.examples) == ("web", 1)
    assert row.combinations > 5 and row.hostile_texts > 100


def test_a_text_that_is_written_bare_is_found(registry: Path) -> None:
    edited(registry / TEMPLATE, "{{ params.image }}", "{{ params.image | raw }}")
    (message,) = faults(authors.test_package(registry / "tools"), "hostile")
    assert message.startswith("web, example plain: `image` given ")


def test_a_key_that_a_text_can_break_out_of_is_found(registry: Path) -> None:
    edited(registry / TEMPLATE, "  color:", "  {{ params.image | raw }}: x\n  color:")
    assert faults(authors.test_package(registry / "tools"), "hostile")


def test_a_combination_that_breaks_is_found_and_only_its_parameters_are_named(registry: Path) -> None:
    trap = '{% if params.debug and params.color == "green" %}{{ params.nothing }}{% endif %}\n'
    edited(registry / TEMPLATE, "apiVersion: v1\n", trap + "apiVersion: v1\n")
    (message,) = faults(authors.test_package(registry / "tools"), "matrix")
    assert message == 'web, example plain, with color="green", debug=true: `nothing` is not defined'


def test_a_combination_that_the_api_server_would_refuse_is_found(registry: Path) -> None:
    edited(
        registry / TEMPLATE, "metadata:\n", "metadata:\n{% if params.debug %}\n  labels: [a]\n{% endif %}\n"
    )
    assert not authors.test_package(registry / "tools").ok


def test_what_a_prototype_refuses_is_no_fault(registry: Path) -> None:
    refusal = '{% if params.debug and params.replicas == 9 %}{{ fail("not both") }}{% endif %}\n'
    edited(registry / TEMPLATE, "apiVersion: v1\n", refusal + "apiVersion: v1\n")
    assert authors.test_package(registry / "tools").ok


def test_golden_output_is_written_and_compared(registry: Path) -> None:
    place = registry / "tools"
    assert authors.test_package(place, update_golden=True).golden == "written"
    assert "image: nginx" in (place / "golden/web/plain.yaml").read_text()
    assert authors.test_package(place).golden == "compared"
    edited(registry / TEMPLATE, "  color:", "  colour:")
    (fault,) = authors.test_package(place).faults
    assert (fault.check, fault.where) == ("golden", f"{place}/golden/web/plain.yaml:7")
    assert authors.test_package(place, update_golden=True).ok
    assert authors.test_package(place).ok


def test_the_output_of_an_example_that_is_gone_is_told(registry: Path) -> None:
    authors.test_package(registry / "tools", update_golden=True)
    write_tree(registry, {"tools/golden/web/old.yaml": "kind: Old\n"})
    assert len(faults(authors.test_package(registry / "tools"), "golden")) == 1
    authors.test_package(registry / "tools", update_golden=True)
    assert not (registry / "tools/golden/web/old.yaml").exists()


SECOND = "kind: Example\napiVersion: mlstack.dev/v1\nparams: {image: 'nginx:2', token: secret}\n"


def test_examples_that_render_something_else_are_varied_too(registry: Path) -> None:
    write_tree(registry, {"tools/web/examples/token.yaml": SECOND, "tools/web/examples/twin.yaml": SECOND})
    trap = "{% if params.token and params.debug %}{{ params.nothing }}{% endif %}\n"
    edited(registry / TEMPLATE, "apiVersion: v1\n", trap + "apiVersion: v1\n")
    result = authors.test_package(registry / "tools")
    (row,) = result.prototypes
    assert (row.examples, row.varied[0], "twin" in row.varied) == (3, "plain", False)
    assert "`nothing` is not defined" in str(faults(result, "matrix"))


def test_combinations_are_bounded_and_the_rest_counted(
    registry: Path, monkeypatch: pytest.MonkeyPatch, run: Runner
) -> None:
    monkeypatch.setattr(authors, "MOST_COMBINATIONS", 3)
    (row,) = authors.test_package(registry / "tools").prototypes
    assert row.combinations == 3 and row.left_out > 3
    assert f"{row.left_out} combinations of web past the bound left out" in run("pkg test registry/tools").out


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{{ params.image }}", "{{ params.image | raw }}"),
        ("apiVersion: v1\n", "{% if params.debug %}{{ params.no }}{% endif %}\napiVersion: v1\n"),
        ("apiVersion: v1\n", "apiVersion: v1\n{{ params.no }}\n"),
    ],
    ids=["hostile", "matrix", "example"],
)
def test_each_fault_names_the_command_that_shows_it_again(
    registry: Path, run: Runner, old: str, new: str
) -> None:
    edited(registry / TEMPLATE, old, new)
    first = run("pkg test registry/tools -o json").json["faults"][0]
    assert (first["prototype"], first["example"]) == ("web", "plain")
    words = shlex.split(first["repeat"])
    assert words[:4] == ["mlstack", "pkg", "test", "registry/tools"]
    again = run(*words[1:], "-o", "json")
    assert (again.code, again.json["faults"][0]["check"]) == (1, first["check"])
    assert again.json["faults"][0]["message"] == first["message"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--prototype wb", 4, "did you mean `web`?"),
        ("--example plan", 4, "did you mean `plain`?"),
        ("--set image=x", 2, "--example NAME"),
        ("--prototype web --update-golden", 2, "for all examples at once"),
        ("--prototype web --example plain --set imag=x", 4, "did you mean `image`?"),
    ],
)
def test_what_is_selected_must_be_there(
    registry: Path, run: Runner, options: str, code: int, message: str
) -> None:
    ran = run(f"pkg test registry/tools {options}")
    assert (ran.code, message in ran.err) == (code, True), ran.err


def test_a_folder_without_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no package\.yaml"):
        authors.test_package(tmp_path)


# --- two versions ---

STORE = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: {{ name }}}
spec:
  serviceName: {{ name }}
  selector: {matchLabels: {app: {{ name }}}}
  template:
    metadata: {labels: {app: {{ name }}}}
    spec: {containers: [{name: main, image: {{ params.image }}}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: {{ name }}}
spec: {selector: {app: {{ name }}}, ports: [{port: 80}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{ name ~ "-logs" }}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
SELECTORS = {
    "matchLabels: {app: {{ name }}}": "matchLabels: {run: {{ name }}}",
    "labels: {app:": "labels: {run:",
}
CLAIM = STORE[STORE.rindex("---\n") :]
TEMPLATES = STORE[STORE.index("  volumeClaimTemplates") : STORE.index("---\n")]


def upgraded(
    registry: Path, changes: Mapping[str, str], file: str = "templates/page.yaml.j2"
) -> PackageTested:
    """Try a package whose version 2 differs from version 1 by some texts."""
    package = {
        "package.yaml": REGISTRY["registry/tools/package.yaml"],
        "web/prototype.yaml": REGISTRY["registry/tools/web/prototype.yaml"],
        "web/examples/plain.yaml": REGISTRY["registry/tools/web/examples/plain.yaml"],
        "web/templates/page.yaml.j2": STORE,
    }
    for version in ("one", "two"):
        write_tree(registry / version / "tools", package)
        write_tree(registry / version, {"base/package.yaml": REGISTRY["registry/base/package.yaml"]})
    for old, new in changes.items():
        edited(registry / "two/tools/web" / file, old, new)
    return authors.test_package(registry / "two/tools", against=str(registry / "one/tools"))


def test_an_update_that_changes_nothing_is_safe(registry: Path) -> None:
    result = upgraded(registry, {"image: {{ params.image }}": "image: {{ params.image }}, tty: true"})
    assert (result.ok, faults(result, "upgrade")) == (True, [])


@pytest.mark.parametrize(
    ("changes", "file", "fault"),
    [
        (SELECTORS, "templates/page.yaml.j2", "`spec.selector` cannot change while the object exists"),
        (
            {"serviceName: {{ name }}": "serviceName: all"},
            "templates/page.yaml.j2",
            "`spec.serviceName` cannot",
        ),
        ({TEMPLATES: ""}, "templates/page.yaml.j2", "the claim template `data` is dropped"),
        (
            {"spec: {selector: {app: {{ name }}}": "spec: {selector: {run: {{ name }}}"},
            "templates/page.yaml.j2",
            "Service `web`: the selector changes, and the pods that run lose its requests: app=web → run=web",
        ),
        (
            {
                "requests: {storage: 1Gi}}}\n": "requests: {storage: 1Gi}}}\n",
                CLAIM: CLAIM.replace("1Gi", "1Mi"),
            },
            "templates/page.yaml.j2",
            "PersistentVolumeClaim `web-logs`: it shrinks",
        ),
        ({CLAIM: ""}, "templates/page.yaml.j2", "the claim `web-logs` is dropped"),
        (
            {"[ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n---": "[]}\n---"},
            "templates/page.yaml.j2",
            "volumeClaimTemplates",
        ),
        (
            {"    debug: {type: boolean, default: false}\n": ""},
            "prototype.yaml",
            "the parameter `debug` is gone",
        ),
        (
            {"aliases: [num_replicas]": "aliases: []"},
            "prototype.yaml",
            "`num_replicas`, another name of `replicas`, is",
        ),
        ({"required: [image]": "required: [image, token]"}, "prototype.yaml", "`token` is required now"),
        ({"minLength: 1": "minLength: 9"}, "prototype.yaml", "its parameters do not render any more"),
    ],
    ids=[
        "selector",
        "field",
        "claim-template",
        "service",
        "claim-size",
        "claim",
        "claim-shape",
        "parameter",
        "alias",
        "required",
        "narrowed",
    ],
)
def test_an_update_that_breaks_its_users_is_a_fault(
    registry: Path, changes: Mapping[str, str], file: str, fault: str
) -> None:
    result = upgraded(registry, changes, file)
    assert not result.ok
    assert any(fault in message for message in faults(result, "upgrade"))


def test_a_changed_default_is_a_warning(registry: Path) -> None:
    result = upgraded(registry, {"default: 1\n": "default: 2\n"}, "prototype.yaml")
    assert result.ok
    assert faults(result, "upgrade") == ["web: the default of `replicas` changes: 1 → 2"]


def test_the_installed_version_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = small_app(tmp_path)
    place = tmp_path / "registry/tools"
    edited(place / "web/prototype.yaml", "    debug: {type: boolean, default: false}\n", "")
    result = authors.test_package(place, against="ours/tools@1.2.0", app=lambda: app)
    assert "the parameter `debug` is gone" in str(result.faults)
    with pytest.raises(UsageError, match="not an earlier"):
        authors.test_package(place, against="ours/base@1.0.0", app=lambda: AppDir(app.root))
    with pytest.raises(NotFoundError):
        authors.test_package(place, against="./nowhere", app=lambda: app)


def test_the_command_says_what_is_wrong_and_exits_with_1(registry: Path, run: Runner) -> None:
    assert run("pkg test registry/tools").code == 0
    edited(registry / TEMPLATE, "{{ params.image }}", "{{ params.image | raw }}")
    ran = run("pkg test registry/tools -o json")
    assert (ran.code, ran.json["ok"], ran.json["faults"][0]["check"]) == (1, False, "hostile")
    assert "1 fault" in run("pkg test registry/tools").out
