"""An unrolled kernel as PTX, which ptxas assembles many times faster than a compiler takes the same kernel as C++.

Every tile is a function that ends the thread instead of returning (``.noreturn``), so that the ABI gives it all
registers and nothing is saved on a stack; the entry point jumps through a table of thread blocks. The functions are
independent of each other and are assembled side by side (`assemble`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spmark.impls.lo_spmm.kernel import NAME, Tile, UnrolledKernel, steps

_ELEMENT_BYTES = 4
_SIGNATURE = "(.reg .b64 %rd1, .reg .b64 %rd2) .noreturn"
_VERSIONS = ((100, "8.6"), (90, "7.8"), (0, "7.0"))
"""PTX by the lowest compute capability that needs it."""


def head(arch: str) -> str:
    """Give the first lines of a module for ``arch`` (``sm_90``)."""
    capability = int(arch.removeprefix("sm_").rstrip("af"))
    version = next(version for lowest, version in _VERSIONS if capability >= lowest)
    return f".version {version}\n.target {arch}\n.address_size 64\n"


def entry_ptx(kernel: UnrolledKernel, arch: str) -> str:
    """Write the module of the entry point ``lo_spmm(B, C)``, which calls the functions of `function_ptx`."""
    cpt = kernel.schedule.cpt
    declared = "\n".join(f".extern .func tile_{number}{_SIGNATURE};" for number in range(len(kernel.tiles)))
    used = sorted(set(kernel.dispatch.tolist()))
    table = ", ".join(f"L{number}" for number in kernel.dispatch.tolist())
    calls = "\n".join(f"L{number}:\n  call tile_{number}, (%rd1, %rd2);\n  exit;" for number in used)
    return f"""{head(arch)}
{declared}
.visible .entry {NAME}(.param .u64 b, .param .u64 c)
{{
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mad.lo.u32 %r1, %r2, %r3, %r1;
  mul.lo.u32 %r1, %r1, {cpt};
  setp.ge.u32 %p, %r1, {kernel.width};
  @%p exit;
  mul.wide.u32 %rd3, %r1, {_ELEMENT_BYTES};
  ld.param.u64 %rd1, [b];
  ld.param.u64 %rd2, [c];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  add.u64 %rd1, %rd1, %rd3;
  add.u64 %rd2, %rd2, %rd3;
  mov.u32 %r1, %ctaid.y;
BLOCKS: .branchtargets {table};
  brx.idx %r1, BLOCKS;
{calls}
}}
"""


def function_ptx(kernel: UnrolledKernel, number: int) -> str:
    """Write one tile's function: %rd1 and %rd2 are B and C at the thread's first column."""
    body = "\n".join(f"  {line}" for line in _body(kernel, kernel.tiles[number]))
    return f".visible .func tile_{number}{_SIGNATURE}\n{{\n{body}\n}}\n"


def _body(kernel: UnrolledKernel, tile: Tile) -> Iterator[str]:
    cpt, depth = kernel.schedule.cpt, kernel.schedule.prefetch
    row_bytes = kernel.width * _ELEMENT_BYTES
    lanes = range(cpt)
    vector = f".v{cpt}" if cpt > 1 else ""
    yield f".reg .f32 %s<{max(1, tile.rows.size * cpt)}>;"
    yield f".reg .f32 %v<{depth * cpt}>;"
    for number in range(tile.rows.size * cpt):
        yield f"mov.f32 %s{number}, 0f00000000;"
    words = tile.values.view(np.uint32).tolist()
    cols, sums = tile.cols.tolist(), tile.sums.tolist()
    for step in steps(tile, kernel.schedule):
        for position in step.loads:
            loaded = _registers("%v", position % depth, cpt)
            yield f"ld.global.nc{vector}.f32 {loaded}, [%rd1+{cols[position] * row_bytes}];"
        for entry in step.entries:
            for lane in lanes:
                number = sums[entry] * cpt + lane
                element = step.column % depth * cpt + lane
                yield f"fma.rn.f32 %s{number}, %v{element}, 0f{words[entry]:08X}, %s{number};"
    for number, row in enumerate(tile.rows.tolist()):
        yield f"st.global{vector}.f32 [%rd2+{row * row_bytes}], {_registers('%s', number, cpt)};"
    yield "exit;"


def _registers(letter: str, number: int, cpt: int) -> str:
    names = [f"{letter}{number * cpt + lane}" for lane in range(cpt)]
    return f"{{{', '.join(names)}}}" if cpt > 1 else names[0]
