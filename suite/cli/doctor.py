"""``spmark doctor``: the tools that spmark can use and this machine has, and whether a run on the CPU is possible."""

from __future__ import annotations

import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import BuildError, DatasetError, DeviceError
from spmark.impls.core.extras import how_to_install
from spmark.suite.cli.console import answer, console, say, table
from spmark.suite.cli.usable import Asking

NEEDED = ("numpy", "scipy", "numba", "pandas", "matplotlib", "pydantic", "yaml", "psutil")
"""Modules that every run needs."""
FREE_BYTES = 1 << 30
"""Disk that a run should find: a matrix of 100 million non-zeros takes most of it."""
_KERNEL = "template <typename T> __global__ void empty(T* out) { *out = T(1); }\n"
_SANITIZED = "int main() { return 0; }\n"
_COLOURS = {"ok": "green", "absent": "yellow", "missing": "red"}


@dataclass(frozen=True)
class Check:
    """One line of the examination."""

    what: str
    state: Literal["ok", "absent", "missing"]
    """``absent``: some runs are not possible; ``missing``: no run is possible."""
    found: str


def examine(as_json: bool) -> bool:
    """Check everything and show it; tells whether a run on the CPU is possible."""
    checks = list(_checks())
    fit = all(check.state != "missing" for check in checks)
    states = {check.what: check.state for check in checks}
    gpu = fit and states["GPU"] == states["cupy"] == "ok"
    if as_json:
        answer({"cpu_runs": fit, "gpu_runs": gpu, "checks": [asdict(check) for check in checks]})
        return fit
    from rich.markup import escape

    rows = [
        {
            "what": escape(check.what),
            "state": f"[{_COLOURS[check.state]}]{check.state}[/]",
            "found": escape(check.found),
        }
        for check in checks
    ]
    screen = console(as_json)
    screen.print(table("", rows))
    possible = "Runs on the GPU and on the CPU are possible." if gpu else "A run on the CPU is possible."
    say(screen, possible if fit else "[red]Something that every run needs is missing.[/red]")
    return fit


def _checks() -> Iterator[Check]:
    yield Check("Python", "ok", platform.python_version())
    devices = [spec for kind in DeviceKind if (spec := _device(kind)) is not None]
    asking = Asking(devices)
    # Compilers are processes of their own and take seconds: the imports go on beside them.
    with ThreadPoolExecutor() as pool:
        compilers = [pool.submit(_compiler, "nvrtc"), pool.submit(_compiler, "nvcc"), pool.submit(_sanitizers)]
        yield from (_module(name, "missing", "pip install spmark again") for name in NEEDED)
        yield from _gpu()
        yield from (_calibration(spec) for spec in devices if spec.kind is not DeviceKind.HOST_SIMT)
        yield from (compiler.result() for compiler in compilers)
    yield from _data()
    yield from (_implementation(name, *answer) for name, answer in asking.answers().items())


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


def _compiler(name: str) -> Check:
    """Compile a kernel, which needs no GPU."""
    from spmark.impls.runtime.compile import compile_kernel

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.cu"
        source.write_text(_KERNEL)
        try:
            compile_kernel(source, "empty<float>", "sm_90", name)
        except (BuildError, DeviceError, ImportError, OSError, subprocess.SubprocessError) as error:
            return Check(name, "absent", str(error))
    return Check(name, "ok", "compiles for sm_90")


def _sanitizers() -> Check:
    """Build and run a program as the kernels on the host are built and run."""
    what = "g++ with sanitizers"
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "empty.cpp", Path(folder) / "empty"
        source.write_text(_SANITIZED)
        command = ["g++", "-std=c++17", "-fsanitize=address,undefined", str(source), "-o", str(program)]
        try:
            subprocess.run(command, capture_output=True, check=True, timeout=120)
            subprocess.run([str(program)], capture_output=True, check=True, timeout=30)
        except FileNotFoundError:
            return Check(what, "absent", "no g++ on the path; device host-simt needs it: apt install g++")
        except subprocess.SubprocessError as error:
            said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
            return Check(what, "absent", f"{error} {said}".strip())
    version = subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=False).stdout.strip()
    return Check(what, "ok", version)


def _data() -> Iterator[Check]:
    from spmark.datasets.cache import Cache
    from spmark.datasets.mirror import read_manifest

    cache = Cache.default()
    if cache.mirror is None:
        yield Check("mirror", "absent", "SPMARK_MIRROR is not set; matrices are downloaded")
    else:
        try:
            yield Check("mirror", "ok", f"{cache.mirror}: {len(read_manifest(cache.mirror))} matrices")
        except DatasetError as error:
            yield Check("mirror", "absent", str(error))
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


def _implementation(name: str, kinds: Sequence[str], reason: str) -> Check:
    what = f"implementation {name}"
    if kinds:
        return Check(what, "ok", f"usable on {' and '.join(kinds)}")
    # Without its baseline no run on the CPU has anything to compare with.
    return Check(what, "missing" if name == BASELINES["cpu"] else "absent", reason)
