#!/usr/bin/env python3
"""Write src/tokenizer/unicode_tables.cc: the general category of every code point as a range table.

usage: make_unicode_tables.py OUT.cc        (needs: pip install unicodedata2==16.0.0)
"""
import sys

import unicodedata2

VERSION = "16.0.0"
# White_Space = the separators (category Z) plus these controls.
SPACE_CONTROLS = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}


def char_class(code):
    if code in SPACE_CONTROLS:
        return "Z"
    major = unicodedata2.category(chr(code))[0]
    return major if major in "LMNPSZ" else None


def ranges():
    first, current = 0, char_class(0)
    for code in range(1, 0x110001):
        value = char_class(code) if code < 0x110000 else "end"
        if value != current:
            if current is not None:
                yield first, code - 1, current
            first, current = code, value


def main():
    if unicodedata2.unidata_version != VERSION:
        sys.exit("unicodedata2 is for Unicode %s, expected %s" % (unicodedata2.unidata_version, VERSION))
    entries = ["{0x%X, 0x%X, %s}," % (a, b, c) for a, b, c in ranges()]
    lines, line = [], "   "
    for entry in entries:
        if len(line) + 1 + len(entry) > 100:
            lines.append(line)
            line = "   "
        line += " " + entry
    lines.append(line)
    with open(sys.argv[1], "w") as out:
        out.write('// Written by tools/make_unicode_tables.py from Unicode %s; do not edit.\n' % VERSION)
        out.write('#include "tokenizer/unicode.h"\n\nnamespace deepinfer {\n\n')
        out.write("// clang-format off\n")
        out.write("static constexpr auto L = CharClass::kLetter, M = CharClass::kMark, N = CharClass::kNumber;\n")
        out.write("static constexpr auto P = CharClass::kPunctuation;\n")
        out.write("static constexpr auto S = CharClass::kSymbol, Z = CharClass::kSpace;\n\n")
        out.write("const CharRange kCharRanges[] = {\n")
        out.write("\n".join(lines))
        out.write("\n};\n// clang-format on\n")
        out.write("const int kCharRangeCount = static_cast<int>(sizeof(kCharRanges) / sizeof(kCharRanges[0]));\n")
        out.write("\n}  // namespace deepinfer\n")


main()
