"""An unrolled kernel as PTX, which ptxas assembles many times faster than a compiler takes the same kernel as C++.

Every tile is a function that ends the thread instead of returning (``.noreturn``), so that the ABI gives it all
registers and saves nothing on a stack. The entry point jumps through a table of thread blocks. The functions are
independent of each other and are assembled side by side (`assemble`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from spmark.impls.lo_spmm.conv import ConvShape
from spmark.impls.lo_spmm.kernel import INSTRUCTION_BYTES, NAME, Tile, UnrolledKernel, steps
from spmark.impls.runtime.target import ceil_div

_ELEMENT_BYTES = 4
_FIRST_TO_OVERLAP = 90
"""Compute capability from which a grid can let the next one begin."""
_OTHER_INSTRUCTIONS = 40
"""Instructions of a function beside loads, products and stores; asking for a line too many does no harm."""
_LINE_BYTES = 128
_PLACE_OF_COLUMNS = f"""\
  mul.wide.u32 %rd3, %r8, {_ELEMENT_BYTES};
  add.u64 %rd1, %rd1, %rd3;
  add.u64 %rd2, %rd2, %rd3;"""
_WARMING_BLOCKS = 2
"""Thread blocks of each tile that ask for its code; later blocks find it in the cache."""
_MOST_WARMED_BYTES = 8 << 20
"""Bytes of B: a small part of L2, so that nothing is driven out."""
_VERSIONS = (
    (121, "8.8"), (120, "8.7"), (103, "8.8"), (100, "8.6"), (89, "7.8"), (87, "7.4"), (86, "7.1"), (0, "7.0"),
)  # fmt: skip
"""PTX versions that know an architecture, by the lowest compute capability that takes each version."""


def _capability(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("af"))


def head(arch: str) -> str:
    """Give the first lines of a module for ``arch`` (``sm_90``)."""
    version = next(version for lowest, version in _VERSIONS if _capability(arch) >= lowest)
    return f".version {version}\n.target {arch}\n.address_size 64\n"


def entry_ptx(kernel: UnrolledKernel, arch: str) -> str:
    """Write the module of the entry point ``lo_spmm(B, C, threads)``, which calls the functions of `function_ptx`.

    ``threads`` are those of a tile. Where the kernel warms caches, the first blocks of each tile ask for its code,
    which is otherwise fetched line by line as it is run. The first threads of the grid ask for B where B is small.
    """
    declared = "\n".join(f".extern .func {_signature(kernel, number)};" for number in range(len(kernel.tiles)))
    used = sorted(set(kernel.dispatch.tolist()))
    table = ", ".join(f"L{number}" for number in kernel.dispatch.tolist())
    calls = "\n".join(_call(kernel, number) for number in used)
    overlaps = kernel.followed and _capability(arch) >= _FIRST_TO_OVERLAP
    begin = "\n  griddepcontrol.launch_dependents;" if overlaps else ""
    return f"""{head(arch)}
{declared}
.visible .entry {NAME}(.param .u64 b, .param .u64 c, .param .u32 threads)
{{
  .reg .pred %p;
  .reg .b32 %r<16>;
  .reg .b64 %rd<6>;{begin}
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ctaid.y;
  mov.u32 %r4, %ntid.x;
  ld.param.u64 %rd1, [b];
  ld.param.u64 %rd2, [c];
  ld.param.u32 %r5, [threads];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
{_warm_operand(kernel)}
  rem.u32 %r6, %r1, %r5;
  div.u32 %r7, %r1, %r5;
  div.u32 %r8, %r4, %r5;
  mad.lo.u32 %r7, %r3, %r8, %r7;
  setp.ge.u32 %p, %r7, {kernel.dispatch.size};
  @%p exit;
  mad.lo.u32 %r8, %r2, %r5, %r6;
  mul.lo.u32 %r8, %r8, {kernel.cpt};
  setp.ge.u32 %p, %r8, {kernel.width};
  @%p exit;
{_place_of_pixel(kernel.conv) if kernel.conv else _PLACE_OF_COLUMNS}
BLOCKS: .branchtargets {table};
  brx.idx %r7, BLOCKS;
{calls}
}}
"""


def _signature(kernel: UnrolledKernel, number: int) -> str:
    return f"tile_{number}(.reg .b64 %rd1, .reg .b64 %rd2{', .reg .b32 %r1' * kernel.padded}) .noreturn"


def _call(kernel: UnrolledKernel, number: int) -> str:
    """Call a tile's function, after asking L2 for its code: thread %r6 of %r5 for every %r5-th line."""
    call = f"call tile_{number}, (%rd1, %rd2{', %r14' * kernel.padded});\n  exit;"
    if not kernel.warm:
        return f"L{number}:\n  {call}"
    tile = kernel.tiles[number]
    stores = tile.rows.size + tile.empty.size
    instructions = tile.nnz * kernel.cpt + tile.nnc + stores + _OTHER_INSTRUCTIONS
    return f"""L{number}:
  setp.ge.u32 %p, %r2, {_WARMING_BLOCKS};
  @%p bra C{number};
  mov.u64 %rd4, tile_{number};
W{number}:
  mul.wide.u32 %rd5, %r6, {_LINE_BYTES};
  add.u64 %rd5, %rd4, %rd5;
  prefetch.global.L2 [%rd5];
  add.u32 %r6, %r6, %r5;
  setp.lt.u32 %p, %r6, {ceil_div(instructions * INSTRUCTION_BYTES, _LINE_BYTES)};
  @%p bra W{number};
C{number}:
  {call}"""


