"""Marks tell which line of which template a line of rendered text came from."""

from mlstack.render.template import TemplatePlace, mark_of, unmarked


def test_a_line_has_the_last_place_marked_before_its_first_character() -> None:
    text = f"{mark_of('a', 1)}one\n{mark_of('a', 2)}  {mark_of('b', 7)}two{mark_of('a', 3)}!\nthree"
    assert unmarked(text) == (
        "one\n  two!\nthree",
        [TemplatePlace("a", 1), TemplatePlace("b", 7), TemplatePlace("b", 7)],
    )


def test_text_without_marks_has_no_places() -> None:
    assert unmarked("x\n") == ("x\n", [None, None])
