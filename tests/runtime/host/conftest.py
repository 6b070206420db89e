"""The kernels of tests/runtime/kernels, compiled once a session and launched by name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from host_races import watched

from spmark.impls.runtime.host.ring import Argument, compile_host, launch_host, ring_objects
from spmark.impls.runtime.toolchain import INCLUDE, cuda_include

KERNELS = Path(__file__).parents[1] / "kernels"

Launch = Callable[..., None]

FAULTS = (
    "barrier_in_half_the_threads",
    "barrier_after_early_return",
    "two_different_barriers",
    "barrier_in_unequal_loops",
    "read_past_global",
    "write_past_global",
    "atomic_past_global",
    "write_past_static_shared",
    "index_past_static_shared<float, 32>",
    "write_past_dynamic_shared",
    "misaligned_load",
    "misaligned_shared_load",
    "misaligned_async",
    "reads_uninitialised_static",
    "reads_uninitialised_dynamic",
    "unfinished_copy<true, true>",
    "unfinished_copy<true, false>",
    "unfinished_copy<false, true>",
    "missing_lane_in_shuffle",
    "lanes_in_different_collectives",
    "mask_without_the_caller",
    "reads_a_lane_outside_the_mask",
    "never_ends",
    "traps",
    "writes_to_its_input",
    "takes_int",
    "reads_uninitialised_local",
    "overflows_its_stack",
)
RACES = (
    "missing_barrier",
    "missing_second_barrier<true>",
    "missing_second_barrier<false>",
    "missing_syncwarp<0>",
    "missing_syncwarp<1>",
    "missing_syncwarp<2>",
    "changes_in_place<true>",
    "changes_in_place<false>",
    "copies_over_what_is_read<true>",
    "copies_over_what_is_read<false>",
    "blocks_write_the_same",
    "atomic_and_plain",
    *(f"last_adds_up<{n}>" for n in range(7)),
    *(f"last_warp_adds_up<{n}>" for n in range(5)),
    "clear_rows",
    *(f"add_to_rows<{n}>" for n in range(5)),
    "order_of_arrival",
)
GOOD = (
    "tree_sum<128>",
    *(f"group_sum<{width}>" for width in (1, 4, 8, 32)),
    *(f"shuffles<{type_}>" for type_ in ("int", "float", "double", "long long", "half")),
    "votes",
    "atomics",
    "block_scan<256>",
    *(f"copies<float, {n}>" for n in (1, 2, 4)),
    *(f"copies<{type_}, {n}>" for type_ in ("half", "bfloat16") for n in (1, 2, 4)),
    *(f"double_buffer<{threads}>" for threads in (32, 64)),
    "static_and_dynamic<float, 64>",
    "static_and_dynamic<int, 64>",
    "mma_tf32",
    "matrix_fragments<true>",
    "matrix_fragments<false>",
    *(f"{name}<{type_}>" for name in ("mma_16_bits", "widen", "narrow") for type_ in ("half", "bfloat16")),
    "round_tf32",
    "indices",
)


def _launcher(source: str, instances: tuple[str, ...]) -> Launch:
    executable = compile_host(KERNELS / source, instances)

    def launch(
        instance: str,
        args: list[Argument],
        block: int | tuple[int, int, int] = 32,
        grid: int | tuple[int, int, int] = 1,
        shared_bytes: int = 0,
    ) -> None:
        blocks = (grid, 1, 1) if isinstance(grid, int) else grid
        threads = (block, 1, 1) if isinstance(block, int) else block
        launch_host(executable, instance, blocks, threads, shared_bytes, args)

    return launch


@pytest.fixture(scope="session")
def ring_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a cache that holds the host ring alone."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "kernels").mkdir()
    for compiled in ring_objects():
        shutil.copy(compiled, folder / "kernels")
    return folder


@pytest.fixture
def cache(ring_alone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a test compile into a cache that holds the host ring and what such tests compiled."""
    monkeypatch.setenv("SPMARK_CACHE", str(ring_alone))
    return ring_alone / "kernels"


@pytest.fixture(scope="session")
def faults() -> Launch:
    return _launcher("faults.cu", FAULTS)


@pytest.fixture(scope="session")
def races_executable() -> Path:
    with watched():
        return compile_host(KERNELS / "races.cu", RACES)


@pytest.fixture(scope="session")
def races() -> Launch:
    with watched():
        return _launcher("races.cu", RACES)


def _gpu_launcher(source: str, instances: tuple[str, ...]) -> Launch:
    """The same launches on a GPU: what a host twin promises is what the instruction does."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.is_available():
        pytest.skip("there is no GPU")
    options = ("-std=c++17", f"-I{INCLUDE}", f"-I{cuda_include()}")
    module = cupy.RawModule(code=(KERNELS / source).read_text(), options=options, name_expressions=instances)

    def launch(instance, args, block=32, grid=1, shared_bytes=0):
        copies = [cupy.asarray(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
        blocks = (grid, 1, 1) if isinstance(grid, int) else grid
        threads = (block, 1, 1) if isinstance(block, int) else block
        module.get_function(instance)(blocks, threads, tuple(copies), shared_mem=shared_bytes)
        for arg, copy in zip(args, copies, strict=True):
            if isinstance(arg, np.ndarray):
                arg[...] = copy.get()

    return launch


@pytest.fixture(scope="session", params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def good(request: pytest.FixtureRequest) -> Launch:
    return _launcher("good.cu", GOOD) if request.param == "host" else _gpu_launcher("good.cu", GOOD)


@pytest.fixture(scope="session")
def good_source() -> tuple[str, tuple[str, ...]]:
    """The text of good.cu and the instances that the tests launch."""
    return (KERNELS / "good.cu").read_text(), GOOD
