"""Hostile records through whole commands: a report, an import into airspeed velocity, and the script of provenance.

What the commands print must be printable, and the harness sees to it that nothing is written outside of the folder.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from fuzz import record_seeds as seeds
from fuzz.harness import Target
from fuzz.shaken import shaken

from spmark.suite.asv.importer import import_records
from spmark.suite.cli.asv import asv_import
from spmark.suite.cli.compare import compare_records, show_spread
from spmark.suite.cli.report import draw, show_provenance
from spmark.suite.study.replay_command import replay_records


class UnprintableError(Exception):
    """A command handed a control character to the terminal: no error of ours, so the harness tells it."""


def printed(act: Callable[[], object]) -> object:
    """Run a command; raise where it prints what a terminal would obey."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            return act()
    finally:
        if not out.getvalue().replace("\n", "").replace("\t", "").isprintable():
            raise UnprintableError(ascii(out.getvalue()[:2000]))


def _report(data: bytes, folder: Path) -> object:
    records = seeds.unpacked(data, folder / "in")
    return printed(lambda: draw([records], folder / "site", baseline=None, title=None, paper=None, as_json=False))


def _undrawn(data: bytes, folder: Path) -> object:
    """Report without laying figures out, which takes most of the time of a report and none of its numbers."""
    canvas = mock.patch("spmark.report.figures.plot.FigureCanvasAgg", mock.MagicMock())
    with canvas, mock.patch("spmark.report.figures.plot._svg", lambda plot: b""):
        return _report(data, folder)


def _provenance(data: bytes, folder: Path) -> object:
    records = seeds.unpacked(data, folder / "in")
    return printed(lambda: show_provenance(records, as_json=False))


def _compared(data: bytes, folder: Path) -> object:
    before = seeds.unpacked(seeds.whole()[0], folder / "before")
    after = seeds.unpacked(data, folder / "after")
    how = {"across": True, "threshold_from": None, "least": 0.02, "every": True, "as_json": False}
    return printed(lambda: compare_records(before, after, **how))


def _replayed(data: bytes, folder: Path) -> object:
    """Replay by the model that loads no matrix, and export."""
    records = seeds.unpacked(data, folder / "in")
    export = ("t4", folder / "t4.json")
    return printed(lambda: replay_records([records], "recorded", 0, (), export, as_json=False))


def _fitted(data: bytes, folder: Path) -> object:
    records = seeds.unpacked(data, folder / "in")
    return printed(lambda: show_spread([records], folder / "fit.json", as_json=False))


def _imported(data: bytes, folder: Path) -> object:
    """Import records; the working folder of the command is the repository."""
    records = seeds.unpacked(data, folder / "in")
    os.chdir(seeds.repository())
    try:
        return printed(lambda: asv_import([records], folder / "asv" / "results", None, as_json=False))
    finally:
        os.chdir(folder)


def _import_over(data: bytes, folder: Path) -> object:
    """Import good records over a result file that is there already."""
    results = folder / "asv" / "results"
    machine = results / "test-gpu-cuda13"
    machine.mkdir(parents=True)
    (machine / f"{seeds.commit()[:8]}-imported-py3.12.json").write_bytes(data)
    records = seeds.unpacked(seeds.whole()[0], folder / "in")
    return import_records([records], results, seeds.repository())


def _benchmarks_over(data: bytes, folder: Path) -> object:
    """Import good records beside a list of benchmarks that is there already."""
    results = folder / "asv" / "results"
    results.mkdir(parents=True)
    (results / "benchmarks.json").write_bytes(data)
    records = seeds.unpacked(seeds.whole()[1], folder / "in")
    return import_records([records], results, seeds.repository())


def _whole_result() -> list[bytes]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        records = seeds.unpacked(seeds.whole()[0], Path(folder) / "in")
        (done,) = import_records([records], Path(folder) / "results", seeds.repository())
        assert done.file is not None
        return [done.file.read_bytes(), *seeds.results()]


def _loaded_seeds() -> list[bytes]:
    """Load what draws before the watch begins: matplotlib makes a folder for its settings when it is imported."""
    importlib.import_module("spmark.report.site.site")
    return seeds.whole()


def _benchmarks() -> list[bytes]:
    seeds.commit()  # makes the repository
    return [b'{"version": 2, "a.b": {"name": "a.b"}}']


def _shaken(read: Callable[[bytes, Path], object], repeated: bool = False) -> Callable[[bytes, Path], object]:
    """Give records with odd values, drawn by the input, to a reader of a folder of records."""

    def target(data: bytes, folder: Path) -> object:
        rows = seeds.repeated_measurements() if repeated else seeds.measurements()
        return read(shaken(data, rows), folder)

    return target


def _no_shake() -> list[bytes]:
    _loaded_seeds()
    return [b"none"]


TARGETS = (
    Target("report", _report, _loaded_seeds),
    Target("report_undrawn", _undrawn, _loaded_seeds),
    Target("provenance", _provenance, seeds.whole),
    Target("compare", _compared, seeds.whole),
    Target("replay", _replayed, seeds.whole),
    Target("spread", _fitted, seeds.repeated),
    Target("asv_import", _imported, seeds.whole, commands=True),
    Target("report_shaken", _shaken(_undrawn), _no_shake),
    Target("compare_shaken", _shaken(_compared), _no_shake),
    Target("replay_shaken", _shaken(_replayed), _no_shake),
    Target("spread_shaken", _shaken(_fitted, repeated=True), _no_shake),
    Target("provenance_shaken", _shaken(_provenance), _no_shake),
    Target("asv_import_shaken", _shaken(_imported), _no_shake, commands=True),
    Target("asv_import_over", _import_over, _whole_result, commands=True),
    Target("asv_import_benchmarks", _benchmarks_over, _benchmarks, commands=True),
)