def _place_of_pixel(conv: ConvShape) -> str:
    """Find a pixel's first tap, which may lie in the padding, and in %r14 the taps inside of the image."""
    (high, right), wide = conv.taps, conv.out_size[1]
    every = (1 << (high * right)) - 1
    lines = [
        f"div.u32 %r10, %r8, {conv.out_area};",
        f"rem.u32 %r11, %r8, {conv.out_area};",
        f"mad.lo.u32 %r12, %r10, {conv.filters * conv.out_area}, %r11;",
        f"mul.wide.u32 %rd3, %r12, {_ELEMENT_BYTES};",
        "add.u64 %rd2, %rd2, %rd3;",
        f"div.u32 %r12, %r11, {wide};",
        f"rem.u32 %r13, %r11, {wide};",
        f"mad.lo.s32 %r12, %r12, {conv.stride}, {-conv.padding};",
        f"mad.lo.s32 %r13, %r13, {conv.stride}, {-conv.padding};",
        f"mul.lo.s32 %r10, %r10, {conv.image};",
        f"mad.lo.s32 %r10, %r12, {conv.width}, %r10;",
        "add.s32 %r10, %r10, %r13;",
        f"mul.wide.s32 %rd3, %r10, {_ELEMENT_BYTES};",
        "add.s64 %rd1, %rd1, %rd3;",
    ]
    if conv.padding:
        lines.append("mov.u32 %r14, 0;")
        # Compared without sign, a place before the first is beyond the last.
        for y in range(high):
            of_row = ((1 << right) - 1) << (y * right)
            lines += [f"add.s32 %r15, %r12, {y};", f"setp.lt.u32 %p, %r15, {conv.height};"]
            lines += [f"selp.b32 %r15, {of_row}, 0, %p;", "or.b32 %r14, %r14, %r15;"]
        for x in range(right):
            others = every - sum(1 << (y * right + x) for y in range(high))
            lines += [f"add.s32 %r15, %r13, {x};", f"setp.lt.u32 %p, %r15, {conv.width};"]
            lines += [f"selp.b32 %r15, {every}, {others}, %p;", "and.b32 %r14, %r14, %r15;"]
    return "\n".join(f"  {line}" for line in lines)


def _warm_operand(kernel: UnrolledKernel) -> str:
    """Ask L2 for B, a line a thread, beginning with the first block's."""
    rows = max((int(tile.cols.max()) + 1 for tile in kernel.tiles if tile.nnc), default=0)
    size = rows * kernel.width * _ELEMENT_BYTES
    if not kernel.warm or kernel.conv or size > _MOST_WARMED_BYTES:
        return ""
    return f"""  mov.u32 %r6, %nctaid.x;
  mad.lo.u32 %r7, %r3, %r6, %r2;
  mad.lo.u32 %r7, %r7, %r4, %r1;
  mov.u32 %r8, %nctaid.y;
  mul.lo.u32 %r6, %r6, %r8;
  mul.lo.u32 %r6, %r6, %r4;
B:
  setp.ge.u32 %p, %r7, {size // _LINE_BYTES};
  @%p bra A;
  mul.wide.u32 %rd3, %r7, {_LINE_BYTES};
  add.u64 %rd3, %rd1, %rd3;
  prefetch.global.L2 [%rd3];
  add.u32 %r7, %r7, %r6;
  bra B;
A:"""


