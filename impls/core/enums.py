"""The words of problems, devices and records; light, so that the command line's help can list them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np


class Op(StrEnum):
    """The two operators on one matrix."""

    SPMM = "spmm"
    SDDMM = "sddmm"


class RelationalOp(StrEnum):
    """The operators on a matrix of several relations."""

    RGMS = "rgms"


AnyOp = Op | RelationalOp
"""An operator of a case."""

SweepOp = Literal["spmm", "sddmm", "sddmm_scaled", "rgms"]
"""An operator as sweeps and the command line spell it: ``sddmm_scaled`` is SDDMM whose result is multiplied by A."""


class DType(StrEnum):
    """Type of operands and result; products are accumulated in float32 for both."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of operands and result."""
        import numpy as np  # which the help does not wait for

        return np.dtype(self.value)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize


class DeviceKind(StrEnum):
    """What executes: an NVIDIA GPU, the host's cores, or kernels run on the host under sanitizers (no times)."""

    CUDA = "cuda"
    CPU = "cpu"
    HOST_SIMT = "host-simt"


DeviceName = Literal["auto", "cuda", "cpu", "host-simt"]
"""What names a device of this machine; ``auto`` is the GPU where there is one, else the CPU."""


class Status(StrEnum):
    """How a case ended; everything but ok is a failure that the record keeps."""

    OK = "ok"
    UNSUPPORTED = "unsupported"
    BUILD_ERROR = "build_error"
    RUN_ERROR = "run_error"
    WRONG_RESULT = "wrong_result"
    IMPLAUSIBLE = "implausible"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"


class Flush(StrEnum):
    """How caches are emptied before a sample: results of two ways are not compared."""

    WRITE = "write"
    """A buffer is written. Its lines stay in the cache, and a run with a large result pays for storing them."""
    READ = "read"
    """The same, then another buffer as large as the cache is read, so that no written line is left."""
