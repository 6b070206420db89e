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


class NetworkOp(StrEnum):
    """Steps of whole networks (`spmark.impls.core.network`)."""

    GRAPHSAGE = "graphsage"
    GCN = "gcn"
    RGCN = "rgcn"
    MINKUNET = "minkunet"
    PRUNED_FORWARD = "pruned_forward"
    PRUNED_TRAINING = "pruned_training"
    ATTENTION = "attention"


AnyOp = Op | RelationalOp | NetworkOp
"""An operator of a case."""

SweepOp = Literal[
    "spmm",
    "sddmm",
    "sddmm_scaled",
    "rgms",
    "graphsage",
    "gcn",
    "rgcn",
    "minkunet",
    "pruned_forward",
    "pruned_training",
    "attention",
]
"""An operator as sweeps and the command line spell it: ``sddmm_scaled`` is SDDMM whose result is multiplied by A."""


class DType(StrEnum):
    """Type of operands and result; products are accumulated in float32 for all.

    How arrays hold a type, how it rounds and what else is to be known of it stands here alone.
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays: uint16, which holds the bits, for bfloat16, since NumPy has no such type."""
        import numpy as np  # which the help does not wait for

        return np.dtype("uint16" if self is DType.BFLOAT16 else self.value)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return 4 if self is DType.FLOAT32 else 2

    @property
    def narrow(self) -> bool:
        """Whether an element has 16 bits: the matrix unit takes it as it is, and sums do not fit into the result."""
        return self is not DType.FLOAT32

    @property
    def measured_as(self) -> DType:
        """The type whose rates, tables and trained models serve this one: bfloat16 costs what float16 costs."""
        return DType.FLOAT16 if self is DType.BFLOAT16 else self

    @property
    def cuda_type(self) -> int:
        """How NVIDIA's libraries name the type (``cudaDataType_t``)."""
        return {DType.FLOAT32: 0, DType.FLOAT16: 2, DType.BFLOAT16: 14}[self]

    @property
    def digits(self) -> int:
        """Bits of the significand, the leading one among them: integers up to ``2**digits`` are exact."""
        return {DType.FLOAT32: 24, DType.FLOAT16: 11, DType.BFLOAT16: 8}[self]

    @property
    def least(self) -> float:
        """The distance of the numbers next to zero, half of which is the least error of rounding."""
        return {DType.FLOAT32: 2.0**-149, DType.FLOAT16: 2.0**-24, DType.BFLOAT16: 2.0**-133}[self]

    @property
    def nan(self) -> Any:
        """NaN as an element of an array."""
        return self.numpy.type(0x7FFF if self is DType.BFLOAT16 else "nan")

    def stored(self, numbers: Any) -> Any:
        """Round numbers to the type, to nearest, ties to even; NaN stays NaN.

        Parameters
        ----------
        numbers : array of NumPy or CuPy
            float32, of any shape; any real dtype unless the type is bfloat16.

        Returns
        -------
        array
            Of the same shape, of `numpy`; ``numbers`` themselves where they are of this dtype.
        """
        if self is not DType.BFLOAT16:
            return numbers.astype(self.numpy, copy=False)
        bits = numbers.view("uint32")
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")
        nearest[numbers != numbers] = self.nan  # noqa: PLR0124 - NaN alone differs from itself
        return nearest

    def numbers(self, stored: Any) -> Any:
        """Give what an array of the type stands for: the bits of bfloat16 in float32, and an array of floats itself."""
        if stored.dtype != "uint16":
            return stored
        return (stored.astype("uint32") << 16).view("float32")


MEASURED_TYPES = tuple(one for one in DType if one.measured_as is one)
"""Types that rates, tables and labels are measured for."""


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
