"""Relocatable objects to one cubin, by nvJitLink in this process, or by nvlink where it is absent or older than ptxas.

Both give the same machine code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spmark.impls.core.errors import CompileError
from spmark.impls.lo_spmm.kernel import NAME
from spmark.impls.runtime.toolchain import nvcc_version

_RELEASE = re.compile(r"cuda_(\d+)\.(\d+)")


def jit_linker() -> Any | None:
    """Give the module of nvJitLink's bindings, or None where it is absent or too old for this ptxas' objects."""
    try:
        from cuda.bindings import nvjitlink

        linker_version = tuple(nvjitlink.version())
    except (ImportError, RuntimeError):  # the bindings are absent, or the library itself
        return None
    release = _RELEASE.search(nvcc_version())
    return nvjitlink if release is not None and linker_version >= (int(release[1]), int(release[2])) else None


def link(folder: Path, names: Sequence[str], arch: str, run: Callable[..., str]) -> tuple[bytes, str]:
    """Link objects to a cubin.

    Parameters
    ----------
    folder : Path
        Folder of the objects.
    names : sequence of str
        Files of the objects.
    arch : str
        ``sm_90``...
    run : callable
        Runs a program of the toolkit in ``folder`` and gives its output.

    Returns
    -------
    cubin : bytes
    log : str
        Registers and stack of every entry point.

    Raises
    ------
    CompileError
        The objects cannot be linked; the error has the linker's log.
    """
    linker = jit_linker()
    if linker is not None:
        return _in_process(linker, [(name, (folder / name).read_bytes()) for name in names], arch)
    log = run(folder, "nvlink", f"-arch={arch}", "-v", *names, "-o", "out.cubin")
    return (folder / "out.cubin").read_bytes(), log


def _in_process(linker: Any, objects: Sequence[tuple[str, bytes]], arch: str) -> tuple[bytes, str]:
    options = [f"-arch={arch}", "-verbose"]
    try:
        handle = linker.create(len(options), options)
    except linker.nvJitLinkError as error:
        raise CompileError(NAME, "nvJitLink", f"expected a linker for {arch}, found none: {error}") from error
    with _closed(linker, handle):
        try:
            for name, content in objects:
                # "Object" would mean a host's object: the linker takes nothing of it, and does not say so.
                linker.add_data(handle, linker.InputType.CUBIN, content, len(content), name)
            linker.complete(handle)
            cubin = _read(handle, linker.get_linked_cubin_size, linker.get_linked_cubin)
            return cubin, _said(handle, linker.get_info_log_size, linker.get_info_log)
        except linker.nvJitLinkError as error:
            log = _said(handle, linker.get_error_log_size, linker.get_error_log)
            raise CompileError(NAME, "nvJitLink", f"{error}\n{log[-4000:]}") from error


@contextmanager
def _closed(linker: Any, handle: int) -> Iterator[None]:
    try:
        yield
    finally:
        linker.destroy(handle)


def _read(handle: int, size_of: Callable[[int], int], fill: Callable[[int, bytearray], None]) -> bytes:
    buffer = bytearray(size_of(handle))
    if buffer:
        fill(handle, buffer)
    return bytes(buffer)


def _said(handle: int, size_of: Callable[[int], int], fill: Callable[[int, bytearray], None]) -> str:
    return _read(handle, size_of, fill).rstrip(b"\0").decode(errors="replace")
