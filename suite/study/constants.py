"""``spmark study calibrate``: the constants of an implementation's cost model, measured on a GPU."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from spmark.impls.core.contracts import Calibrating, Outcome
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError
from spmark.impls.table import find_contract
from spmark.suite.cli.console import console, say, tell
from spmark.suite.cli.machine import refuse_while_busy, save_calibration


def measure_constants(method: str, device: str, out: Path | None, as_json: bool, *, force: bool) -> None:
    """Measure the constants of a cost model and write them beside the device's rates.

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

    calibration: Calibrating = find_contract("calibration", method)
    spec = gpu_named(device, calibration.what)
    path = out or Path(f"{method}-{spec.name}.json")
    if path.is_file() and not force:
        refuse_while_busy(path)
    say(console(as_json), f"measuring {calibration.what} on {escape(spec.name)} ...")
    spec, agreement = calibration.calibrate(calibrated(spec))
    save_calibration(spec, path)
    numbers = [{name: value for name, value in row.items() if not isinstance(value, list)} for row in agreement]
    tell(Outcome({"path": path, "agreement": agreement}, f"written to {path}", rows=numbers), as_json)


def gpu_named(name: str, what: str) -> DeviceSpec:
    """Find a GPU to measure ``what`` on.

    Raises
    ------
    DeviceError
        The device is missing or is not a GPU.
    """
    from spmark.impls.runtime.device import find

    spec = find(name)
    if spec.kind is not DeviceKind.CUDA:
        raise DeviceError(f"expected a GPU to measure {what} on, found {spec.name}; times of {spec.kind} say nothing")
    return spec
