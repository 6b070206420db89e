"""Commands about this machine and what there is: ``doctor``, ``list``, ``check`` and ``calibrate``."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.markup import escape

from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.enums import DeviceKind, DeviceName
from spmark.impls.core.errors import BuildError, DatasetError, DeviceError, RecordError, SweepError, how_to_install
from spmark.impls.core.outside import IMPLEMENTATION_GROUP, SOURCE_GROUP, offers
from spmark.impls.table import IMPLEMENTATIONS, reach_of
from spmark.suite.cli.console import answer, console, say, table
from spmark.suite.cli.options import DeviceOption, ExitCode, JsonOption, implementations

if TYPE_CHECKING:
    from spmark.impls.core.devicespec import DeviceSpec

NEEDED = ("numpy", "scipy", "numba", "pandas", "matplotlib", "pydantic", "yaml", "psutil")
"""Modules that every run needs."""
FREE_BYTES = 1 << 30
"""Disk that a run should find: a matrix of 100 million non-zeros takes most of it."""
MOST_CHANGE = 0.5
"""Largest relative change of a rate at which a new calibration is trusted."""
BUSY_S = 1.0
"""Seconds for which a machine is watched before it is calibrated."""
_KERNEL = "template <typename T> __global__ void empty(T* out) { *out = T(1); }\n"
_COLOURS = {"ok": "green", "absent": "yellow", "missing": "red"}
_SHOWN_NAMES = 6


class Check(NamedTuple):
    """One line of the examination."""

    what: str
    state: Literal["ok", "absent", "missing"]
    """``absent``: some runs are not possible; ``missing``: no run is possible."""
    found: str


def doctor(as_json: JsonOption = False) -> None:
    """Check this machine: driver, CuPy, compilers, mirror, cache, disk, and each implementation.

    Exits with 1 if something that a run on the CPU needs is missing.
    """
    checks = list(_checks())
    states = {check.what: check.state for check in checks}
    fit = "missing" not in states.values()
    gpu = fit and states["GPU"] == states["cupy"] == "ok"
    if as_json:
        answer({"cpu_runs": fit, "gpu_runs": gpu, "checks": [check._asdict() for check in checks]})
    else:
        rows = [
            {"what": escape(what), "state": f"[{_COLOURS[state]}]{state}[/]", "found": escape(found)}
            for what, state, found in checks
        ]
        screen = console(as_json)
        screen.print(table("", rows))
        possible = "Runs on the GPU and on the CPU are possible." if gpu else "A run on the CPU is possible."
        say(screen, possible if fit else "[red]Something that every run needs is missing.[/red]")
    raise typer.Exit(ExitCode.OK if fit else ExitCode.FAILURES)


def _checks() -> Iterator[Check]:
    yield Check("Python", "ok", platform.python_version())
    # Compilers are processes of their own and take seconds: the imports go on beside them.
    with ThreadPoolExecutor() as pool:
        compilers = [
            pool.submit(_found, "nvrtc", _nvrtc), pool.submit(_found, "ptxas", _ptxas), pool.submit(_sanitizers)
        ]  # fmt: skip
        yield from (_module(name, "missing", "pip install spmark again") for name in NEEDED)
        devices = [spec for kind in DeviceKind if (spec := _device(kind)) is not None]
        yield from _gpu()
        yield from (_calibration(spec) for spec in devices if spec.kind is not DeviceKind.HOST_SIMT)
        yield from (compiler.result() for compiler in compilers)
    yield from _data()
    yield from (_implementation(name, {spec.kind for spec in devices}) for name in IMPLEMENTATIONS)


def _module(name: str, otherwise: Literal["absent", "missing"], remedy: str) -> Check:
    try:
        module = import_module(name)
    except (ImportError, OSError) as error:
        return Check(name, otherwise, f"{error}; {remedy}")
    return Check(name, "ok", str(getattr(module, "__version__", "")))


def _device(kind: DeviceKind) -> DeviceSpec | None:
    from spmark.impls.runtime.device import find

    if kind is DeviceKind.HOST_SIMT and not shutil.which("g++"):
        return None
    try:
        return find(kind.value)
    except DeviceError:
        return None


def _gpu() -> Iterator[Check]:
    from spmark.impls.runtime.device import cuda_missing, find, versions

    if reason := cuda_missing():
        yield Check("GPU", "absent", reason)
    else:
        spec = find("cuda")
        driver, cuda = versions(spec)
        yield Check("GPU", "ok", f"{spec.name}, driver {driver}, CUDA {cuda}")
    yield _module("cupy", "absent", how_to_install("gpu"))


def _calibration(spec: DeviceSpec) -> Check:
    from spmark.impls.runtime.device import calibration_file

    what = f"calibration of {spec.name}"
    try:
        path = calibration_file(spec)
    except DeviceError as error:
        return Check(what, "absent", str(error))
    if path is None:
        return Check(what, "absent", "none yet: the first run makes one, or spmark calibrate")
    return Check(what, "ok", str(path))


def _found(what: str, find: Callable[[], str]) -> Check:
    """Give what is found, or the error as what is absent."""
    try:
        return Check(what, "ok", find())
    except (BuildError, DatasetError, DeviceError, ImportError, OSError, subprocess.SubprocessError) as error:
        return Check(what, "absent", str(error))


def _nvrtc() -> str:
    """Compile a kernel, which needs no GPU."""
    from spmark.impls.runtime.compile import compile_kernel

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.cu"
        source.write_text(_KERNEL)
        compile_kernel(source, "empty<float>", "sm_90")
    return "compiles for sm_90"


def _ptxas() -> str:
    """Find what turns generated PTX into machine code."""
    from spmark.impls.runtime.toolchain import nvcc_version, tool

    return f"{tool('ptxas')}, {nvcc_version()}"


def _sanitizers() -> Check:
    """Build and run a program as the kernels on the host are built and run."""
    what = "g++ with sanitizers"
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "empty.cpp", Path(folder) / "empty"
        source.write_text("int main() { return 0; }\n")
        command = ["g++", "-std=c++17", "-fsanitize=address,undefined", str(source), "-o", str(program)]
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=120)
            subprocess.run([str(program)], capture_output=True, check=True, timeout=30)
        except FileNotFoundError:
            needed = "device host-simt and generated C need it: apt install g++"
            return Check(what, "absent", f"no g++ on the path; {needed}")
        except subprocess.SubprocessError as error:
            said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
            return Check(what, "absent", f"{error} {said}".strip())
    version = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=False).stdout.strip()
    return Check(what, "ok", version)


def _data() -> Iterator[Check]:
    from spmark.datasets.cache import Cache
    from spmark.datasets.mirror import read_manifest

    cache = Cache.default()
    if (mirror := cache.mirror) is None:
        yield Check("mirror", "absent", "SPMARK_MIRROR is not set; matrices are downloaded")
    else:
        yield _found("mirror", lambda: f"{mirror}: {len(read_manifest(mirror))} matrices")
    try:
        cache.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache.root):
            pass
    except OSError as error:
        yield Check("cache", "missing", f"{cache.root}: {error.strerror}; name another folder with SPMARK_CACHE")
        return
    yield Check("cache", "ok", str(cache.root))
    for what, folder in (("disk of the cache", cache.root), ("disk of this folder", Path.cwd())):
        free = shutil.disk_usage(folder).free
        yield Check(what, "ok" if free >= FREE_BYTES else "absent", f"{free / 1e9:.1f} GB free")


def _implementation(name: str, here: set[DeviceKind]) -> Check:
    """Say where an implementation runs on this machine, as its class declares: importing them all takes seconds."""
    what, reach = f"implementation {name}", reach_of(name)
    if why := reach.unmet(here):
        # Without its baseline no run on the CPU has anything to compare with.
        return Check(what, "missing" if name == BASELINES["cpu"] else "absent", why)
    return Check(what, "ok", f"for {' and '.join(sorted(reach.devices & here))}")


def list_(
    what: Annotated[
        Literal["implementations", "datasets", "sweeps", "devices"], typer.Argument(help="What to list.")
    ] = "implementations",
    as_json: JsonOption = False,
) -> None:
    """List implementations, data sets (with licence and citation), sweeps or devices.

    Example: [bold]spmark list datasets[/bold]
    """
    lists = {"implementations": _implementations, "datasets": _datasets, "sweeps": _sweeps, "devices": _devices}
    rows, screen = list(lists[what]()), console(as_json)
    if as_json:
        answer(rows)
    elif what == "datasets":  # citations are too long for a table
        for row in rows:
            title = f"[bold]{escape(row['source'])}[/bold]: {escape(row['title'])}; licence: {escape(row['licence'])}"
            more = len(row["names"]) - _SHOWN_NAMES
            names = ", ".join(row["names"][:_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")
            for line in (title, *(f"    {escape(text)}" for text in (names, row["citation"], row["url"]) if text)):
                say(screen, line)
    else:
        cells = [
            {key: ", ".join(value) if isinstance(value, list) else value for key, value in row.items()} for row in rows
        ]
        screen.print(table("", cells, plain=True))


def _implementations() -> Iterator[dict[str, Any]]:
    """Give every implementation with what it computes and where it runs; ``doctor`` tells what is usable here.

    Nothing is imported: operators and devices of what an installed distribution offers are not known.
    """
    for name in IMPLEMENTATIONS:
        reach = reach_of(name)
        yield {"name": name, "ops": sorted(reach.ops), "devices": sorted(reach.devices), "about": reach.about}
    for name in offers(IMPLEMENTATION_GROUP):
        yield {"name": name, "ops": [], "devices": [], "about": _offered_by(IMPLEMENTATION_GROUP, name)}


def _datasets() -> Iterator[dict[str, Any]]:
    """Give every source with what it holds, its licence and its citation."""
    from spmark.datasets.cache import Cache
    from spmark.datasets.sources.table import SOURCES, find_source

    cache = Cache.default()
    for name in SOURCES:
        source = find_source(name)
        try:
            names = list(source.names(cache))
        except DatasetError as error:
            names = [f"({error})"]
        told = {key: getattr(source, key) for key in ("licence", "citation", "url")}
        yield {"source": name, "title": source.title, "names": names, **told}
    blank = {"names": [], "licence": "not known", "citation": "", "url": ""}
    for name in offers(SOURCE_GROUP):
        yield {"source": name, "title": _offered_by(SOURCE_GROUP, name), **blank}


def _offered_by(group: str, name: str) -> str:
    return "offered by " + " and ".join(f"{offer.owner} ({offer.entry})" for offer in offers(group)[name])


def _sweeps() -> Iterator[dict[str, Any]]:
    """Give every packaged sweep with its size."""
    from spmark.datasets.sweep.model import Sweep
    from spmark.datasets.sweep.reading import packaged_sweeps

    for name, path in packaged_sweeps().items():
        sweep = Sweep.load(path)
        sizes = {"matrices": len(sweep.matrices), "implementations": len(sweep.implementations)}
        yield {"name": name, "title": sweep.title, "ops": list(sweep.ops), **sizes}


def _devices() -> Iterator[dict[str, Any]]:
    """Give every kind of device: its name here, or why this machine has none."""
    from spmark.impls.runtime.device import NAMES, find

    for device in NAMES:
        try:
            spec = find(device)
        except DeviceError as error:
            yield {"device": device, "name": "", "arch": "", "memory (GB)": None, "state": str(error)}
        else:
            told = {"name": spec.name, "arch": spec.arch, "memory (GB)": round(spec.memory_bytes / 1e9, 1)}
            yield {"device": device, **told, "state": "usable"}


def check(
    implementation: Annotated[
        str,
        typer.Argument(
            help="A name, a class in a file such as [bold]./mine.py:MyKernel[/bold], or a CUDA file.",
            autocompletion=implementations,
        ),
    ],
    device: Annotated[
        DeviceName, typer.Option(help="auto: every device that the class names and that is here.")
    ] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Run spmark's own conformance tests on an implementation, with a message for each fault.

    The tests build and run every tiny problem that the class takes. They check results, that operands stay unchanged,
    what the plan reports (phases, stored elements, bytes), and that wrong arrays are refused.
    A Python file is imported, and its code runs in this process.

    Example: [bold]spmark check ./mine.py:MyKernel --device host-simt[/bold]
    """
    from spmark.suite.conformance import check_implementation

    raise typer.Exit(ExitCode.OK if check_implementation(implementation, device, as_json) else ExitCode.FAILURES)


