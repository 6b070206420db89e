"""``spmark asv import``: records into the histories of airspeed velocity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from spmark.suite.cli.console import answer, console, say, table


def import_into_asv(records: Sequence[Path], results: Path, commit: str | None, as_json: bool) -> None:
    """Write result files and say which.

    Raises
    ------
    RecordError
        A path is missing, or its records name no known commit or machine.
    """
    from spmark.suite.asv.importer import import_records
    from spmark.suite.benchmarks.tracked import PROTOCOL

    done = import_records(list(records), results, Path.cwd(), commit)
    screen = console(as_json)
    if as_json:
        answer([asdict(one) for one in done])
    else:
        # The machine is in the path, and a whole hash would break it.
        rows = [
            {
                "file": one.file or f"none for {one.machine}",
                "cases": one.cases,
                "left_out": one.left_out,
                "other_protocol": one.other_protocol,
                "commit": one.commit[:12],
            }
            for one in done
        ]
        screen.print(table("Written for airspeed velocity", rows, plain=True))
    others = sum(one.other_protocol for one in done)
    if others:
        say(
            screen,
            f"{sum(one.cases for one in done)} cases imported; {others} cases not, since their records are of another "
            f"protocol than {PROTOCOL}, or of another flush, than the benchmarks of this checkout compare: measure "
            "those again",
        )
