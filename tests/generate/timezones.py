"""Make the list of time zones that a CronJob may name, from the zones that this Python knows.

    python -m tests.generate.timezones

The list is shipped, since a check must say the same on every machine, one without time zones included.
"""

from __future__ import annotations

import textwrap
import zoneinfo
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "mlstack" / "model" / "validation" / "rules" / "timezones.py"
_HEAD = '''"""The time zones of the IANA database, by tests/generate/timezones.py."""

_TEXT = """
'''
_TAIL = '''
"""
TIME_ZONES = frozenset(_TEXT.split())
'''


def main() -> None:
    """Write the list anew."""
    names = sorted(name for name in zoneinfo.available_timezones() if name != "localtime")
    FILE.write_text(
        _HEAD + "\n".join(textwrap.wrap(" ".join(names), 110, break_on_hyphens=False)) + _TAIL, "utf-8"
    )


if __name__ == "__main__":
    main()
