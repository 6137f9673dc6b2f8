#!/usr/bin/env python3
"""Puts the standard input between the two marker lines of a page.

  splice.py PAGE

Exit: 0 done, 1 the page has not each marker once, in order.
"""

import pathlib
import sys

BEGIN = "<!-- From here on: made by ./dev bench --figures -->"
END = "<!-- Until here: made by ./dev bench --figures -->"


def splice(page, text):
    """`page` with `text` between its markers; ValueError without them."""
    lines = page.splitlines()
    if (lines.count(BEGIN), lines.count(END)) != (1, 1):
        raise ValueError("the page has not each marker once")
    begin, end = lines.index(BEGIN), lines.index(END)
    if begin > end:
        raise ValueError("the markers are in the wrong order")
    return "\n".join([*lines[:begin + 1], "", *text.strip("\n").splitlines(),
                      "", *lines[end:]]) + "\n"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    page = pathlib.Path(sys.argv[1])
    try:
        page.write_text(splice(page.read_text(encoding="utf-8"),
                               sys.stdin.read()), encoding="utf-8")
    except ValueError as error:
        print(f"splice: {page}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
