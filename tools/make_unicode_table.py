#!/usr/bin/env python3
"""Writes src/text/unicode_table.cc: the class of every code point as the pre-tokenizer sees it.

    tools/make_unicode_table.py UCD_DIR > src/text/unicode_table.cc

UCD_DIR holds UnicodeData.txt, PropList.txt and DerivedAge.txt of Unicode 15.0.0; on Debian 12 that is /usr/share/unicode
of the package unicode-data 15.0.0-1. Other versions are refused: the cut of a text must not depend on the machine that
built the table.
"""
import pathlib
import re
import sys

VERSION = "15.0.0"
OTHER, LETTER, NUMBER, SPACE = range(4)
LIMIT, PAGE = 0x110000, 256


def general_categories(path):
    """Yields (first, last, category); a range is two lines named <..., First> and <..., Last>."""
    first = None
    for line in path.read_text().splitlines():
        code, name, category = line.split(";")[:3]
        code = int(code, 16)
        if name.endswith(", First>"):
            first = code
            continue
        yield (code if first is None else first), code, category
        first = None


def white_space(path):
    for line in path.read_text().splitlines():
        match = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*;\s*White_Space\b", line)
        if match:
            yield int(match[1], 16), int(match[2] or match[1], 16)


def main():
    ucd = pathlib.Path(sys.argv[1])
    for name in ("PropList", "DerivedAge"):
        head = (ucd / f"{name}.txt").open().readline().strip()
        if head != f"# {name}-{VERSION}.txt":
            sys.exit(f"{ucd}/{name}.txt begins with '{head}'; this table is made from Unicode {VERSION}")
    classes = bytearray(LIMIT)
    for first, last, category in general_categories(ucd / "UnicodeData.txt"):
        kind = {"L": LETTER, "N": NUMBER}.get(category[0], OTHER)
        classes[first:last + 1] = bytes([kind]) * (last - first + 1)
    for first, last in white_space(ucd / "PropList.txt"):
        classes[first:last + 1] = bytes([SPACE]) * (last - first + 1)

    pages, index = {}, []
    for start in range(0, LIMIT, PAGE):
        page = bytes(sum(classes[start + i + j] << (2 * j) for j in range(4)) for i in range(0, PAGE, 4))
        index.append(pages.setdefault(page, len(pages)))
    assert len(pages) <= 256

    def table(values, per_line=27):
        lines = [values[i:i + per_line] for i in range(0, len(values), per_line)]
        return "\n".join("    " + " ".join(f"{v}," for v in line) for line in lines)

    print(f"""\
// Made by tools/make_unicode_table.py from UnicodeData.txt and PropList.txt of Unicode {VERSION} (Debian package
// unicode-data 15.0.0-1); do not edit. Copyright (c) 1991-2022 Unicode, Inc. All rights reserved. Distributed under the
// Terms of Use in https://www.unicode.org/copyright.html (licence Unicode-DFS-2016).
#include "text/unicode.h"

namespace glint::text::unicode {{

// clang-format off
const uint8_t kPageOf[{len(index)}] = {{
{table(index)}
}};

const uint8_t kPages[{len(pages)}][{PAGE // 4}] = {{""")
    for page in pages:
        print("    {\n" + table(page) + "\n    },")
    print("""\
};
// clang-format on

}  // namespace glint::text::unicode""")


if __name__ == "__main__":
    main()
