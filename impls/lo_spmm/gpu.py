"""Assembled kernels on the GPU."""

from __future__ import annotations

from pathlib import Path

from spmark.impls.lo_spmm.kernel import NAME
from spmark.impls.runtime.compile import Binary
from spmark.impls.runtime.cuda import CudaKernel, load_function
from spmark.impls.runtime.target import Kernel
from spmark.impls.runtime.template import Instance, KernelTemplate


def load_assembled(binary: Binary, threads: int) -> Kernel:
    """Load what `spmark.impls.lo_spmm.assemble.assemble` gave into the current context, for blocks of ``threads``."""
    template = KernelTemplate(Path(f"{NAME}.ptx"), NAME, {"threads": (threads,)})
    return CudaKernel(Instance(template, (threads,)), binary, load_function(binary), overlaps=False)
