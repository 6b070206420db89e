"""An unrolled kernel as CUDA C++, as the paper publishes it (figure 8): one function a tile, chosen by block index.

The text also compiles for the host, where it runs under sanitizers.
"""

from __future__ import annotations

from collections.abc import Iterator

from spmark.impls.lo_spmm.kernel import NAME, Tile, UnrolledKernel, steps

_HEAD = """\
#include <spmark/vec.cuh>

using namespace spmark;
"""


def literal(value: float) -> str:
    """Write a float32 as a hexadecimal literal, which every compiler reads back to the same bits."""
    return f"{float(value).hex()}f"


def cuda_source(kernel: UnrolledKernel, min_blocks: int = 1) -> str:
    """Write the whole kernel as a template over its block size, ``lo_spmm<threads>``.

    Parameters
    ----------
    kernel : UnrolledKernel
    min_blocks : int
        Thread blocks that must fit a multiprocessor, which caps registers as ``--maxrregcount`` does in the paper.
    """
    functions = "\n".join(_function(kernel, number) for number in range(len(kernel.tiles)))
    cases = "\n".join(
        f"    case {block}: return tile_{number}(from, to);" for block, number in enumerate(kernel.dispatch.tolist())
    )
    cpt = kernel.schedule.cpt
    return f"""{_HEAD}
using Columns = Vec<float, {cpt}>;  // of a thread, moved at once

{functions}
template <int threads>
__global__ void __launch_bounds__(threads, {min_blocks})
    {NAME}(const float* __restrict__ b, float* __restrict__ c) {{
  const int column = (blockIdx.x * threads + threadIdx.x) * {cpt};
  if (column >= {kernel.width}) return;
  const auto* from = reinterpret_cast<const Columns*>(b + column);
  auto* to = reinterpret_cast<Columns*>(c + column);
  switch (blockIdx.y) {{
{cases}
  }}
}}
"""


def _function(kernel: UnrolledKernel, number: int) -> str:
    tile = kernel.tiles[number]
    body = "\n".join(f"  {line}" for line in _body(kernel, tile))
    return f"__device__ void tile_{number}(const Columns* __restrict__ b, Columns* __restrict__ c) {{\n{body}\n}}\n"


def _body(kernel: UnrolledKernel, tile: Tile) -> Iterator[str]:
    # Plain floats, and elements of vectors in place: a host compiler gives every call's result a place that it guards.
    cpt, depth = kernel.schedule.cpt, kernel.schedule.prefetch
    row = kernel.width // cpt
    lanes = range(cpt)
    yield f"float {', '.join(f's{number}_{lane} = 0.0f' for number in range(tile.rows.size) for lane in lanes)};"
    yield f"float {', '.join(f'v{slot}_{lane}' for slot in range(min(depth, tile.nnc)) for lane in lanes)};"
    cols, sums, values = tile.cols.tolist(), tile.sums.tolist(), tile.values.tolist()
    for step in steps(tile, kernel.schedule):
        for position in step.loads:
            place = f"b[{cols[position] * row}ll]"
            yield " ".join(f"v{position % depth}_{lane} = {place}.v[{lane}];" for lane in lanes)
        for entry in step.entries:
            for lane in lanes:
                total, element = f"s{sums[entry]}_{lane}", f"v{step.column % depth}_{lane}"
                yield f"{total} = fmaf({literal(values[entry])}, {element}, {total});"
    for number, target in enumerate(tile.rows.tolist()):
        yield " ".join(f"c[{target * row}ll].v[{lane}] = s{number}_{lane};" for lane in lanes)
