"""Names of things, and the known name somebody probably meant."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name that a mistyped one most likely stands for.

    Letter case and the difference between `-` and `_` do not count, nor does the order of the known
    names, so that messages are the same everywhere.

    Args:
        name: what was typed.
        known: the names that exist.

    Returns:
        The nearest known name, or None when nothing is near.
    """
    from difflib import get_close_matches  # only wrong input pays for this import

    def folded(text: str) -> str:
        return text.lower().replace("-", "_")

    by_form: dict[str, str] = {}
    for candidate in sorted(known):
        by_form.setdefault(folded(candidate), candidate)
    matches = get_close_matches(folded(name), list(by_form), n=1, cutoff=0.6)
    if matches:
        return by_form[matches[0]]
    return next((by_form[form] for form in by_form if _is_part(folded(name), form)), None)


def _is_part(one: str, other: str) -> bool:
    return min(len(one), len(other)) > 2 and (one in other or other in one)
