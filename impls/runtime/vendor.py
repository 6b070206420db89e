"""Vendor libraries through ctypes: functions that CuPy does not bind, or refuses while a stream is captured.

Every call checks the library's status: a refusal becomes `UnsupportedError` with the library's own words.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spmark.impls.core.errors import BuildError, DeviceError, UnsupportedError, how_to_install


class VendorLibrary:
    """A shared library and a handle of it; its functions answer with a status, 0 for success.

    Parameters
    ----------
    name : str
        As CUDA's packages call it: ``cusparse``, ``cublas``.
    signatures : mapping
        Argument types by function.
    not_supported, out_of_memory : collections of int
        Statuses that mean these.
    create, describe : str
        The functions that make a handle and put a status into words.

    Attributes
    ----------
    handle : c_void_p
    one, zero
        Pointers to float32 numbers, which the library reads from the host when it enqueues: alpha and beta.

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
        *,
        create: str,
        describe: str,
    ) -> None:
        self._not_supported, self._out_of_memory = not_supported, out_of_memory
        try:
            from cuda.pathfinder import load_nvidia_dynamic_lib

            self._library = ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)
            for function, arguments in signatures.items():
                bound = getattr(self._library, function)
                bound.argtypes, bound.restype = tuple(arguments), ctypes.c_int
            self._describe = getattr(self._library, describe)
            self._describe.argtypes, self._describe.restype = (ctypes.c_int,), ctypes.c_char_p
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            raise DeviceError(f"expected {name}, found none that fits ({error}): {how_to_install('gpu')}") from error
        self.handle = ctypes.c_void_p()
        self(create, ctypes.byref(self.handle))
        self.one, self.zero = (ctypes.byref(ctypes.c_float(number)) for number in (1.0, 0.0))

    def __call__(self, function: str, *arguments: Any) -> None:
        """Call a function.

        Raises
        ------
        UnsupportedError
            The library does not support this call.
        MemoryError
            The library ran out of memory.
        BuildError
            Any other refusal.
        """
        status = getattr(self._library, function)(*arguments)
        if status == 0:
            return
        words = f"{function} answered {status}: {self._describe(status).decode()}"
        if status in self._not_supported:
            raise UnsupportedError(words)
        if status in self._out_of_memory:
            raise MemoryError(words)
        raise BuildError(words)
