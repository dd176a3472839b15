"""Law: a parameter changes its value in the rendered text, never the structure around it."""

from typing import Any

import pytest
from hypothesis import given

from mlstack.app.prototype import Prototype
from mlstack.render.template import Renderer
from mlstack.yaml.read import read_document
from tests.property import strategies
from tests.property.test_emit import as_kubectl, has_short_keys, typed
from tests.property.test_scalars import READERS as OTHER_READERS

TEMPLATE = """\
kind: {{ x }}
nested:
  - {{ x }}
  - name: {{ x }}
    flow: {a: {{ x }}, b: [{{ x }}]}
{% if true %}
  - block:
{{ x | yaml(indent=8) }}
{% endif %}
json: {{ x | json }}
joined: {{ "<" ~ x ~ ">" }}
"""
READERS = {"ours": lambda text: read_document(text, source="x").value, **OTHER_READERS}
RENDERER = Renderer(Prototype(name="p", package="x", registry="r", templates={"t": TEMPLATE}))


@pytest.mark.parametrize("reader", READERS)
@given(value=strategies.values.filter(has_short_keys))
def test_a_value_stays_a_value(reader: str, value: Any) -> None:
    read = READERS[reader](RENDERER.rendering({"x": value}).render("t"))
    want = as_kubectl(value) if reader == "ours" else value
    json, joined = read.pop("json"), read.pop("joined")
    assert typed(read) == typed(
        {"kind": want, "nested": [want, {"name": want, "flow": {"a": want, "b": [want]}}, {"block": want}]}
    )
    assert isinstance(json, str)
    assert joined == f"<{value}>"


@given(value=strategies.values.filter(has_short_keys))
def test_rendering_twice_gives_the_same_bytes_and_every_line_has_a_place(value: Any) -> None:
    text = RENDERER.rendering({"x": value}).render("t")
    marked, places = RENDERER.rendering({"x": value}).render_with_places("t")
    assert marked == text
    assert len(places) == text.count("\n") + 1
    lines = [place.line for place in places if place]
    assert len(lines) == len(places)
    assert lines == sorted(lines)
