"""A CUDA file as an implementation: ``./mine.cu`` declares its kernel in a comment, and the class follows from that.

The comment holds YAML. Nothing in it is executed: `KernelTable` reads names and numbers alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import make_dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, StringConstraints, ValidationError, model_validator

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import SweepError, none_of
from spmark.impls.core.interfaces import DeviceArray
from spmark.impls.core.plainyaml import parse_yaml
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.core.untrusted import Frozen, reading
from spmark.impls.runtime.plan import DevicePlan
from spmark.impls.runtime.target import MAX_GRID, Grid, Target, ceil_div, open_target
from spmark.impls.runtime.template import C_TYPES, Instance, KernelTemplate

_COMMENT = re.compile(r"/\*\s*spmark:?\s*\n(.*?)\*/", re.DOTALL)
_EXAMPLE = "/* spmark, then lines such as kernel: my_kernel (examples/mykernel/spmm_rows.cu), then */"
_NOT_CODE = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORDS, _WORD = re.compile(r"\w+"), r"\s*(?:[A-Za-z]\w*|[1-9]\d{0,9})\s*"
_PRODUCT = rf"{_WORD}(?:\*{_WORD})*"
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]\w*$")]
_Count = Annotated[str, StringConstraints(pattern=rf"^{_PRODUCT}(?:/{_PRODUCT})?$")]
_OF_64_BITS = re.compile(r"\b(?:double|long|size_t|u?int64_t)\b")
_MOST_THREADS = 1024
SIZES: Mapping[str, Callable[[Problem], int]] = {
    "num_rows": lambda problem: problem.matrix.num_rows,
    "num_cols": lambda problem: problem.matrix.num_cols,
    "nnz": lambda problem: problem.matrix.nnz,
    "width": lambda problem: problem.width,
}
"""I, K, the non-zeros of A, and J: arguments of type int."""
ARRAYS: Mapping[str, Callable[[Problem], NDArray[Any]]] = {
    "indptr": lambda problem: problem.matrix.indptr,
    "indices": lambda problem: problem.matrix.indices,
    "rows": lambda problem: problem.matrix.rows_of_entries(),
    "values": lambda problem: problem.values if _multiplies(problem) else _ones(problem),
}
"""A in CSR, and the row of each non-zero, int32. ``values`` have the type of the operands; SDDMM that is not scaled has
ones."""
DENSE: Mapping[Op, tuple[str, ...]] = {Op.SPMM: ("B", "C"), Op.SDDMM: ("X", "Y", "D")}
"""Operands and, last, the result: C = A B; D = X Y^T at the non-zeros of A, times A where the problem is scaled."""


def _multiplies(problem: Problem) -> bool:
    return problem.op is Op.SPMM or problem.scaled


def _ones(problem: Problem) -> NDArray[Any]:
    return problem.dtype.stored(np.ones(problem.matrix.nnz, np.float32))  # type: ignore[no-any-return]


def _listed(given: Any) -> Any:
    return given if isinstance(given, list) else [given]


def _values(given: Any) -> tuple[Any, ...]:
    values = tuple(_listed(given))
    if values != ("dtype",) and not (values and all(isinstance(one, int) for one in values)):
        raise ValueError(f"expected dtype, or integers, or true and false, found {given!r}")
    return values


class KernelTable(Frozen):
    """What the comment of a CUDA file declares."""

    kernel: _Name
    """Name of the ``__global__`` template."""
    op: Op
    dtypes: Annotated[tuple[DType, ...], BeforeValidator(_listed), Field(min_length=1)]
    parameters: dict[_Name, Annotated[tuple[Any, ...], BeforeValidator(_values)]]
    """The template's parameters in its order: ``dtype`` alone for the type of operands, else the legal values, of which
    the first is the default. ``threads`` is the size of a block."""
    grid: Annotated[tuple[_Count, ...], BeforeValidator(_listed), Field(min_length=1, max_length=3)]
    """Blocks by dimension: a product of sizes, parameters and numbers, and after ``/`` the product that divides it; the
    quotient is rounded up."""
    arguments: tuple[str, ...]
    """The kernel's arguments in its order, out of `SIZES`, `ARRAYS` and the names of `DENSE`."""

    @model_validator(mode="after")
    def _checked(self) -> KernelTable:
        threads = self.parameters.get("threads", ())
        if not threads or not all(type(n) is int and 0 < n <= _MOST_THREADS for n in threads):
            raise ValueError(f"parameters: expected threads: [256], or others of 1 to {_MOST_THREADS}, found {threads}")
        if len(self.dtypes) > 1 and ("dtype",) not in self.parameters.values():
            raise ValueError("parameters: expected one that is dtype, for several dtypes, found none")
        if taken := [name for name in self.parameters if iskeyword(name) or name in (*_DECLARED, *SIZES)]:
            raise ValueError(f"parameters: expected names of your own, found {', '.join(taken)}")
        known = (*SIZES, *ARRAYS, *DENSE[self.op])
        for name in self.arguments:
            if name not in known:
                raise ValueError(f"arguments: {none_of('an argument', name, known)}")
        if lacking := set(DENSE[self.op]) - set(self.arguments):
            raise ValueError(f"arguments: expected {', '.join(DENSE[self.op])} for {self.op}, found no {min(lacking)}")
        counts = (*SIZES, *self.tunables)
        for word in _WORDS.findall(" ".join(self.grid)):
            if not word.isdigit() and word not in counts:
                raise ValueError(f"grid: {none_of('a number or a name', word, counts)}")
        return self

    @property
    def tunables(self) -> dict[str, tuple[int, ...]]:
        """The parameters that have values."""
        return {name: values for name, values in self.parameters.items() if values != ("dtype",)}

    def blocks(self, problem: Problem, config: Mapping[str, int]) -> Grid:
        """Give the grid of a problem with these parameters."""
        known = {name: size(problem) for name, size in SIZES.items()} | dict(config)

        def product(text: str) -> int:
            return math.prod(int(word) if word.isdigit() else known[word] for word in _WORDS.findall(text))

        sides = (text.partition("/") for text in (*self.grid, "1", "1")[:3])
        x, y, z = (ceil_div(product(over), product(under)) for over, _, under in sides)
        return x, y, z


