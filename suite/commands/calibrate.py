"""``spmark calibrate``: measure a device's rates, or the tiles of STile's cost model, and keep them."""

from __future__ import annotations

from pathlib import Path

from rich.markup import escape

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import DeviceError, RecordError
from spmark.suite.commands.console import answer, console, say, table


def measure_rates(device: str, out: Path | None, as_json: bool) -> None:
    """Calibrate a device and write its spec.

    Raises
    ------
    DeviceError
        The device is not there.
    RecordError
        The file cannot be written.
    """
    from spmark.impls.runtime.device import calibrate, find, user_calibration

    screen = console(as_json)
    found = find(device)
    say(screen, f"measuring {escape(found.name)} ...")
    spec = calibrate(found)
    path = out or user_calibration(spec.name)
    _save(spec, path)
    if as_json:
        answer({"path": path, "device": spec.model_dump(mode="json")})
        return
    rates = {
        "copy": f"{spec.copy_bytes_per_s / 1e9:,.0f} GB/s",
        "read": f"{spec.read_bytes_per_s / 1e9:,.0f} GB/s",
        "float32 multiply-add": f"{spec.fma_flops_per_s / 1e9:,.0f} GFLOP/s",
    }
    rates |= {f"tensor {name}": f"{rate / 1e9:,.0f} GFLOP/s" for name, rate in spec.tensor_flops_per_s.items()}
    screen.print(table("", [{"what": what, "rate": rate} for what, rate in rates.items()], plain=True))
    say(screen, f"written to {escape(str(path))}")


def measure_tiles(device: str, out: Path | None, as_json: bool) -> None:
    """Measure the tiles of STile's cost model on a GPU and write its constants beside the device's rates.

    Raises
    ------
    DeviceError
        The device is not there, or is no GPU.
    RecordError
        The file cannot be written.
    """
    from spmark.impls.core.devicespec import DeviceKind
    from spmark.impls.runtime.device import calibrated, find

    found = find(device)
    if found.kind is not DeviceKind.CUDA:
        raise DeviceError(f"expected a GPU to measure tiles on, found {found.name}; times of {found.kind} say nothing")
    from spmark.impls.stile.gpu import calibrate

    screen = console(as_json)
    say(screen, f"measuring tiles on {escape(found.name)} ...")
    spec, fitted = calibrate(calibrated(found))
    path = out or Path(f"stile-{spec.name}.json")
    _save(spec, path)
    rows = [
        {
            "operator": str(one.calibration.op),
            "dtype": str(one.calibration.dtype),
            "block tiles": len(one.calibration.blocks),
            "tiles held out": one.agreement.count,
            "Pearson": round(one.agreement.pearson, 4),
            "RMSE, us": round(one.agreement.rmse * 1e3, 4),
        }
        for one in fitted
    ]
    if as_json:
        answer({"path": path, "agreement": rows})
        return
    screen.print(table("", rows, plain=True))
    say(screen, f"written to {escape(str(path))}")


def _save(spec: DeviceSpec, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        spec.save(path)
    except OSError as error:
        raise RecordError(f"{path}: the calibration cannot be written: {error.strerror}") from error


def calibration_file(spec: DeviceSpec) -> Path | None:
    """Give the file that a run takes a device's rates from, or None where the run would measure them first."""
    from spmark.impls.runtime.device import shipped_calibration, user_calibration

    paths = (user_calibration(spec.name), shipped_calibration(spec.name))
    return next((path for path in paths if path.is_file()), None)
