"""Run one program and write down what it took: `python -I -S stopwatch.py REPORT PROGRAM [WORD]…`.

A process of its own and a small one, since the largest memory that Linux tells of a child begins with that of
the process which started it.
"""

import os
import sys
import time


def main() -> int:
    """Write wall seconds, processor seconds and bytes of memory; give the program's exit code."""
    report, *argv = sys.argv[1:]
    begin = time.perf_counter()
    process = os.posix_spawnp(argv[0], argv, os.environ)
    _, status, usage = os.wait4(process, 0)
    wall_s = time.perf_counter() - begin
    # Linux counts ru_maxrss in KiB.
    line = f"{wall_s} {usage.ru_utime + usage.ru_stime} {usage.ru_maxrss * 1024}\n"
    with open(report, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib would make it larger
        file.write(line)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
