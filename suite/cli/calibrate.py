"""``spmark calibrate``: measure a device's rates, or the constants of an implementation's cost model, and keep them."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from spmark.impls.core.contracts import Calibrating, Outcome
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError, RecordError
from spmark.impls.runtime.load import LoadMeter
from spmark.impls.table import find_contract
from spmark.suite.cli.console import answer, console, say, table, tell

MOST_CHANGE = 0.5
"""Largest relative change of a rate at which a new calibration is trusted."""
BUSY_S = 1.0
"""Seconds for which a machine is watched before it is calibrated."""


def measure_rates(device: str, out: Path | None, as_json: bool, *, force: bool) -> None:
    """Calibrate a device and write its spec.

    Raises
    ------
    DeviceError
        The device is missing; or a calibration would be replaced without ``force`` while the machine is busy, or by
        rates that differ by more than `MOST_CHANGE`.
    RecordError
        The file cannot be written.
    """
    from spmark.impls.runtime.device import calibrate, calibration_file, find, user_calibration

    screen = console(as_json)
    uncalibrated = find(device)
    path = out or user_calibration(uncalibrated.name)
    replaced = path if path.is_file() else None if out else calibration_file(uncalibrated)
    if replaced is not None and not force:
        _refuse_while_busy(replaced)
    say(screen, f"measuring {escape(uncalibrated.name)} ...")
    spec = calibrate(uncalibrated)
    if replaced is not None and not force:
        _refuse_other_rates(DeviceSpec.load(replaced), spec, replaced)
    _save(spec, path)
    if as_json:
        answer({"path": path, "device": spec.model_dump(mode="json")})
        return
    rows = [{"what": what, "rate": _rate(what, rate)} for what, rate in _rates(spec).items()]
    screen.print(table("", [*rows, *_latencies(spec)], plain=True))
    say(screen, f"written to {escape(str(path))}")


def _rates(spec: DeviceSpec) -> dict[str, float]:
    rates = {"copy": spec.copy_bytes_per_s, "read": spec.read_bytes_per_s, "float32 multiply-add": spec.fma_flops_per_s}
    rates |= {f"tensor {name}": rate for name, rate in spec.tensor_flops_per_s.items()}
    gathers = {"L2": spec.l2_gather_bytes_per_s, "L1": spec.l1_gather_bytes_per_s}
    rates |= {f"{cache} gather, rows of {size} B": rate for cache, of in gathers.items() for size, rate in of.items()}
    return rates | {
        f"gather, table of {size / spec.l2_bytes:g} x L2": rate for size, rate in spec.table_gather_bytes_per_s.items()
    }


def _rate(what: str, rate: float) -> str:
    amount = f"{rate / 1e9:,.0f}" if rate >= 1e10 else f"{rate / 1e9:.2g}"
    return f"{amount} {'GFLOP/s' if what.startswith(('float32', 'tensor')) else 'GB/s'}"


def _latencies(spec: DeviceSpec) -> list[dict[str, str]]:
    """Say what else was measured of a GPU: times of one launch and one load, and what is fetched again."""
    times = {"launch, caches cold": spec.cold_launch_s, "load that another waits for": spec.cold_load_s}
    rows = [{"what": what, "rate": f"{seconds * 1e6:.2f} us"} for what, seconds in times.items() if seconds]
    return rows + [
        {
            "what": f"from memory, table of {size / spec.l2_bytes:g} x L2",
            "rate": f"{spec.refetched_share(size):.0%} at most",
        }
        for size in spec.table_gather_bytes_per_s
    ]


def _refuse_while_busy(replaced: Path) -> None:
    load = LoadMeter().read(BUSY_S)
    if load.busy:
        raise DeviceError(
            f"{replaced}: expected an idle machine to replace this calibration, found that {load}; wait until they are "
            "done, or say --force"
        )


def _refuse_other_rates(old: DeviceSpec, new: DeviceSpec, replaced: Path) -> None:
    before, after = _rates(old), _rates(new)
    changed = [
        f"{what} {_rate(what, after[what])} instead of {_rate(what, rate)}"
        for what, rate in before.items()
        if rate and what in after and abs(after[what] - rate) > MOST_CHANGE * rate
    ]
    if changed:
        raise DeviceError(
            f"{replaced}: expected rates within {MOST_CHANGE:.0%} of this calibration's, found {', '.join(changed)}; "
            "it stays as it is: measure again when the machine is idle, or say --force to replace it"
        )


def measure_constants(method: str, device: str, out: Path | None, as_json: bool, *, force: bool) -> None:
    """Measure the constants of a cost model on a GPU and write them beside the device's rates.

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
        _refuse_while_busy(path)
    say(console(as_json), f"measuring {calibration.what} on {escape(spec.name)} ...")
    spec, agreement = calibration.calibrate(calibrated(spec))
    _save(spec, path)
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


def _save(spec: DeviceSpec, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        spec.save(path)
    except OSError as error:
        raise RecordError(f"{path}: the calibration cannot be written: {error.strerror}") from error
