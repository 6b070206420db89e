"""Types of elements that a compiled operator takes: those of a `Problem`, and float64 and bfloat16 beside them."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np

from spmark.impls.core.errors import ProblemError, none_of
from spmark.impls.core.problem import DType, dtype_name


class ElementType(StrEnum):
    """Type of the operands, of the result and of A's values, all alike.

    Products of float64 are added up in float64, all others in float32.
    """

    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"

    @classmethod
    def of(cls, given: Any) -> ElementType:
        """Read a name, or a dtype of NumPy, CuPy, PyTorch or ml_dtypes.

        Raises
        ------
        ProblemError
            The type is another one; lists those that there are.
        """
        name = dtype_name(given)
        if name not in tuple(cls):
            raise ProblemError(none_of("a dtype", name, cls))
        return cls(name)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that elements are stored as: bfloat16 as uint16, since NumPy has no such type."""
        return np.dtype(np.uint16 if self is ElementType.BFLOAT16 else self.value)

    @property
    def searched(self) -> DType | None:
        """The dtype of a `Problem`, which every implementation may take; None for float64 and bfloat16."""
        return DType(self.value) if self.value in tuple(DType) else None

    def holds(self, other: str) -> bool:
        """Tell whether converting from the type called ``other`` is safe by NumPy's rule (``numpy.can_cast``).

        What NumPy has no type for, such as PyTorch's ``float8_e5m2``, is not.
        """
        if other == self.value:
            return True
        if other == ElementType.BFLOAT16:
            return self in (ElementType.FLOAT32, ElementType.FLOAT64)
        if self is ElementType.BFLOAT16:
            return other in ("bool", "int8", "uint8")
        try:
            return np.can_cast(np.dtype(other), self.numpy, "safe")
        except TypeError:
            return False