def read_table(file: Path) -> KernelTable:
    """Read the table of a CUDA file.

    Raises
    ------
    SweepError
        The file cannot be read, has no comment with a table, the table is wrong, or it does not fit the kernel's
        arguments. Says what was expected and found, where, and what to do.
    """
    with reading(file, "a CUDA file", SweepError):
        text = file.read_text(encoding="utf-8")
    comment = _COMMENT.search(text)
    if comment is None:
        raise SweepError(f"{file}: expected a comment with the kernel's table, found none: write {_EXAMPLE}")
    where = f"{file}:{text.count(chr(10), 0, comment.start()) + 1}"

    def at(key: str) -> str:
        line = re.search(rf"^{re.escape(key)}\b", comment[1], re.MULTILINE)
        return where if line is None else f"{file}:{text.count(chr(10), 0, comment.start(1) + line.start()) + 1}"

    declared = parse_yaml(comment[1], where, SweepError)
    if not isinstance(declared, dict):
        raise SweepError(f"{where}: expected the kernel's table, found {declared!r}: write {_EXAMPLE}")
    try:
        table = KernelTable.model_validate(declared)
    except ValidationError as error:
        # A list with a wrong item is also reported as too short.
        told = [one for one in error.errors() if one["type"] != "too_short" or not one["input"]]
        said = [_explained(one) for one in told]
        keys = [
            str(one["loc"][0]) if one["loc"] else message.partition(":")[0]
            for one, message in zip(told, said, strict=True)
        ]
        lines = (f"{at(key)}: {one}; mend the table" for key, one in zip(keys, said, strict=True))
        raise SweepError("\n".join(lines)) from error
    _check_signature(table, _NOT_CODE.sub(" ", text), at)
    return table


def _explained(error: Any) -> str:
    key, message = ".".join(map(str, error["loc"])), str(error["msg"]).replace("Input should be", "expected", 1)
    if error["type"] == "extra_forbidden":
        return none_of("a key", key, KernelTable.model_fields)
    if error["type"] == "missing":
        return f"{key}: expected this key, found none"
    if error["type"] == "string_pattern_mismatch":
        grid = error["loc"][0] == "grid"
        wanted = "a product and what divides it, such as num_rows * 32 / threads" if grid else "letters, digits and _"
        return f"{key}: expected {wanted}, found {error['input']!r}"
    if error["type"] == "value_error":
        return f"{key}: " * bool(key) + message.removeprefix("Value error, ")
    return f"{key}: {message}, found {error['input']!r}"


def _check_signature(table: KernelTable, code: str, at: Callable[[str], str]) -> None:
    """Refuse arguments that the kernel does not take: a GPU would read other memory, without a message."""
    found = re.search(rf"\b{table.kernel}\s*\(([^)]*)\)", code)
    if found is None:
        raise SweepError(
            f"{at('kernel')}: kernel: expected {table.kernel}(...) in the file, found none: mend the table"
        )
    if re.search(rf"\btemplate\s*<[^;{{}}]*\b{table.kernel}\s*\(", code) is None:
        raise SweepError(
            f"{at('kernel')}: kernel: expected a template, such as template <int threads> __global__ void "
            f"{table.kernel}(...), found a plain function: make the table's parameters those of a template"
        )
    taken = [one.strip() for one in found[1].split(",")]
    if len(taken) != len(table.arguments):
        raise SweepError(
            f"{at('arguments')}: arguments: expected {len(taken)}, as {table.kernel} takes them, found "
            f"{len(table.arguments)}: mend the table or the kernel"
        )
    for name, parameter in zip(table.arguments, taken, strict=True):
        if (name in SIZES) == ("*" in parameter) or _OF_64_BITS.search(parameter):
            wanted = f"{'an int' if name in SIZES else 'a pointer'} of {table.kernel} for {name}"
            wanted += " with elements of 32 or 16 bits" if "*" in parameter and name not in SIZES else ""
            raise SweepError(
                f"{at('arguments')}: arguments: expected {wanted}, found {parameter!r}: mend the table or the kernel"
            )


