"""Vendor libraries through ctypes: what CuPy does not bind, or refuses while a stream is captured.

Every call checks the library's status: what it refuses becomes `UnsupportedError` with the library's own words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from spmark.impls.core.errors import BuildError, DeviceError, UnsupportedError


class VendorLibrary:
    """A shared library whose functions answer with a status, 0 for success.

    Parameters
    ----------
    name : str
        As CUDA's packages call it: ``cusparse``, ``cublas``.
    signatures : mapping
        Argument types by function.
    not_supported, out_of_memory : collections of int
        Statuses that mean these.

    Raises
    ------
    DeviceError
        The library or a function of it cannot be loaded.
    """

    def __init__(
        self,
        name: str,
        signatures: Mapping[str, Sequence[Any]],
        not_supported: Collection[int],
        out_of_memory: Collection[int],
        describe: Callable[[ctypes.CDLL, int], str],
    ) -> None:
        self._not_supported, self._out_of_memory, self._describe = not_supported, out_of_memory, describe
        try:
            from cuda.pathfinder import load_nvidia_dynamic_lib

            self._library = ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
            for function, arguments in signatures.items():
                bound = getattr(self._library, function)
                bound.argtypes, bound.restype = tuple(arguments), ctypes.c_int
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            raise DeviceError(f"expected {name}, found none that fits ({error}): install spmark[gpu]") from error

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a function.

        Raises
        ------
        UnsupportedError
            The library does not support this call.
        MemoryError
            It ran out of memory.
        BuildError
            Any other refusal.
        """
        status = getattr(self._library, function)(*arguments)
        if status == 0:
            return
        words = f"{function} answered {status}: {self._describe(self._library, status)}"
        if status in self._not_supported:
            raise UnsupportedError(words)
        if status in self._out_of_memory:
            raise MemoryError(words)
        raise BuildError(words)