def function_ptx(kernel: UnrolledKernel, number: int) -> str:
    """Write one tile's function: %rd1 and %rd2 are B and C at the thread's first column, %r1 the taps inside."""
    body = "\n".join(_body(kernel, kernel.tiles[number]))
    return f".visible .func {_signature(kernel, number)}\n{{\n{body}\n}}\n"


def _body(kernel: UnrolledKernel, tile: Tile) -> Iterator[str]:
    cpt, depth, taps = kernel.cpt, kernel.prefetch, kernel.taps(tile)
    names = [f"%s{number}" for number in range(tile.rows.size * cpt)]
    yield f".reg .f32 %s<{max(1, len(names))}>;"
    yield f".reg .f32 %v<{depth * cpt}>;"
    for number, start in enumerate(kernel.ending.starts(tile.rows)):
        for name in names[number * cpt : (number + 1) * cpt]:
            yield f"mov.f32 {name}, {_literal(start)};"
    if taps is not None and kernel.conv is not None:
        yield f".reg .pred %p<{math.prod(kernel.conv.taps)}>;"
        yield ".reg .b32 %m;"
        for tap in sorted(set(taps)):
            yield f"and.b32 %m, %r1, {1 << tap};"
            yield f"setp.ne.u32 %p{tap}, %m, 0;"
    loaded = [_vector(f"%v{slot * cpt + lane}" for lane in range(cpt)) for slot in range(depth)]
    # Numbers are formatted once for each weight and sum: most of the time of writing a kernel goes to its products.
    words = [f", 0f{word:08X}, " for word in tile.values.view(np.uint32).tolist()]
    offsets, sums = kernel.load_offsets(tile), (tile.sums * cpt).tolist()
    for loads, column, entries in steps(tile, depth):
        for position in loads:
            kind, registers = loaded[position % depth]
            load = f"ld.global.nc{kind}.f32 {registers}, [%rd1+{offsets[position] * _ELEMENT_BYTES}];"
            if taps is None:
                yield load
            else:
                yield f"mov.f32 {registers}, {_literal(0.0)};"
                yield f"@%p{taps[position]} {load}"
        if column == 0:
            yield from _empty_rows(kernel, tile)
        first, last = entries.start, entries.stop
        for lane in range(cpt if entries else 0):
            element = f", %v{column % depth * cpt + lane}"
            yield "\n".join(
                [
                    f"fma.rn.f32 {names[total + lane]}{element}{word}{names[total + lane]};"
                    for total, word in zip(sums[first:last], words[first:last], strict=True)
                ]
            )
    for number, offset in enumerate(kernel.store_offsets(tile.rows)):
        yield from _result(kernel, names[number * cpt : (number + 1) * cpt], offset)
    yield "exit;"


def _result(kernel: UnrolledKernel, names: list[str], offset: int) -> Iterator[str]:
    """Store the sums of a row."""
    if kernel.ending.relu:
        for name in names:
            yield f"max.NaN.f32 {name}, {name}, {_literal(0.0)};"
    kind, registers = _vector(names)
    yield f"st.global{kind}.f32 [%rd2+{offset * _ELEMENT_BYTES}], {registers};"


def _empty_rows(kernel: UnrolledKernel, tile: Tile) -> Iterator[str]:
    """Store constants after the first loads: the stores then run while the thread waits for these loads anyway."""
    kind, registers = _vector(["%z"] * kernel.cpt)
    current = ""
    if tile.empty.size:
        yield ".reg .f32 %z;"
    for result, offset in zip(kernel.ending.of_empty(tile.empty), kernel.store_offsets(tile.empty), strict=True):
        constant = _literal(result)
        if constant != current:  # without a bias all rows share one constant
            yield f"mov.f32 %z, {constant};"
            current = constant
        yield f"st.global{kind}.f32 [%rd2+{offset * _ELEMENT_BYTES}], {registers};"


def _literal(value: float) -> str:
    """Write a float32 by its bits."""
    return f"0f{int(np.float32(value).view(np.uint32)):08X}"


def _vector(registers: Iterable[str]) -> tuple[str, str]:
    """Give how an instruction says that it moves some registers at once, and their names."""
    names = list(registers)
    return (f".v{len(names)}", f"{{{', '.join(names)}}}") if len(names) > 1 else ("", names[0])
