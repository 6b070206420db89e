"""Write counts and pattern hashes into the list of origins, datasets/origins.tsv, from a mirror that has the matrices.

    SPMARK_MIRROR=... python scripts/origins.py

A line whose matrix the mirror lacks stays as it is. Counts or a hash that a line has already are never changed: another
matrix under a listed name is an error.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from spmark.datasets.cache import Cache
from spmark.datasets.mirror import ManifestLine, read_entry, read_manifest
from spmark.impls.core.problem import Csr

FILE = Path(__file__).parents[1] / "datasets" / "origins.tsv"
COMPUTED = ("rows", "cols", "nnz", "pattern_sha256")


def computed(entry: ManifestLine) -> dict[str, str]:
    """Give the computed columns of a matrix."""
    raw = read_entry(entry)
    values = raw.indices if raw.values is None else raw.values
    csr = Csr.checked(raw.shape, raw.indptr, raw.indices, values, where=entry.id)
    return dict(zip(COMPUTED, (str(csr.num_rows), str(csr.num_cols), str(csr.nnz), csr.hash), strict=True))


def main() -> None:
    """Write the list."""
    mirror = Cache.default().mirror
    if mirror is None:
        sys.exit("expected SPMARK_MIRROR to name a mirror, found it unset")
    entries = {name: entry for entry in read_manifest(mirror) for name in (entry.id, f"mirror/{entry.name}")}
    with FILE.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = []
    for line in lines:
        entry = next((entries[id] for id in (line["origin"], *line["aliases"].split()) if id in entries), None)
        found = computed(entry) if entry is not None else {}
        if wrong := [key for key in found if line[key] not in ("", found[key])]:
            sys.exit(f"{line['origin']}: expected {wrong[0]} {line[wrong[0]]} as listed, found {found[wrong[0]]}")
        rows.append(line | found)
    rows.sort(key=lambda row: row["origin"].lower())
    text = "".join("\t".join(row) + "\n" for row in [lines[0].keys(), *(row.values() for row in rows)])
    FILE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
