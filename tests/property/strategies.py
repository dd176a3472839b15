"""Values that property tests draw: hostile strings first of all."""

from typing import Any

from hypothesis import strategies as st

HOSTILE_STRINGS = (
    *("", " ", "yes", "No", "on", "y", "n", "null", "~"),
    *("true", "=", "<<", "-", "--", "---", "...", "?", ":"),
    *("012", "0o14", "0x1F", "0b11", "1_000", "1e3", "1.0"),
    *("1:30", "12:30:45", "2001-01-01", ".inf", ".nan", "+1"),
    *("a: b", "a:", ": a", "#", "a #b", "a#b", "- a", "[a]"),
    *("{a}", "{{ x }}", "{% x %}", "&a", "*a", "!a", "|", ">"),
    *("'", '"', "''", '""', "\\", "\\n", "it's", 'say "hi"', "%TAG", "@a", "`a`", "a,b", "a]", "a}", "a ? b"),
    *("a\nb", "a\n", "\na", "a\n\n", "\n", "a\n b\n", " a\nb"),
    *("a \nb", "a\n\tb", "\ta\nb", "a\r\nb", "a\rb", "a\n#b"),
    *("a\n---\nb", "a\n...\nb", "\t", "a\tb", "\x07", "\x1b[0m"),
    *("\x7f", "\x85", "\xa0", "\u2028", "\ufeff", "\uffff"),
    *("🚀", "größe", "e\u0301", "\u202eabc", "x" * 300, "a " * 600, "key: " * 300),
)  # fmt: skip

characters = st.one_of(
    st.sampled_from(" \t\n:#-?,[]{}&*!|>'\"%@`\\=~<.+_0123456789eExobyYnN\r\x85\u2028"),
    st.characters(exclude_categories=["Cs"], exclude_characters="\x00"),
)
strings = st.one_of(st.sampled_from(HOSTILE_STRINGS), st.text(characters, max_size=30))
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False).map(lambda number: number + 0.0)
scalars = st.one_of(st.none(), st.booleans(), integers, floats, strings)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(strings, inner, max_size=4)),
    max_leaves=12,
)
