"""An unrolled kernel as CUDA C++, as the paper publishes it (figure 8): one function a tile, chosen by block index.

The text also compiles for the host, where it runs under sanitizers.
"""

from __future__ import annotations

from collections.abc import Iterator

from spmark.impls.lo_spmm.conv import ConvShape
from spmark.impls.lo_spmm.kernel import NAME, Tile, UnrolledKernel, steps

_HEAD = """\
#include <spmark/overlap.cuh>
#include <spmark/vec.cuh>

using namespace spmark;
"""
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
    functions = "\n".join(_function(kernel, number) for number in range(len(kernel.tiles)))
    more = ", first, valid" if kernel.conv else ""
    cases = "\n".join(
        f"    case {tile}: return tile_{number}(from, to{more});"
        for tile, number in enumerate(kernel.dispatch.tolist())
    )
    place = _place_of_pixel(kernel.conv) if kernel.conv else _PLACE_OF_COLUMNS
    begin = "\n  let_next_grid_begin();" if kernel.followed else ""
    cpt = kernel.schedule.cpt
    return f"""{_HEAD}
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


def _function(kernel: UnrolledKernel, number: int) -> str:
    tile = kernel.tiles[number]
    body = "\n".join(f"  {line}" for line in _body(kernel, tile))
    more = ", long long first, unsigned valid" if kernel.conv else ""
    head = f"__device__ void tile_{number}(const Columns* __restrict__ b, Columns* __restrict__ c{more})"
    return f"{head} {{\n{body}\n}}\n"


def _loads(kernel: UnrolledKernel, tile: Tile) -> list[str]:
    """Give the place of every load's elements."""
    conv, cpt = kernel.conv, kernel.schedule.cpt
    if conv is None:
        return [f"b[{offset // cpt}ll]" for offset in kernel.load_offsets(tile)]
    return [f"b[first + {offset}ll]" for offset in kernel.load_offsets(tile)]


def _body(kernel: UnrolledKernel, tile: Tile) -> Iterator[str]:
    # Plain floats, and elements of vectors in place: a host compiler guards a stack slot for the result of every call.
    cpt, depth = kernel.schedule.cpt, kernel.schedule.prefetch
    lanes, slots = range(cpt), range(min(depth, tile.nnc))
    for number, row in enumerate(tile.rows.tolist()):
        yield " ".join(f"float s{number}_{lane} = {literal(kernel.ending.start(row))};" for lane in lanes)
    for slot in slots:
        yield " ".join(f"float v{slot}_{lane};" for lane in lanes)
    places, sums, values = _loads(kernel, tile), tile.sums.tolist(), tile.values.tolist()
    taps = kernel.conv.tap_of(tile.cols).tolist() if kernel.conv and kernel.conv.padding else None
    for step in steps(tile, kernel.schedule):
        for position in step.loads:
            place, slot = places[position], position % depth
            if taps is None:
                yield " ".join(f"v{slot}_{lane} = {place}.v[{lane}];" for lane in lanes)
            else:
                yield f"v{slot}_0 = valid >> {taps[position]} & 1 ? {place}.v[0] : 0.0f;"
        if step.column == 0:
            yield from _empty_rows(kernel, tile)
        for entry in step.entries:
            for lane in lanes:
                total, element = f"s{sums[entry]}_{lane}", f"v{step.column % depth}_{lane}"
                yield f"{total} = fmaf({literal(values[entry])}, {element}, {total});"
    if not tile.nnc:
        yield from _empty_rows(kernel, tile)
    for number, offset in enumerate(kernel.store_offsets(tile.rows)):
        results = [f"s{number}_{lane}" for lane in lanes]
        if kernel.ending.relu:
            results = [f"{name} < 0.0f ? 0.0f : {name}" for name in results]
        yield " ".join(
            f"c[{offset // cpt}ll].v[{lane}] = {result};" for lane, result in zip(lanes, results, strict=True)
        )


def _empty_rows(kernel: UnrolledKernel, tile: Tile) -> Iterator[str]:
    """Store constants after the first loads: the stores then run while the thread waits for these loads anyway."""
    cpt = kernel.schedule.cpt
    for row, offset in zip(tile.empty.tolist(), kernel.store_offsets(tile.empty), strict=True):
        constant = literal(kernel.ending.of_empty(row))
        yield " ".join(f"c[{offset // cpt}ll].v[{lane}] = {constant};" for lane in range(cpt))
