"""Templates: values never change the structure around them, faults name file, line and what was meant."""

import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from mlstack.app.prototype import Prototype
from mlstack.disk_cache import NO_STORE, ByteStore, Cache
from mlstack.errors import TemplateError
from mlstack.render import template
from mlstack.render.template import Engine, Renderer, TemplatePlace, mark_of, unmarked


def renderer_of(
    templates: dict[str, str], files: dict[str, str] | None = None, store: ByteStore = NO_STORE
) -> Renderer:
    sources = {name: f"vendor/p/templates/{name}" for name in templates}
    prototype = Prototype(
        name="p", package="x", registry="r", templates=templates, sources=sources, files=files or {}
    )
    return Renderer(prototype, Engine(store))


def render(text: str, /, **variables: Any) -> str:
    return renderer_of({"a.yaml.j2": text}).rendering(variables).render("a.yaml.j2")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("yes", '"yes"'),
        ("a: b\n", '"a: b\\n"'),
        ("{{ x }}", '"{{ x }}"'),
        ("", '""'),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (["no", {"a": None}], '["no", {"a": null}]'),
        ({}, "{}"),
    ],
)
def test_an_expression_is_written_as_one_safe_value(value: Any, text: str) -> None:
    assert render("a: {{ params.x }}\n", params={"x": value}) == f"a: {text}\n"
    assert render("a: {{ params.x | scalar }}\n", params={"x": value}) == f"a: {text}\n"


def test_a_longer_text_is_put_together_in_the_expression() -> None:
    assert render('a: {{ "on" }}\nb: {{ "yes: " ~ x }}\nc: {{ "%s-%d" % ("a", 1) }}\n', x="y") == (
        'a: "on"\nb: "yes: y"\nc: a-1\n'
    )


def test_filters_for_json_digests_and_blocks() -> None:
    text = (
        "a: {{ x | json }}\nb: {{ x | tojson }}\nc: {{ 'ü' | sha256 }}\nd: {{ 'ü' | b64 }}\n"
        "e:\n{{ x | yaml(indent=2) }}\nf: {{ 'yes: no' | raw }}\n"
    )
    assert render(text, x={"k": "<a&'b'>\n", "l": [1, 2]}) == (
        "a: '{\"k\": \"<a&''b''>\\n\", \"l\": [1, 2]}'\n"
        "b: '{\"k\": \"<a&''b''>\\n\", \"l\": [1, 2]}'\n"
        f'c: "{sha256_of("ü")}"\nd: w7w=\n'
        "e:\n  k: |\n    <a&'b'>\n  l:\n  - 1\n  - 2\nf: yes: no\n"
    )


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "value", ["a\n\nb\n", "x", {}, [], None, {"a": "b\n\n c\n\n\n"}, ["a\nb", {"c": []}]]
)
def test_a_block_under_a_key_is_the_value(value: Any) -> None:
    text = render("a:\n{{ x | yaml(indent=4) }}\nb: 1\n", x=value)
    assert yaml.safe_load(text) == {"a": value, "b": 1}


def test_text_of_templates_is_written_as_it_is() -> None:
    templates = {
        "a.yaml.j2": (
            '{% import "_lib.j2" as lib with context %}{% extends "_base.j2" %}\n'
            "{% block body %}\n"
            "{% set text %}t: {{ v }}{% endset %}\n"
            "{{ lib.entry('k', v) }}\n{{ text }}\n"
            "{% call lib.wrap() %}inner: {{ v }}{% endcall +%}\n"
            "{{ lib.entry('n', v) | indent(2) }}\n{{ super() }}"
            "{% endblock %}\n"
        ),
        "_base.j2": "first: 1\n{% block body %}last: {{ v }}\n{% endblock %}",
        "_lib.j2": (
            "{% macro entry(key, value) %}{{ key }}: {{ value }}{% endmacro %}"
            "{% macro wrap() %}outer: {{ v }}, {{ caller() }}{% endmacro %}"
        ),
    }
    renderer = renderer_of(templates)
    assert renderer.names == ("a.yaml.j2",)
    assert renderer.rendering({"v": "yes"}).render("a.yaml.j2") == (
        'first: 1\nk: "yes"\nt: "yes"\nouter: "yes", inner: "yes"\n"n": "yes"\nlast: "yes"\n'
    )


