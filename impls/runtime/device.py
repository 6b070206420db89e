"""The devices of this machine and their rates: queries, calibrations and the specs that ship."""

from __future__ import annotations

import logging
import os
import platform
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import psutil

from spmark.impls.core.devicespec import BUSY, DeviceKind, DeviceSpec
from spmark.impls.core.enums import DeviceName
from spmark.impls.core.errors import DeviceError, how_to_install, none_of
from spmark.impls.core.files import cache_root, path_component

NAMES = get_args(DeviceName)
LEAST_CAPABILITY = 80
"""Kernels copy asynchronously and multiply tiles by instructions of this architecture."""
_log = logging.getLogger(__name__)
_CPU_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")
_UNMEASURED: dict[str, Any] = dict.fromkeys(("copy_bytes_per_s", "read_bytes_per_s", "fma_flops_per_s"), 0)
_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def find(name: str = "auto") -> DeviceSpec:
    """Give the spec of a device of this machine, rates not yet measured.

    Parameters
    ----------
    name : {"auto", "cuda", "cpu", "host-simt"}
        ``auto`` is the GPU where there is one, else the CPU.

    Raises
    ------
    DeviceError
        The name is unknown, or the machine has no such device; the message says why.
    """
    if name not in NAMES:
        raise DeviceError(none_of("a device", name, NAMES))
    if name == "host-simt":
        return host_simt()
    reason = cuda_missing() if name != "cpu" else None
    if reason is not None and name == "cuda":
        raise DeviceError(f"expected a usable NVIDIA GPU, found none: {reason}")
    if reason is not None:
        _log.info("no GPU: %s", reason)
    return _cpu() if name == "cpu" or reason is not None else _cuda()


@cache
def cuda_missing() -> str | None:
    """Say why no GPU can be used, or None."""
    if not Path("/proc/driver/nvidia/version").exists() and not Path("/dev/nvidiactl").exists():
        return "no NVIDIA driver is loaded"
    try:
        import cupy
    except ImportError as error:
        return f"CuPy cannot be imported ({error}): {how_to_install('gpu')}"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"the driver refuses: {error}"
    if not count:
        return "the driver lists no GPU"
    capability = int(cupy.cuda.Device().compute_capability)
    if capability < LEAST_CAPABILITY:
        return f"expected a GPU of sm_{LEAST_CAPABILITY} (Ampere) or newer, found sm_{capability}"
    return None


def host_simt() -> DeviceSpec:
    """Give the spec for kernels on the host: a small sm_90, since only results count."""
    return DeviceSpec(
        name="host-simt",
        kind=DeviceKind.HOST_SIMT,
        arch="sm_90",
        num_sms=4,
        shared_bytes_per_sm=228 << 10,
        shared_bytes_per_block=227 << 10,
        l2_bytes=50 << 20,
        memory_bytes=psutil.virtual_memory().total,
        **_UNMEASURED,
    )


def versions(spec: DeviceSpec) -> tuple[str, str]:
    """Give the driver's version and CUDA's version of the libraries in use; empty strings without a GPU."""
    if spec.kind is not DeviceKind.CUDA or cuda_missing() is not None:
        return "", ""
    import cupy

    driver, runtime = (
        f"{version // 1000}.{version % 1000 // 10}"
        for version in (cupy.cuda.runtime.driverGetVersion(), cupy.cuda.runtime.runtimeGetVersion())
    )
    file = Path("/proc/driver/nvidia/version")
    release = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", file.read_text()) if file.exists() else None
    return release[1] if release else f"cuda-{driver}", runtime


def gpu_uuid(spec: DeviceSpec) -> str:
    """Give the UUID of the GPU that this process uses, as ``nvidia-smi -L`` shows it.

    Empty for another device, and where NVML is not installed.
    """
    if spec.kind is not DeviceKind.CUDA or cuda_missing() is not None:
        return ""
    from spmark.impls.runtime.cudalab import nvml_handle

    nvml, handle = nvml_handle()
    if nvml is None:
        return ""
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid)


def visible_gpus() -> list[str]:
    """List the GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them.

    Raises
    ------
    DeviceError
        There is none; the message says why.
    """
    if (reason := cuda_missing()) is not None:
        raise DeviceError(f"expected a usable NVIDIA GPU, found none: {reason}")
    import cupy

    count, named = cupy.cuda.runtime.getDeviceCount(), os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return (named.split(",") if named else [str(number) for number in range(count)])[:count]


