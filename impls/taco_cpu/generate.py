"""The C function of a loop nest, in the manner of TACO's generated code: a loop for each level and each dense index.

A loop over an uncompressed level counts coordinates; a loop over a compressed level counts positions and reads their
coordinates. The innermost loop runs along rows of dense operands, in vectors.
"""

from __future__ import annotations

from collections.abc import Iterable

from spmark.impls.core.problem import Op
from spmark.impls.taco_cpu.space import SPLITS, Nest

SIZES = ("threads", "chunk", "num_rows", "num_cols", "width", *SPLITS.values())
"""The numbers that every function takes before its arrays, int64_t: threads of the parallel loop and iterations that a
thread takes at a time, I, K, J, and iterations of i0, k0 and j0."""
_LENGTHS = {"i": "num_rows", "k": "num_cols", "j": "width"}
_CLEARED = (
    "#pragma omp parallel for num_threads(threads) schedule(static)",
    "for (int64_t i = 0; i < num_rows; ++i) memset(out + i * width, 0, width * sizeof(float));",
)
"""Clears C in a loop of its own, where the nest does not."""
_TYPES = {
    **dict.fromkeys(("pos", "crd", "entries"), "const int32_t"),
    **dict.fromkeys(("values", "scale", "dense", "x", "y"), "const float"),
    "out": "float",
}
"""Types of arrays: those of `spmark.impls.taco_cpu.storage.store`, a level's with its name behind, as in ``pos_k1``;
values that scale SDDMM, or NULL; operands; the result, of which every element is written."""


def arrays_of(nest: Nest) -> tuple[str, ...]:
    """Name the arrays that the function of a nest takes after `SIZES`: A's, then operands and result."""
    levels = [f"{array}_{loop}" for loop in nest.levels if loop in nest.compressed for array in ("pos", "crd")]
    if nest.op is Op.SPMM:
        return (*levels, "values", "dense", "out")
    return (*levels, *(() if _in_csr_order(nest) else ("entries",)), "scale", "x", "y", "out")


def generate(nest: Nest) -> str:
    """Give the C source of a nest: one function, which has the nest's name."""
    formats = (f"{loop} {'compressed' if loop in nest.compressed else 'uncompressed'}" for loop in nest.levels)
    extents = []
    for loop in nest.loops:
        if loop.endswith("1") and loop not in nest.compressed:
            length, split = _LENGTHS[loop[0]], SPLITS[loop[0]]
            tiles = f"({length} + {split} - 1) / {split}" if f"{loop[0]}0" in nest.loops else length
            extents.append(f"const int64_t extent_{loop} = {tiles};")
    # SDDMM's first visit of an element overwrites it.
    cleared = [] if nest.op is Op.SDDMM or _clears_as_it_goes(nest) else _CLEARED
    arrays = [f"{_TYPES[name.split('_')[0]]} *restrict {name}" for name in arrays_of(nest)]
    lines = [
        f"// {nest.op}: loops {' '.join(nest.loops)}; levels of A: {', '.join(formats)}.",
        "#include <stdint.h>",
        "#include <string.h>",
        "",
        "static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }",
        "",
        f"void {nest.name}({', '.join([*(f'int64_t {name}' for name in SIZES), *arrays])}) {{",
        *_indented([*extents, *cleared, *_loops(nest, 0, "")]),
        "}",
    ]
    return "\n".join([*lines, ""])


def _indented(lines: Iterable[str]) -> list[str]:
    return ["    " + line for line in lines]


def _of_tile(index: str) -> str:
    """Give the number of iterations of an inner loop: fewer in the last tile, where the split does not divide."""
    return f"least({SPLITS[index]}, {_LENGTHS[index]} - {index}1 * {SPLITS[index]})"


def _in_csr_order(nest: Nest) -> bool:
    """Tell whether the positions of the last level are A's non-zeros in CSR order, which needs no table."""
    indices = [loop[0] for loop in nest.levels]
    return indices == sorted(indices) and nest.levels[-1] in nest.compressed