def test_a_macro_inside_a_longer_value_is_a_value_again() -> None:
    text = "{% macro m() %}a: b{% endmacro %}x: {{ m() ~ '' }}\ny: {{ m() }}\n"
    assert render(text) == 'x: "a: b"\ny: a: b\n'


def test_keys_of_a_mapping_come_before_its_methods() -> None:
    text = "a: {{ p.items }}\nb: {{ p['keys'] }}\n{% for k, v in q.items() %}{{ k }}: {{ v }}\n{% endfor %}"
    assert render(text, p={"items": 1, "keys": 2}, q={"c": 3}) == "a: 1\nb: 2\nc: 3\n"


def test_state_survives_loops_and_files_are_read() -> None:
    text = "{% set s = state(n=0) %}{% for i in range(3) %}{% set s.n = s.n + i %}{% endfor %}a: {{ s.n }}\n"
    assert render(text) == "a: 3\n"
    renderer = renderer_of({"a.j2": "a: {{ file('r.sh') }}\nb: {{ file('r.sh') | raw }}\n"}, {"r.sh": "x: y"})
    assert renderer.rendering({}).render("a.j2") == 'a: "x: y"\nb: x: y\n'


def test_plain_methods_can_be_called_inside_loops() -> None:
    text = "{% for k in ['a', 'b'] %}{{ {'a': 1}.get(k, 2) }} {{ 'ab'.strip(k) }} {% endfor %}"
    assert render(text) == "1 b 2 a "


def test_blocks_leave_no_empty_lines() -> None:
    assert (
        render("a: 1\n  {% if true %}\n  b: 2\n  {% endif %}\n{# note #}\nc: 3\n") == "a: 1\n  b: 2\nc: 3\n"
    )


@pytest.mark.parametrize(
    ("text", "message", "line", "hint"),
    [
        ("\na: {{ params.num_gpu }}\n", "`num_gpu` is not defined", 2, "did you mean `num_gpus`?"),
        ("\na: {{ params['num_gpu'] }}\n", "`num_gpu` is not defined", 2, "did you mean `num_gpus`?"),
        ("a: 1\n\nb: {{ parms.x }}\n", "`parms` is not defined", 3, "did you mean `params`?"),
        ("{% if missing %}{% endif %}", "`missing` is not defined", 1, None),
        ("{% for x in params.l %}\n{{ x.y }}\n{% endfor %}", "`y` is not defined", 2, None),
        ("\n\n{{ fail('no ' ~ params.num_gpus) }}", "no 2", 3, None),
        ("{{ file('run.shh') }}", "the prototype has no file `run.shh`", 1, "did you mean `run.sh`?"),
        ("a\n{% include '_lob.j2' %}", "the package has no template `_lob.j2`", 2, "did you mean `_lib.j2`?"),
        ("{% include '/etc/passwd' %}", "the package has no template `/etc/passwd`", 1, None),
        ("{% include '../_lib.j2' %}", "has no template `../_lib.j2`", 1, "did you mean `_lib.j2`?"),
        ("\n{% if %}", "the template does not parse: Expected an expression", 2, None),
        ("{{ 1 | scaler }}", "there is no filter `scaler`", 1, "did you mean `scalar`?"),
        ("{{ [1] | random }}", "there is no filter `random`", 1, None),
        ("{{ lipsum() }}", "`lipsum` is not defined", 1, None),
        ("\n{{ 1 // 0 }}", "ZeroDivisionError", 2, None),
        ("{{ 'a' + 1 }}", "TypeError: can only concatenate str", 1, None),
        ("{{ params.items }}", "`builtin_function_or_method` is no scalar", 1, None),
        ("{{ params.l.append(1) }}", "access to attribute 'append' of 'list' object is unsafe", 1, None),
        ("{{ params.__class__ }}", "access to attribute '__class__' of 'dict' object is unsafe", 1, None),
        ("{{ params.update(a=1) }}", "access to attribute 'update' of 'dict' object is unsafe", 1, None),
        ("{{ ''.__class__.__mro__ }}", "unsafe", 1, None),
        ("{{ state(a=1).__class__ }}", "unsafe", 1, None),
        ("{{ state(a=1).b }}", "`b` is not defined", 1, None),
        ("{% import '_lib.j2' as lib %}{{ lib.__dict__ }}", "unsafe", 1, None),
        ("{% import '_lib.j2' as lib %}{{ lib._body_stream }}", "unsafe", 1, None),
        ("{% import '_lib.j2' as lib %}{{ lib.other }}", "`other` is not defined", 1, None),
        ("{{ '{0.__class__}'.format(1) }}", "unsafe", 1, None),
        ("{{ range(10000000) }}", "Range too big", 1, None),
        ("{{ 'a' * 100000000 }}", "more than 1000000", 1, None),
        ("{{ 9 ** 99999 }}", "a power above 1000", 1, None),
        ("a: {{ '\\0' }}", "cannot hold the character U+0000", 1, None),
    ],
)  # fmt: skip
def test_a_fault_names_the_line_and_what_was_meant(
    text: str, message: str, line: int, hint: str | None
) -> None:
    renderer = renderer_of({"a.yaml.j2": text, "_lib.j2": ""}, {"run.sh": ""})
    with pytest.raises(TemplateError) as caught:
        renderer.rendering({"params": {"num_gpus": 2, "l": [{"x": 1}]}}).render("a.yaml.j2")
    assert message in str(caught.value)
    assert caught.value.where == f"vendor/p/templates/a.yaml.j2:{line}"
    if hint or "not defined" not in message:
        assert caught.value.hint == hint