def calibrated(spec: DeviceSpec) -> DeviceSpec:
    """Give ``spec`` with measured rates.

    The rates come from the user's own calibration, else from the one that ships. Without both, a short calibration is
    made now. On a busy machine it is not kept, and its rates are no floor: a right time may be above them.
    """
    if spec.kind is DeviceKind.HOST_SIMT:
        return spec
    kept = calibration_file(spec)
    if kept is not None:
        return DeviceSpec.load(kept).model_copy(update={"memory_bytes": spec.memory_bytes})
    from spmark.impls.core.machine import LoadMeter

    meter = LoadMeter()
    fresh = calibrate(spec)
    if (load := meter.read()).busy:
        _log.warning(
            "%s was calibrated while %s: its rates may be too low, so they are not kept and refuse no time; run "
            "`spmark calibrate --device %s` once they are done",
            spec.name, load, spec.kind.value,
        )  # fmt: skip
        return fresh.model_copy(update={"calibrated_with": {**fresh.calibrated_with, BUSY: str(load)}})
    try:
        path = user_calibration(spec.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.save(path)
    except OSError as error:
        _log.warning("the calibration of %s could not be kept (%s); the next run makes it again", spec.name, error)
    return fresh


def calibration_file(spec: DeviceSpec) -> Path | None:
    """Give the file that holds a device's rates, or None where the rates are still to be measured.

    The user's own calibration comes first, then the one that ships. Machines with fewer cores may have a device of the
    same name: rates of another number of multiprocessors or cores do not count.

    Raises
    ------
    DeviceError
        A file is no calibration.
    """
    paths = (user_calibration(spec.name), shipped_calibration(spec.name))
    return next((path for path in paths if path.is_file() and DeviceSpec.load(path).num_sms == spec.num_sms), None)


def shipped_calibration(name: str) -> Path:
    """Give the path of the calibration that ships for a device of this name; it may not exist."""
    return Path(str(files("spmark.impls.runtime") / "devices" / f"{path_component(name)}.json"))


def shipped(name: str) -> DeviceSpec:
    """Give the spec that ships for a device of this name, which the machine may lack.

    Raises
    ------
    DeviceError
        None ships; lists those that do.
    """
    folder = shipped_calibration(name).parent
    names = sorted(path.stem for path in folder.glob("*.json"))
    if name not in names:
        raise DeviceError(none_of("a device whose rates ship", name, names))
    return DeviceSpec.load(folder / f"{name}.json")


def user_calibration(name: str) -> Path:
    """Give the path of this machine's own calibration of a device of this name; it may not exist."""
    return cache_root() / "devices" / f"{path_component(name)}.json"


def calibrate(spec: DeviceSpec) -> DeviceSpec:
    """Measure bandwidths, arithmetic rates, launches, dependent loads and gathered rows: seconds, and compiling.

    Raises
    ------
    DeviceError
        The device is not here, or its times mean nothing (host-simt).
    """
    if spec.kind is DeviceKind.CUDA:
        from spmark.impls.runtime.calibrate import calibrate_cuda as measured
    elif spec.kind is DeviceKind.CPU:
        from spmark.impls.runtime.calibrate_cpu import calibrate_cpu as measured
    else:
        raise DeviceError(f"expected a device whose times mean something (cuda, cpu), found {spec.kind}")
    return measured(spec)


def slug(model: str) -> str:
    """Give a model's name as a folder: lower case, words joined by dashes, trademarks and clock rates left out."""
    words = re.sub(r"\((r|tm)\)|@.*|\bcpu\b|\bprocessor\b", " ", model.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def _cuda() -> DeviceSpec:
    import cupy

    device = cupy.cuda.Device()
    facts = cupy.cuda.runtime.getDeviceProperties(device.id)
    attributes = device.attributes
    return DeviceSpec(
        name=slug(facts["name"].decode()),
        kind=DeviceKind.CUDA,
        arch=f"sm_{device.compute_capability}",
        num_sms=facts["multiProcessorCount"],
        warp_size=facts["warpSize"],
        max_threads_per_sm=facts["maxThreadsPerMultiProcessor"],
        registers_per_sm=attributes["MaxRegistersPerMultiprocessor"],
        shared_bytes_per_sm=attributes["MaxSharedMemoryPerMultiprocessor"],
        shared_bytes_per_block=attributes["MaxSharedMemoryPerBlockOptin"],
        l2_bytes=facts["l2CacheSize"],
        memory_bytes=facts["totalGlobalMem"],
        clock_mhz=attributes["ClockRate"] / 1e3,
        memory_clock_mhz=attributes["MemoryClockRate"] / 1e3,
        **_UNMEASURED,
    )


def _cpu() -> DeviceSpec:
    from spmark.impls.core.machine import allowed_cores

    return DeviceSpec(
        name=slug(cpu_model()),
        kind=DeviceKind.CPU,
        arch=platform.machine(),
        num_sms=len(allowed_cores()),
        warp_size=1,
        l2_bytes=_last_level_cache_bytes(),
        memory_bytes=psutil.virtual_memory().total,
        **_UNMEASURED,
    )


def cpu_model() -> str:
    """Give the processor's name, or the machine type where the system does not say."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.+)", info.read_text() if info.exists() else "")
    return named[1].strip() if named else platform.processor() or platform.machine()


def _last_level_cache_bytes() -> int:
    sizes = [path.read_text().strip() for path in _CPU_CACHE.glob("index*/size")]
    parsed = [int(size[:-1]) * _SUFFIXES[size[-1]] for size in sizes if size[-1:] in _SUFFIXES]
    return max(parsed, default=32 << 20)
