"""`python -m tests.formats` writes the shapes anew, if they have only grown, or VERSION is another. With `--unreleased`
in any case: nobody has what this version writes.
"""

import sys
from pathlib import Path

from tests.formats import VERSION
from tests.formats.files import KINDS, file_of, read_shapes, write_shapes
from tests.formats.shapes import broken, describe_types

for kind, types in KINDS.items():
    version, before = read_shapes(kind)
    now = describe_types(types())
    lost = broken(before, now, is_answer=kind == "answers")
    if lost and version == VERSION and "--unreleased" not in sys.argv:
        print(*lost, sep="\n")
        sys.exit("This is no growth: raise VERSION in tests/formats/__init__.py, and see docs/versions.md")
    write_shapes(kind, now)
    print(f"wrote {file_of(kind).relative_to(Path.cwd())}, version {VERSION}")