STEPS, SIZE, WIDTH = "1,000,000 steps", "more than 8 MiB", "width"
GROWING = "{% set s = state(x=START) %}{% for i in range(60) %}{% set s.x = STEP %}{% endfor %}{{ s.x }}"


def growing(start: str, step: str) -> str:
    """Write a template that would make a value of 2 to the 60th parts."""
    return GROWING.replace("START", start).replace("STEP", step)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", STEPS),
        ("{% for a in range(999) %}{% for b in range(9999)|map('abs') %}{% endfor %}{% endfor %}", STEPS),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "too deeply"),
        ("{% include 'a.yaml.j2' %}", "too deeply"),
        ("{% block b %}{{ self.b() }}{% endblock %}", "too deeply"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "too deeply"),
        ("{% set n = n|d(40) - 1 %}{% if n %}" + "{% include 'a.yaml.j2' %}" * 2 + "{% endif %}", STEPS),
        (growing("'ab'", "s.x ~ s.x"), SIZE),
        (growing("'ab'", "s.x + s.x"), SIZE),
        (growing("'ab'", "[s.x, s.x]|join"), SIZE),
        (growing("'ab'", "''.join([s.x, s.x])"), SIZE),
        (growing("'ab'", "'%s%s'|format(s.x, s.x)"), SIZE),
        (growing("'ab'", "'{0}{0}'.format(s.x)"), SIZE),
        (growing("'ab'", "s.x.replace('b', s.x)"), SIZE),
        (growing("[1]", "[s.x, s.x]"), SIZE),
        (growing("[1]", "(s.x, s.x)"), SIZE),
        (growing("[1]", "s.x + s.x"), SIZE),
        (growing("{}", "{'a': s.x, 'b': s.x}"), SIZE),
        (growing("{}", "dict(a=s.x, b=s.x)"), SIZE),
        (growing("[1]", "{}.fromkeys(range(9), s.x)"), SIZE),
        (growing("9", "s.x * s.x"), "1,200 figures"),
        ("{{ 9 ** 999 ** 999 }}", "1,200 figures"),
        ("{% set x %}{% for a in range(99999) %}" + "x" * 1000 + "{% endfor %}{% endset %}", SIZE),
        ("{% for a in range(99999) %}" + "x" * 10000 + "{% endfor %}", "more than 100 MB"),
        ("{% for a in range(9999) %}{{ note('x' * 100000 ~ a) }}{% endfor %}", "more than 100 MB"),
        ("{{ range(99999)|map('string')|map('center', 90000)|join }}", "more than 100 MB"),
        ("{{ ([0] * 99999)|map('default', 'a' * 1000000, true)|join }}", "more than 100 MB"),
        ("{{ 'a'|center(1000000000) }}", WIDTH),
        ("{{ 'a'|indent(1000000000, true) }}", WIDTH),
        ("{{ {'a': 1}|yaml(1000000000) }}", WIDTH),
        ("{{ [1]|batch(1000000000, 'x')|list }}", WIDTH),
        ("{{ [1]|slice(1000000000)|list }}", WIDTH),
        ("{{ 1.5|round(1000000000) }}", WIDTH),
        ("{{ 'a'.ljust(1000000000) }}", WIDTH),
        ("{{ 'a'.zfill(1000000000) }}", WIDTH),
        ("{{ ('\\t' * 99).expandtabs(tabsize=1000000000) }}", WIDTH),
        ("{% for i in [1] %}{{ (5).to_bytes(length=1000000000, byteorder='big') }}{% endfor %}", WIDTH),
        ("{{ ('a'|attr('center'))(1000000000) }}", WIDTH),
        ("{{ (5).to_bytes(1000000000, 'big') }}", WIDTH),
        ("{% autoescape true %}{% set x %}a{% endset %}{{ x.center(1000000000) }}{% endautoescape %}", WIDTH),
        ("{{ '%1000000000d' % 1 }}", WIDTH),
        ("{{ '%(a(b))1000000000d' % {'a(b)': 1} }}", WIDTH),
        ("{{ '%*d'|format(1000000000, 1) }}", WIDTH),
        ("{{ '{:1000000000}'.format(1) }}", WIDTH),
        ("{{ '{:{}}'.format(1, 1000000000) }}", WIDTH),
        ("{{ '{a:1000000000}'.format_map({'a': 1}) }}", WIDTH),
        ("{{ ('a' * 1000000)|replace('a', 'b' * 1000000) }}", SIZE),
        ("{{ ('a' * 1000000).translate({97: 'b' * 1000000}) }}", SIZE),
        ("{{ ('\t' * 100000).expandtabs(99999) }}", SIZE),
        ("{{ ('a' * 1000000).rfind('b' ~ 'a' * 500000) }}", SIZE),
        ("{{ [[1] * 1000000] * 1000000 }}", SIZE),
        ("{{ ([[1]] * 100000)|sum(start=[]) }}", "adds numbers"),
        ("{{ '%s' % ('x' * 9000000) }}", "more than 1000000"),
    ],
)  # fmt: skip
def test_what_grows_without_end_is_ended(text: str, message: str) -> None:
    with pytest.raises(TemplateError, match=message) as caught:
        render(text)
    assert caught.value.where == "vendor/p/templates/a.yaml.j2:1"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "{{ ('a' * 1000000)|wordwrap(1) }}",  # a loop of Python's own
        "{% set x = 'a' * 1000000 %}{% for i in range(99999) %}{% if 'ab' in x %}{% endif %}{% endfor %}",
    ],
)
def test_what_takes_too_long_is_ended(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template.Limits, "LONGEST_S", 0.3)
    began = time.monotonic()
    with pytest.raises(TemplateError, match=r"take more than 0\.\d+ seconds") as caught:
        render(text)
    assert caught.value.where == "vendor/p/templates/a.yaml.j2:1"
    assert time.monotonic() - began < 5