ForceOption = Annotated[
    bool, typer.Option("--force", help="Replace a calibration although the machine is busy or rates differ much.")
]


def calibrate(
    device: DeviceOption = "auto",
    out: Annotated[
        Path | None, typer.Option(help="JSON file to write, of rates alone; the user's own by default.")
    ] = None,
    ship: Annotated[
        bool, typer.Option("--ship", help="Replace what ships for this device, in a checkout that commits it.")
    ] = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure a device's bandwidth and rates, which floors and predictions are taken from.

    On a GPU also what implementations need of it, where no file ships for this GPU: a minute.

    A calibration is not replaced while other processes take the cores, nor by rates that differ by more than a half.
    [bold]spmark study calibrate[/bold] measures what one implementation needs.

    [bold]spmark calibrate --device cuda --out nvidia-h200.json[/bold]
    """
    from spmark.impls.core.devicespec import DeviceSpec
    from spmark.impls.runtime.device import calibrate, calibration_file, find, shipped_calibration, user_calibration

    if out and ship:
        raise SweepError("expected --out or --ship, which names the files itself, found both")
    screen, uncalibrated = console(as_json), find(device)
    path = out or (shipped_calibration if ship else user_calibration)(uncalibrated.name)
    replaced = path if path.is_file() else None if out else calibration_file(uncalibrated)
    if replaced is not None and not force:
        refuse_while_busy(replaced)
    say(screen, f"measuring {escape(uncalibrated.name)} ...")
    spec = calibrate(uncalibrated)
    if replaced is not None and not force:
        _refuse_other_rates(DeviceSpec.load(replaced), spec, replaced)
    save_calibration(spec, path)
    constants: dict[str, Path] = {}
    if not out and spec.kind is DeviceKind.CUDA:
        from spmark.suite.study.constants import measure_all

        constants = measure_all(spec, ship, lambda line: say(screen, escape(line)))
    if as_json:
        answer({"path": path, "device": spec.model_dump(mode="json"), "constants": constants})
        return
    told = {what: _rate(what, rate) for what, rate in _rates(spec).items()} | _latencies(spec)
    screen.print(table("", [{"what": what, "rate": rate} for what, rate in told.items()], plain=True))
    for written in (path, *constants.values()):
        say(screen, f"written to {escape(str(written))}")


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


def _latencies(spec: DeviceSpec) -> dict[str, str]:
    """Say what else was measured of a GPU: times of one launch and one load, and what is fetched again."""
    times = {"launch, caches cold": spec.cold_launch_s, "load that another waits for": spec.cold_load_s}
    return {what: f"{seconds * 1e6:.2f} us" for what, seconds in times.items() if seconds} | {
        f"from memory, table of {size / spec.l2_bytes:g} x L2": f"{spec.refetched_share(size):.0%} at most"
        for size in spec.table_gather_bytes_per_s
    }


def refuse_while_busy(replaced: Path) -> None:
    """Refuse to replace a calibration while other processes take the cores.

    Raises
    ------
    DeviceError
        The machine is busy.
    """
    from spmark.impls.core.machine import LoadMeter

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


def save_calibration(spec: DeviceSpec, path: Path) -> None:
    """Write a device's spec, and its folder where there is none.

    Raises
    ------
    RecordError
        The file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        spec.save(path)
    except OSError as error:
        raise RecordError(f"{path}: the calibration cannot be written: {error.strerror}") from error
