"""Any string that a prototype admits for any parameter changes that value, never the structure around it.

The law is that of the trial which `mlstack pkg test` makes: what is rendered with hostile texts is what is
rendered with harmless tokens, with each text in its token's place. Here it is held for texts of any kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlstack.app.params import Layer
from mlstack.app.prototype import Example, Prototype
from mlstack.errors import ConfigError, ParamError
from mlstack.render import trial
from mlstack.render.trial import HostileText, PrototypeTrial, hostile_value, string_places, try_hostile
from tests.support import examples
from tests.support.builders import resolve

# What the trial itself does not try: further numbers, words, marks and characters.
FURTHER = (
    *("no", "on", "off", "y", "n", "True", "Null", "none", "0o12", "1E3", ".5", "1_000", "12:30:45", "-0"),
    *("+1", ".NaN", "2001-01-01T00:00:00Z", "=", "<<", "...", "-", "?", ":", ",", "[", "]", "a:b", "a :b"),
    *(": ", "#", "a#b", "!!str x", "''", '""', 'say "x"', "\\u0041", "{", "}", "{}", "[]", "{{", "}}", "%}"),
    *("{username}", "{pvc_name}", "a\n", "\na", "a\n  b", "\ta", "a\rb", "> x", "|", "\x7f", "\x01"),
    *("\x1b[31m", "\ue000", "\u200b", "日本語", "👩‍🔬", "\U0010ffff", "a]", "a}", "a]}, {b: ["),
    *("&anchor *alias", "a=b,c=d", "x" * 10_000, "x " * 5_000),
)
LETTERS = st.characters(codec="utf-8", exclude_characters="\x00")
# Where a path is joined to another one slash is enough; an empty text may stand for none.
TEXT = st.text(LETTERS, min_size=1, max_size=40).filter(lambda text: not text.endswith("/"))
PLACES = [(prototype, path) for prototype in examples.prototypes() for path in string_places(prototype)]
IDS = [f"{prototype.name}:{'.'.join(map(str, path))}" for prototype, path in PLACES]


def faults(prototype: Prototype, *texts: str) -> list[HostileText]:
    """Try these texts at every place of a prototype that holds a string."""
    with patch.object(trial, "HOSTILE", texts):
        return try_hostile(PrototypeTrial(prototype), [*prototype.examples.values()]).faults


@pytest.mark.parametrize("prototype", examples.prototypes(), ids=lambda prototype: prototype.name)
def test_hostile_texts_change_only_their_values(prototype: Prototype) -> None:
    assert faults(prototype, *FURTHER) == []


@given(prototype=st.sampled_from(examples.prototypes()), texts=st.lists(TEXT, min_size=1, max_size=4))
def test_any_text_changes_only_its_value(prototype: Prototype, texts: list[str]) -> None:
    assert faults(prototype, *texts) == []


@pytest.mark.parametrize(("prototype", "path"), PLACES, ids=IDS)
def test_nul_is_refused(prototype: Prototype, path: tuple[str, ...]) -> None:
    with pytest.raises(ParamError):
        resolve(prototype.params, [Layer("component", dict([hostile_value(text_at(path, "a\x00b"))]))])


def text_at(path: tuple[str | int, ...], text: str) -> HostileText:
    return HostileText("", path, text, "")


# A namespace is stamped on objects later; the others are shown beside the volume or Secret that they belong
# to, which the trial gives at once.
ELSEWHERE = {"namespace", "volumeMountPath", "gcpCredentialSecretKey"}
EXCUSED = {
    "kubeflow-core": ("name",),  # is only hashed
    "pipeline-run": ("onExit",),  # is the name of a step
    **dict.fromkeys(("tensorboard", "mlflow"), ("accelerator",)),  # both ask for no GPUs
    **dict.fromkeys(("spark-application", "scheduled-spark-application"), ("runtimeClassName",)),  # no field
}


@pytest.mark.parametrize("prototype", examples.prototypes(), ids=lambda prototype: prototype.name)
def test_every_string_is_shown_by_an_example(prototype: Prototype) -> None:
    """What no example takes a token for can be no text that is hostile, or needs others beside it."""
    tried, hidden = PrototypeTrial(prototype), set()
    for path in string_places(prototype):
        uses = [*chain.from_iterable(shows(tried, example, path) for example in prototype.examples.values())]
        hidden |= {path[0]} if uses and not any(uses) else set()
    assert hidden <= {*ELSEWHERE, *EXCUSED.get(prototype.name, ())}


def shows(tried: PrototypeTrial, example: Example, path: tuple[str | int, ...]) -> Iterator[bool]:
    """Tell whether a token at a place, or a path or address that ends with it, is seen in the objects."""
    for prefix in ("", "/", "gs://"):
        name, value = hostile_value(text_at(path, f"{prefix}t0ken"))
        with suppress(ConfigError):
            objects = tried.objects(example.params, {name: value}, example=example)
            yield "t0ken" in json.dumps([obj.data for obj in objects])