def test_the_time_counts_where_no_alarm_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template.Limits, "LONGEST_S", 0.05)
    text = "{% for i in range(9999) %}{% for j in range(99) %}{{ i ~ j }}{% endfor %}{% endfor %}"
    with ThreadPoolExecutor(1) as pool, pytest.raises(TemplateError, match=r"take more than 0\.\d+ seconds"):
        pool.submit(render, text).result()


def test_long_texts_and_loops_of_ordinary_size_pass() -> None:
    text = (
        "{% set s = state(n=0) %}{% for i in range(20000) %}{% set s.n = s.n + 1 %}{% endfor %}"
        "a: {{ x|indent(4) }}\nb: {{ s.n }}\nc: {{ x.replace('x', 'yy')|length }}\n"
        "d: {{ '%s has 12345 and %30s' % (s.n, 'b') }}\ne: {{ 'to 54321: {:>8}'.format(2 ** 20) }}\n"
        "f: {{ none|default(5000000000) }}\ng: {{ [1, 2]|sum }}\nh: {{ '4000000000'|int(7000000) }}\n"
    )
    lines = render(text, x="x" * 1_000_000).splitlines()[1:]
    assert lines == [
        *("b: 20000", "c: 2000000", f"d: 20000 has 12345 and {' ' * 29}b"),
        *('e: "to 54321:  1048576"', "f: null", "g: 3", "h: 4000000000"),
    ]


