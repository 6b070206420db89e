"""An unrolled kernel as CUDA C++, as the paper publishes it (figure 8): one function a tile, chosen by block index.

The text also compiles for the host, where it runs under sanitizers.
"""

from __future__ import annotations

from collections.abc import Iterator

from spmark.impls.lo_spmm.conv import ConvShape
from spmark.impls.lo_spmm.kernel import NAME, Tile, UnrolledKernel, steps

_PLACE_OF_COLUMNS = """\
  const auto* from = reinterpret_cast<const Columns*>(b + column);
  auto* to = reinterpret_cast<Columns*>(c + column);"""


def literal(value: float) -> str:
    """Write a float32 as a hexadecimal literal, which every compiler reads back to the same bits."""
    return f"{float(value).hex()}f"


def cuda_source(kernel: UnrolledKernel) -> str:
    """Write the whole kernel as a template, ``lo_spmm<threads, min_blocks>(b, c, tile_threads)``.

    ``min_blocks`` thread blocks of ``threads`` must fit a multiprocessor, which caps registers as ``--maxrregcount``
    does in the paper. All block sizes share the text.
    """
    functions = "\n".join(_function(kernel, tile, number) for number, tile in enumerate(kernel.tiles))
    more = ", first, valid" if kernel.conv else ""
    cases = "\n".join(
        f"    case {tile}: return tile_{number}(from, to{more});"
        for tile, number in enumerate(kernel.dispatch.tolist())
    )
    place = _place_of_pixel(kernel.conv) if kernel.conv else _PLACE_OF_COLUMNS
    begin = "\n  let_next_grid_begin();" if kernel.followed else ""
    cpt = kernel.cpt
    return f"""#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;

using Columns = Vec<float, {cpt}>;  // of a thread, moved at once

{functions}
template <int threads, int min_blocks>
__global__ void __launch_bounds__(threads, min_blocks)
    {NAME}(const float* __restrict__ b, float* __restrict__ c, unsigned tile_threads) {{{begin}
  const unsigned tile = blockIdx.y * (blockDim.x / tile_threads) + threadIdx.x / tile_threads;
  const unsigned column = (blockIdx.x * tile_threads + threadIdx.x % tile_threads) * {cpt};
  if (column >= {kernel.width}) return;
{place}
  switch (tile) {{
{cases}
  }}
}}
"""


def _place_of_pixel(conv: ConvShape) -> str:
    """Find a pixel's first tap, which may lie in the padding, and the taps that lie in the image."""
    (down, right), wide = conv.taps, conv.out_size[1]
    inside = "\n".join(
        f"  valid |= (unsigned)(top + {y} >= 0 && top + {y} < {conv.height} && left + {x} >= 0 && left + {x} < "
        f"{conv.width}) << {y * right + x};"
        for y in range(down)
        for x in range(right)
    )
    return f"""  const int image = column / {conv.out_area}, pixel = column % {conv.out_area};
  const int top = pixel / {wide} * {conv.stride} - {conv.padding};
  const int left = pixel % {wide} * {conv.stride} - {conv.padding};
  const long long first = image * {conv.image}ll + top * {conv.width}ll + left;
  const auto* from = reinterpret_cast<const Columns*>(b);
  auto* to = reinterpret_cast<Columns*>(c + image * {conv.filters * conv.out_area}ll + pixel);
  unsigned valid = 0;
{inside if conv.padding else ""}"""


def _function(kernel: UnrolledKernel, tile: Tile, number: int) -> str:
    body = "\n".join(f"  {line}" for line in _body(kernel, tile))
    more = ", long long first, unsigned valid" if kernel.conv else ""
    head = f"__device__ void tile_{number}(const Columns* __restrict__ b, Columns* __restrict__ c{more})"
    return f"{head} {{\n{body}\n}}\n"


def _body(kernel: UnrolledKernel, tile: Tile) -> Iterator[str]:
    # Plain floats, and elements of vectors in place: a host compiler guards a stack slot for the result of every call.
    cpt, depth, ending = kernel.cpt, kernel.prefetch, kernel.ending
    lanes, first = range(cpt), "first + " if kernel.conv else ""
    for number, start in enumerate(ending.starts(tile.rows)):
        yield " ".join(f"float s{number}_{lane} = {literal(start)};" for lane in lanes)
    for slot in range(min(depth, tile.nnc)):
        yield " ".join(f"float v{slot}_{lane};" for lane in lanes)
    sums, values, taps = tile.sums.tolist(), tile.values.tolist(), kernel.taps(tile)
    places = [f"b[{first}{offset // cpt}ll]" for offset in kernel.load_offsets(tile)]
    for loads, column, entries in steps(tile, depth):
        for position in loads:
            place, slot = places[position], position % depth
            if taps is None:
                yield " ".join(f"v{slot}_{lane} = {place}.v[{lane}];" for lane in lanes)
            else:
                yield f"v{slot}_0 = valid >> {taps[position]} & 1 ? {place}.v[0] : 0.0f;"
        if column == 0:
            # Constants are stored after the first loads, while the thread waits for these loads anyway.
            for offset, constant in zip(kernel.store_offsets(tile.empty), ending.of_empty(tile.empty), strict=True):
                yield " ".join(f"c[{offset // cpt}ll].v[{lane}] = {literal(constant)};" for lane in lanes)
        for entry in entries:
            for lane in lanes:
                total, element = f"s{sums[entry]}_{lane}", f"v{column % depth}_{lane}"
                yield f"{total} = fmaf({literal(values[entry])}, {element}, {total});"
    for number, offset in enumerate(kernel.store_offsets(tile.rows)):
        results = [f"s{number}_{lane}" for lane in lanes]
        if ending.relu:
            results = [f"{name} < 0.0f ? 0.0f : {name}" for name in results]
        yield " ".join(f"c[{offset // cpt}ll].v[{lane}] = {result};" for lane, result in enumerate(results))