def _clears_as_it_goes(nest: Nest) -> bool:
    """Tell whether the outermost loop meets all rows of C: it then clears them on their way into the cache."""
    return nest.op is Op.SPMM and nest.loops[0] == "i1" and "i1" not in nest.compressed


def _loops(nest: Nest, depth: int, above: str) -> list[str]:
    """Give the loop at a depth with all that is inside; ``above`` is the position in A's level above, or empty."""
    if depth == len(nest.loops):
        return ["c[j] += value * b[j];" if nest.op is Op.SPMM else "sum += left[j] * right[j];"]
    loop, inside = nest.loops[depth], _named(nest, nest.loops[depth], above)
    if depth == 0 and _clears_as_it_goes(nest):
        first, rows = ("i1 * isplit", f"{_of_tile('i')} * ") if "i0" in nest.loops else ("i", "")
        inside.append(f"memset(out + {first} * width, 0, {rows}width * sizeof(float));")
    before, behind = _element(nest, loop) if loop == nest.levels[-1] else ([], [])
    below = _loops(nest, depth + 1, f"p_{loop}" if loop in nest.levels else above)
    return [*_head(nest, loop, above), *_indented([*inside, *before, *below, *behind]), "}"]


def _head(nest: Nest, loop: str, above: str) -> list[str]:
    """Give what stands before the body of a loop."""
    lines = []
    if loop.endswith("0") and loop not in nest.compressed:
        lines.append(f"const int64_t extent_{loop} = {_of_tile(loop[0])};")
    if loop == nest.parallel:
        lines.append("#pragma omp parallel for num_threads(threads) schedule(dynamic, chunk)")
    if loop == nest.loops[-1]:
        lines.append("#pragma omp simd" + ("" if nest.op is Op.SPMM else " reduction(+ : sum)"))
    counter, first, last = loop, "0", f"extent_{loop}"
    if loop in nest.compressed:
        counter = f"p_{loop}"
        first, last = f"pos_{loop}[{above or 0}]", f"pos_{loop}[{above + ' + ' if above else ''}1]"
    return [*lines, f"for (int64_t {counter} = {first}; {counter} < {last}; ++{counter}) {{"]


def _named(nest: Nest, loop: str, above: str) -> list[str]:
    """Define what a loop makes known: its coordinate or position, and the index that it completes."""
    index, lines = loop[0], []
    if loop in nest.compressed:
        lines.append(f"const int64_t {loop} = crd_{loop}[p_{loop}];")
    elif loop in nest.levels:
        extent = SPLITS[index] if loop.endswith("0") else f"extent_{loop}"
        lines.append(f"const int64_t p_{loop} = " + (f"{above} * {extent} + {loop};" if above else f"{loop};"))
    if loop.endswith("0"):
        lines.append(f"const int64_t {index} = {index}1 * {SPLITS[index]} + {index}0;")
    elif f"{index}0" not in nest.loops:
        lines.append(f"const int64_t {index} = {index}1;")
    return lines


def _element(nest: Nest, leaf: str) -> tuple[list[str], list[str]]:
    """Give what is read of an element of A before the loops inside, and what is written behind them."""
    if nest.op is Op.SPMM:
        return [
            f"const float value = values[p_{leaf}];",
            "const float *const b = dense + k * width;",
            "float *const c = out + i * width;",
        ], []
    place = f"p_{leaf}" if _in_csr_order(nest) else f"entries[p_{leaf}]"
    before = [
        f"const int64_t at = {place};",
        *([] if leaf in nest.compressed else ["if (at < 0) continue;"]),
        "const float *const left = x + i * width;",
        "const float *const right = y + k * width;",
        "float sum = 0;",
    ]
    term = f"scale ? scale[p_{leaf}] * sum : sum"
    if nest.loops.index("j1") > nest.loops.index(leaf):
        return before, [f"out[at] = {term};"]
    return before, [f"const float term = {term};", "out[at] = j1 == 0 ? term : out[at] + term;"]
