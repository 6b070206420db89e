"""The kernel of SpMM over tiles in float32, and its operands: three products of tf32 each (see tile_rows_float.cuh).

Markidis et al., "NVIDIA Tensor Core Programmability, Performance & Precision", IPDPS workshops 2018; Ootomo and Yokota,
"Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak performance", IJHPCA
2022.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spmark.impls.kernels.ell_buckets import LANES
from spmark.impls.runtime.fusion import Body, FusedTemplate

VECTOR, VECTORS = 4, 1
"""Elements of a load of ELL rows, and loads of a thread side by side; kernels exist for these alone."""
_INT, _FLOAT = "int32", "float32"
SPMM_TILES_FLOAT = FusedTemplate(
    Path(__file__).parent / "tile_spmm.cu",
    "spmm_tiles",
    {
        **{"T": ("float",), "mixed": (False, True), "columns": (4, 8), "ahead": (1,)},
        **{"vector": (VECTOR,), "vectors": (VECTORS,), "lanes": LANES, "threads": (128,)},
    },
    max_registers=168,
    bodies=(
        *(Body(f"tile_blocks_{height}", (_INT, _INT, _FLOAT, _INT)) for height in (16, 8)),
        Body("ell_buckets", (_INT, _INT, _INT, _FLOAT)),
    ),
)


def split_pieces(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Order groups as lanes hold them for two ``mma_m16n8k8``.

    Parameters
    ----------
    values : (g, 16, 16) float32

    Returns
    -------
    (g, 2, 32, 4) float32
        For each half of a group's columns the four elements of each lane: two columns of the lane's row, then the same
        of the row eight below. Column 8 h + 2 t + k is the (t + 4 k)-th of the unit's eight, as the rows of B in the
        kernel.
    """
    # Row = 8 side + r, column = 8 h + 2 t + k; lane = 4 r + t, its registers are (side, k).
    parts = values.reshape(-1, 2, 8, 2, 4, 2).transpose(0, 3, 2, 4, 1, 5)
    return np.ascontiguousarray(parts, np.float32).reshape(-1, 2, 32, 4)
