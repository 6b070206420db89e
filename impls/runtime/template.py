"""Kernels as tables: a CUDA source file, a template in it and the template arguments that may be asked for.

Everything that runs or checks kernels walks the same table: launching, compiling for every target without a GPU, and
running on the host under sanitizers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from types import CodeType

from spmark.impls.core.errors import BuildError
from spmark.impls.core.problem import DType

TemplateValue = str | int | bool
C_TYPES: Mapping[DType, str] = {DType.FLOAT32: "float", DType.FLOAT16: "half", DType.BFLOAT16: "bfloat16"}
"""How a template argument names the type of operands."""
ELEMENTS = tuple(C_TYPES.values())
NARROW = tuple(C_TYPES[dtype] for dtype in DType if dtype.narrow)
"""What a template argument may name in kernels for all types, and in those of the matrix unit."""


def loads_of(width: int, most: int) -> list[int]:
    """List the elements that a load may have in rows of ``width``: the divisors among 8, 4, 2, 1, widest first.

    Rows start at multiples of ``width`` elements, so a load of v elements is aligned in every row only where v divides
    it. At most ``most`` elements are asked for; 1 is always among them.
    """
    return [vector for vector in (8, 4, 2, 1) if vector <= most and width % vector == 0]


def widest_aligned(width: int, dtype: DType) -> int:
    """Give the most elements of a load, up to 16 bytes, that divide J, so that loads of every row are aligned."""
    return loads_of(width, 16 // dtype.itemsize)[0]


def widest_load(width: int, most: int, lanes: int) -> int:
    """Give the most elements of a load, up to ``most``, that divide J and leave work for so many lanes."""
    return next(vector for vector in loads_of(width, most) if vector == 1 or lanes * vector <= width)


_BYTES = {"float": 4, "half": 2, "bfloat16": 2, "int": 4, "short": 2}
_ASSERT = re.compile(r'static_assert\((.*?),\s*(?:"[^"]*"\s*)+\);', re.DOTALL)
_SHARED_NAMES = {"sizeof": _BYTES.__getitem__, "kWarpSize": 32}
"""What restrictions may name beside template parameters."""


@dataclass(frozen=True, eq=False)
class KernelTemplate:
    """A ``__global__`` template and its legal arguments."""

    source: Path
    """The ``.cu`` file."""
    name: str
    space: Mapping[str, tuple[TemplateValue, ...]]
    """Values of every template parameter, in the template's order. One is called ``threads``: the block size.

    Which of them go together, the source says: in each ``static_assert`` of the kernel that names template parameters
    alone, without ``?:``, which Python lacks. What bounds a launch stands there, too (``__launch_bounds__``).
    """

    def __post_init__(self) -> None:
        if "threads" not in self.space:
            raise ValueError(
                f"{self.source}: {self.name}: expected a template parameter called threads, found {self.space}"
            )

    @cached_property
    def _restrictions(self) -> tuple[CodeType, ...]:
        """Those ``static_assert``s of the kernel that name nothing but template parameters, in Python."""
        known, translated = {*self.space, *_SHARED_NAMES}, []
        behind = re.split(rf"\b{self.name}\s*\(", self.source.read_text(), maxsplit=1)[1:]
        for match in _ASSERT.finditer("".join(behind).split("\ntemplate <", 1)[0]):
            words = " ".join(match[1].split())
            if "?" not in words and set(re.findall(r"[A-Za-z_]\w*", words)) <= known:
                words = re.sub(r"!(?!=)", " not ", words).replace("&&", "and").replace("||", "or").replace("/", "//")
                translated.append(compile(f"({words})", self.name, "eval"))
        return tuple(translated)

    def has(self, values: Mapping[str, TemplateValue]) -> bool:
        """Tell whether the kernel's restrictions allow a combination of values."""
        names = {**_SHARED_NAMES, **values}
        return all(eval(code, {}, names) for code in self._restrictions)

    @cache  # noqa: B019 (templates live as long as the process)
    def instance(self, **values: TemplateValue) -> Instance:
        """Give the instance with these template arguments.

        Raises
        ------
        BuildError
            An argument is missing, unknown or outside of the table.
        """
        if values.keys() != self.space.keys():
            why = f"expected template arguments {', '.join(self.space)}, found {', '.join(values)}"
        elif wrong := next((name for name, value in values.items() if value not in self.space[name]), None):
            why = f"expected {wrong} out of {self.space[wrong]}, found {values[wrong]!r}"
        elif not self.has(values):
            why = f"expected arguments that the kernel's static_asserts allow, found {values}"
        else:
            return Instance(self, tuple(values[name] for name in self.space))
        raise BuildError(f"{self.source}: {self.name}: {why}")

    def instances(self) -> Iterator[Instance]:
        """Walk the whole table."""
        for arguments in product(*self.space.values()):
            if self.has(dict(zip(self.space, arguments, strict=True))):
                yield Instance(self, arguments)


@dataclass(frozen=True)
class Instance:
    """One kernel of a template."""

    template: KernelTemplate
    arguments: tuple[TemplateValue, ...]

    @cached_property
    def expression(self) -> str:
        """How C++ names it: ``spmm_csr<float, 4, 32, 128>``."""
        words = (str(a).lower() if isinstance(a, bool) else str(a) for a in self.arguments)
        return f"{self.template.name}<{', '.join(words)}>"

    @property
    def values(self) -> dict[str, TemplateValue]:
        """Template arguments by name."""
        return dict(zip(self.template.space, self.arguments, strict=True))

    @cached_property
    def threads(self) -> int:
        """Threads of a block."""
        return int(self.values["threads"])