def test_a_fault_in_a_library_names_the_library() -> None:
    templates = {
        "a.yaml.j2": "{% import '_lib.j2' as lib %}\n{{ lib.m({}) }}\n",
        "_lib.j2": "\n{% macro m(x) %}\n{{ x.y }}{% endmacro %}",
        "b.yaml.j2": "{% include '_broken.j2' %}",
        "_broken.j2": "\n\n{% endif %}",
    }
    for name, where in (("a.yaml.j2", "_lib.j2:3"), ("b.yaml.j2", "_broken.j2:3")):
        with pytest.raises(TemplateError) as caught:
            renderer_of(templates).rendering({}).render(name)
        assert caught.value.where == f"vendor/p/templates/{where}"


@pytest.mark.parametrize("value", [Path("x"), {1: 2}, ("a",), {"a": {"b": {1, 2}}}, object(), os])
def test_only_plain_values_go_in(value: Any) -> None:
    with pytest.raises(TypeError, match=r"plain values only|is no string"):
        render("{{ x }}", x=value)


def test_lines_of_the_text_are_traced_to_the_template() -> None:
    templates = {
        "a.yaml.j2": (
            "{# a note\n   of two lines #}\n"  # 1, 2
            "kind: A\n"  # 3
            "{% if yes %}\n"  # 4
            "  on: {{ v }}\n"  # 5
            "{% endif %}\n"  # 6
            "{% for i in [1, 2] %}\n"  # 7
            "  - {{ i }}\n"  # 8
            "{% endfor %}\n"  # 9
            "{{ {'x': [1, 2]} | yaml(indent=2) }}\n"  # 10
            "{% filter indent(2) %}{% include '_b.j2' %}{% endfilter %}\n"  # 11
            "end: 1\n"  # 12
        ),
        "_b.j2": "{% set x = 1 %}\nb:\n\n  c: {{ x }}\n",
    }
    renderer = renderer_of(templates)
    text, places = renderer.rendering({"yes": True, "v": "multi\nline"}).render_with_places("a.yaml.j2")
    assert text == renderer.rendering({"yes": True, "v": "multi\nline"}).render("a.yaml.j2")
    a, b = "vendor/p/templates/a.yaml.j2", "vendor/p/templates/_b.j2"
    assert list(zip(text.split("\n"), places, strict=True)) == [
        ("kind: A", TemplatePlace(a, 3)),
        ('  on: "multi\\nline"', TemplatePlace(a, 5)),
        ("  - 1", TemplatePlace(a, 8)),
        ("  - 2", TemplatePlace(a, 8)),
        ("  x:", TemplatePlace(a, 10)),
        ("  - 1", TemplatePlace(a, 10)),
        ("  - 2", TemplatePlace(a, 10)),
        ("b:", TemplatePlace(b, 2)),
        ("", TemplatePlace(b, 3)),
        ("    c: 1", TemplatePlace(b, 4)),
        ("end: 1", TemplatePlace(a, 12)),
        ("", TemplatePlace(a, 13)),
    ]


def test_lines_are_unknown_where_a_template_measures_its_own_text() -> None:
    renderer = renderer_of({"a.j2": "{% set t %}ab{% endset %}a: {{ t | length }}\nb: {{ t | sha256 }}\n"})
    text, places = renderer.rendering({}).render_with_places("a.j2")
    assert text == f"a: 2\nb: {sha256_of('ab')}\n"
    assert places == [None, None, None]


class Store(dict[str, bytes]):
    hits = 0

    def get(self, key: str) -> bytes | None:  # type: ignore[override]
        self.hits += key in self
        return super().get(key)

    put = dict.__setitem__


