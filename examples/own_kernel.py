"""Put a kernel of your own beside others: `examples/mykernel` is a folder outside of spmark.

    python examples/own_kernel.py

A kernel is a class in a Python file, with CUDA in a file beside it. The script races the class against SciPy's product
on the CPU and prints both times. It also compiles the CUDA for the host with g++ and runs each thread under sanitizers,
which needs no GPU. `spmark check examples/mykernel/mykernel.py:MyKernel` tries many more problems.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse

import spmark

MINE = f"{Path(__file__).parent}/mykernel/mykernel.py:MyKernel"


def main() -> None:
    """Race on the CPU, then run the CUDA kernel on the host."""
    rng = np.random.default_rng(0)
    a = sparse.random_array((200, 150), density=0.05, format="csr", dtype=np.float32, rng=rng)
    b = rng.standard_normal((150, 8)).astype(np.float32)

    race = spmark.compile(a, width=8, use=["scipy_cpu", MINE], device="cpu")
    np.testing.assert_allclose(race(b), a @ b, rtol=1e-3, atol=1e-3)
    print(race.explain())

    on_host = spmark.compile(a, width=8, use=MINE, device="host-simt")
    np.testing.assert_allclose(on_host(b), a @ b, rtol=1e-3, atol=1e-3)
    print("the CUDA kernel agrees with SciPy's product")


if __name__ == "__main__":
    main()