class DeclaredKernel:
    """The base of classes that follow from a `KernelTable`; their fields are its parameters."""

    table: KernelTable
    kernels: tuple[KernelTemplate, ...]
    devices = frozenset({DeviceKind.CUDA, DeviceKind.HOST_SIMT})

    def __post_init__(self) -> None:
        for name, legal in self.table.tunables.items():
            if getattr(self, name) not in legal:
                raise ValueError(f"expected {name} out of {', '.join(map(str, legal))}, found {getattr(self, name)}")

    @property
    def _config(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.table.tunables}

    def configs(self) -> list[dict[str, Any]]:
        """Give the legal configs, this one first: those that the kernel has for a dtype of the table."""
        held = (self._config, *(instance.values for instance in self.kernels[0].instances()))
        tunables = self.table.tunables
        return list(
            {tuple(one[name] for name in tunables): {name: one[name] for name in tunables} for one in held}.values()
        )

    def unsupported(self, problem: Problem, device: DeviceSpec) -> str | None:
        """Refuse other dtypes, scaling without A's values, and what has more blocks than a grid."""
        if problem.dtype not in self.table.dtypes:
            return f"expected {' or '.join(self.table.dtypes)}, found {problem.dtype}"
        if problem.scaled and "values" not in self.table.arguments:
            return "expected a kernel with the argument values, which multiplies by A, found none"
        blocks = self.table.blocks(problem, self._config)
        fits = all(count <= most for count, most in zip(blocks, MAX_GRID, strict=True))
        return None if fits else f"expected a grid of at most {MAX_GRID} blocks, found {blocks}"

    def build(self, problem: Problem, device: DeviceSpec) -> DeclaredPlan:
        """Upload the arguments of A."""
        arguments = {name: self._config.get(name, C_TYPES[problem.dtype]) for name in self.table.parameters}
        instance = self.kernels[0].instance(**arguments)
        return DeclaredPlan(problem, open_target(device), self.table, instance, self._config)


_DECLARED = ("name", "ops", "devices", "kernels", "table", "configs", "unsupported", "build")
"""Attributes of the class, which no parameter may be called."""


class DeclaredPlan(DevicePlan):
    """One launch of the kernel of a `KernelTable`, with A in CSR as it comes."""

    def __init__(
        self, problem: Problem, target: Target, table: KernelTable, instance: Instance, config: dict[str, Any]
    ) -> None:
        super().__init__(problem, target, config)
        self.stored = problem.matrix.nnz
        self._grid, self._names, self._dense = table.blocks(problem, config), table.arguments, DENSE[table.op]
        (self._kernel,) = self.load([instance])
        self._held = {name: np.int32(size(problem)) for name, size in SIZES.items()}
        self._held |= {name: self.upload(array(problem)) for name, array in ARRAYS.items() if name in self._names}
        self.values = self._held.get("values") if _multiplies(problem) else None

    def enqueue(self, operands: Sequence[DeviceArray], out: DeviceArray) -> None:
        """Launch the kernel once."""
        given = self._held | dict(zip(self._dense, (*operands, out), strict=True))
        self._kernel.launch(self._grid, [given[name] for name in self._names])


def kernel_class(file: Path, module: str) -> type[Any]:
    """Make the implementation that a CUDA file declares; its name is that of the file.

    Parameters
    ----------
    file : Path
    module : str
        The module that the class says it is of.

    Raises
    ------
    SweepError
        As `read_table`.
    """
    table = read_table(file)
    types = tuple(C_TYPES[dtype] for dtype in table.dtypes)
    space = {name: table.tunables.get(name, types) for name in table.parameters}
    tunables = [(name, type(values[0]), values[0]) for name, values in table.tunables.items()]
    told = {
        "__doc__": f"The kernel {table.kernel} of {file.name}.",
        "__module__": module,
        "name": file.stem,
        "ops": frozenset({table.op}),
        "kernels": (KernelTemplate(file, table.kernel, space),),
        "table": table,
    }
    return make_dataclass("Declared", tunables, bases=(DeclaredKernel,), frozen=True, namespace=told)
