"""Writes the letters and the numbers of Unicode as ranges: python3 classes.py >classes.h."""
import sys
import unicodedata


def ranges(kind):
    """Code points of a general category that begins with the letter, as (first, last)."""
    found = []
    for c in range(sys.maxunicode + 1):
        if unicodedata.category(chr(c))[0] == kind:
            if found and found[-1][1] == c - 1:
                found[-1][1] = c
            else:
                found.append([c, c])
    return found


print(f"/* Made by classes.py: Unicode {unicodedata.unidata_version}. */")
for name, kind in (("letters", "L"), ("numbers", "N")):
    print(f"static const struct range {name}[] = {{")
    print("\n".join(f"    {{{first:#x}, {last:#x}}}," for first, last in ranges(kind)) + "\n};")
