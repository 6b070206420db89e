"""``spmark asv-import``: records into the histories of airspeed velocity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from spmark.suite.commands.console import answer, console, table


def import_into_asv(records: Sequence[Path], results: Path, commit: str | None, as_json: bool) -> None:
    """Write result files and say which.

    Raises
    ------
    RecordError
        A path is not there, or its records cannot be given to a commit and a machine.
    """
    from spmark.suite.asv.importer import import_records

    done = [asdict(one) for one in import_records(list(records), results, Path.cwd(), commit)]
    if as_json:
        answer(done)
    else:
        # The machine is in the path, and a whole hash would break it.
        rows = [
            {key: row[key] for key in ("file", "cases", "left_out")} | {"commit": row["commit"][:12]} for row in done
        ]
        console(as_json).print(table("Written for airspeed velocity", rows, plain=True))