def test_compiled_code_is_remembered_by_content(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    templates = {"a.j2": "a: {{ x }}\n{% include '_b.j2' %}", "_b.j2": "{{ y.z }}\n"}
    first = renderer_of(templates, store=store).rendering({"x": "yes", "y": {"z": 1}}).render("a.j2")
    assert (len(store), store.hits) == (2, 0)
    second = renderer_of(templates, store=store).rendering({"x": "yes", "y": {"z": 1}}).render("a.j2")
    assert (second, store.hits) == (first, 2)
    renderer_of({**templates, "_b.j2": "other\n"}, store=store).rendering({"x": 1}).render("a.j2")
    assert (len(store), store.hits) == (3, 3)
    with pytest.raises(TemplateError) as caught:
        renderer_of(templates, store=store).rendering({"x": 1, "y": {}}).render("a.j2")
    assert caught.value.where == "vendor/p/templates/_b.j2:1"


def test_a_real_cache_will_do(tmp_path: Path) -> None:
    for _ in range(2):
        renderer = renderer_of({"a.j2": "a: {{ x }}\n"}, store=Cache(tmp_path / "cache"))
        assert renderer.rendering({"x": "on"}).render("a.j2") == 'a: "on"\n'


def test_importing_the_door_imports_no_jinja() -> None:
    code = "import sys, mlstack.render.template; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_the_same_bytes_under_every_hash_seed_zone_and_locale() -> None:
    code = (
        "import json\n"
        "from mlstack.app.prototype import Prototype\n"
        "from mlstack.render.template import Renderer\n"
        "text = '{% for k in p %}{{ k }}: {{ p[k] }}{% endfor %}{{ p | dictsort }} {{ dict(p, z=1.5) }}'\n"
        "p = Prototype(name='p', package='x', registry='r', templates={'a': text})\n"
        "rendering = Renderer(p).rendering({'p': {'b': 1e16, 'a': ['ü'], 'c': {'y': None}}})\n"
        "print(json.dumps(rendering.render('a')))\n"
    )
    outputs = set()
    for settings in ("0 UTC C", "1 Asia/Tokyo de_DE.UTF-8", "77  tr_TR.UTF-8"):
        seed, zone, locale = settings.split(" ")
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": locale}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
        outputs.add(json.loads(done.stdout))
    assert len(outputs) == 1


def test_a_template_can_tell_people_something_and_writes_nothing_by_it() -> None:
    renderer = renderer_of({"a.yaml.j2": "a: 1{{ note('mind ' ~ what) }}{{ note('mind ' ~ what) }}\n"})
    first, other = renderer.rendering({"what": "the gap"}), renderer.rendering({"what": "the dog"})
    assert first.render("a.yaml.j2") == other.render("a.yaml.j2") == "a: 1\n"
    assert ([*first.notes], [*other.notes]) == (["mind the gap"], ["mind the dog"])


TOUCHING = "{% import '_lib.j2' as lib with context %}"


@pytest.mark.parametrize(
    ("library", "template", "texts"),
    [
        ("{% set s = state(n=0) %}", TOUCHING + "{% set s = lib.s %}{% set s.n = s.n + 1 %}{{ s.n }}", "1 1"),
        (
            "{% set s = state(n=0) %}{% macro up() %}{% set s.n = s.n + 1 %}{{ s.n }}{% endmacro %}",
            TOUCHING + "{{ lib.up() }}{{ lib.up() }}",
            "12 12",
        ),
        ("{% set c = cycler(1, 2) %}", TOUCHING + "{{ lib.c.next() }}", "1 1"),
        ("{% set j = joiner('-') %}", TOUCHING + "{{ [lib.j(), lib.j()] }}", '["", "-"] ["", "-"]'),
        ("{% set y = x %}", "{% for x in [1, 2] %}" + TOUCHING + "{{ lib.y }}{% endfor %}", "12 12"),
        (
            "{% set y = s.n %}",
            "{% set s = state(n=1) %}" + TOUCHING + "{{ lib.y }}{% set s.n = 2 %}" + TOUCHING + "{{ lib.y }}",
            "12 12",
        ),
        (
            "{% set y = name %}",
            TOUCHING + "{{ lib.y }}{% set name = 'b' %}" + TOUCHING + "{{ lib.y }}",
            "ab ab",
        ),
    ],
)
def test_templates_that_share_a_library_do_not_touch_each_other(
    library: str, template: str, texts: str
) -> None:
    renderer = renderer_of({"a.j2": template, "b.j2": template, "_lib.j2": library})
    rendering = renderer.rendering({"name": "a"})
    assert " ".join(rendering.render(name) for name in renderer.names) == texts


def test_a_line_has_the_last_place_marked_before_its_first_character() -> None:
    text = f"{mark_of('a', 1)}one\n{mark_of('a', 2)}  {mark_of('b', 7)}two{mark_of('a', 3)}!\nthree"
    assert unmarked(text) == (
        "one\n  two!\nthree",
        [TemplatePlace("a", 1), TemplatePlace("b", 7), TemplatePlace("b", 7)],
    )


def test_text_without_marks_has_no_places() -> None:
    assert unmarked("x\n") == ("x\n", [None, None])
