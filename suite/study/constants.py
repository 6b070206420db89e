"""``spmark calibrate`` and ``spmark study calibrate``: what implementations need of a GPU beside its rates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.markup import escape

from spmark.datasets.cache import Cache
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import RecordError
from spmark.impls.core.files import constants_file, written
from spmark.studies.contracts import CalibrationJob, Constants, Outcome
from spmark.studies.table import CONTRACTS, find_contract
from spmark.suite.cli.console import console, say, tell
from spmark.suite.cli.machine import refuse_while_busy
from spmark.suite.study.label import gpu_named, loaded, matrices_of

_OWN_S, _SHIPPED_S = 40.0, 120.0
"""Seconds after which an implementation begins no further matrix: for this machine, and for files that ship."""


def measure_constants(method: str, device: str, out: Path | None, as_json: bool, *, force: bool) -> None:
    """Measure the constants of one implementation and write them.

    Raises
    ------
    SweepError
        The method has nothing to calibrate.
    DeviceError
        The device is missing or is not a GPU; or a file would be replaced without ``force`` while the machine is busy.
    RecordError
        The file cannot be written.
    """
    from spmark.impls.runtime.device import calibrated

    what = find_contract("calibration", method).what
    spec = gpu_named(device, what)
    path = out or Path(f"{method}-{spec.name}.json")
    if path.is_file() and not force:
        refuse_while_busy(path)
    say(console(as_json), f"measuring {what} on {escape(spec.name)} ...")
    constants = _measured(method, calibrated(spec), _SHIPPED_S)
    _write(constants, path)
    numbers = [{name: value for name, value in row.items() if not isinstance(value, list)} for row in constants.told]
    tell(Outcome({"path": path, "agreement": constants.told}, f"written to {path}", rows=numbers), as_json)


def measure_all(spec: DeviceSpec, ship: bool, report: Callable[[str], None]) -> dict[str, Path]:
    """Measure the constants that do not ship for a GPU, and keep them for this machine.

    Parameters
    ----------
    spec : DeviceSpec
        A GPU, with measured rates.
    ship : bool
        Measure all constants, longer, and write them where they ship.
    report : callable
        Told what is measured.

    Returns
    -------
    dict
        Files by implementation.

    Raises
    ------
    RecordError
        A file cannot be written.
    """
    files = {}
    for method in CONTRACTS["calibration"]:
        calibration = find_contract("calibration", method)
        shipped: Path = calibration.shipped(spec.name)
        if ship or not shipped.is_file():
            report(f"measuring {calibration.what} of {method} ...")
            path = shipped if ship else constants_file(method, spec.name)
            _write(_measured(method, spec, _SHIPPED_S if ship else _OWN_S), path)
            files[method] = path
    return files


def _measured(method: str, spec: DeviceSpec, seconds: float) -> Constants:
    calibration, cache = find_contract("calibration", method), Cache.default()
    names = list(matrices_of(calibration.patterns, cache))
    job = CalibrationJob(device=spec, seconds=seconds, names=names, load=partial(loaded, cache=cache))
    made: Constants = calibration.calibrate(job)
    return made


def _write(constants: Constants, path: Path) -> None:
    """Write the files of constants; ``path`` is that of the JSON."""
    for ending, content in constants.files.items():
        with written(path.with_name(path.name.removesuffix(".json") + ending), RecordError) as file:
            file.write_bytes(content)
