"""The reader of Planetoid's raw ``ind.*.graph`` files.

Such a file is a pickle of ``defaultdict(list)`` from node to neighbours. The unpickler here knows exactly these types,
so that a file that was tampered with can execute nothing.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from spmark.datasets.source import RawMatrix, csr_from_edges
from spmark.impls.core.errors import DatasetError
from spmark.impls.core.guard import reading
from spmark.impls.core.record import MatrixKind

_ALLOWED: dict[tuple[str, str], type[Any]] = {
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("__builtin__", "int"): int,
    ("builtins", "int"): int,
}
_STEPS = frozenset(
    "PROTO FRAME STOP MARK POP POP_MARK GLOBAL STACK_GLOBAL REDUCE TUPLE TUPLE1 TUPLE2 EMPTY_TUPLE "
    "PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET "
    "INT LONG LONG1 LONG4 BININT BININT1 BININT2 SHORT_BINSTRING BINUNICODE SHORT_BINUNICODE STRING UNICODE NONE "
    "LIST EMPTY_LIST APPEND APPENDS DICT EMPTY_DICT SETITEM SETITEMS".split()
)
_MOST_TUPLES = 8
"""A legal file needs one tuple, for the arguments of ``defaultdict``."""


def read_graph(path: Path) -> RawMatrix:
    """Read an ``ind.*.graph`` file.

    Raises
    ------
    DatasetError
        The file holds something other than a ``defaultdict(list)`` of integers, or is truncated.
    """
    with reading(path, "a pickled defaultdict(list)", remedy="it is a corrupt file: delete it to fetch it again"):
        try:
            content = path.read_bytes()
            _check_steps(content)
            graph = _Unpickler(io.BytesIO(content), encoding="latin1").load()
        except DatasetError as error:
            raise DatasetError(f"{path}: {error}") from error
    if not (type(graph) is defaultdict and all(type(k) is int and type(v) is list for k, v in graph.items())):
        raise DatasetError(f"{path}: expected a defaultdict from integers to lists, found {type(graph).__name__}")
    flat = [neighbour for neighbours in graph.values() for neighbour in neighbours]
    if any(type(neighbour) is not int for neighbour in flat):
        raise DatasetError(f"{path}: expected lists of integers, found something else among the neighbours")
    num_nodes = len(graph)
    with reading(path, "numbers of nodes"):
        rows = np.repeat(np.fromiter(graph, np.int64, num_nodes), [len(neighbours) for neighbours in graph.values()])
        cols = np.array(flat, np.int64)
    edges = np.concatenate([rows, cols]), np.concatenate([cols, rows])
    return csr_from_edges((num_nodes, num_nodes), *edges, None, MatrixKind.PATTERN, merge=True, where=str(path))


def _check_steps(content: bytes) -> None:
    """Refuse claims that the C code of an unpickler trusts: places in its memo, sizes of buffers, nested keys."""
    tuples = 0
    for step, argument, place in pickletools.genops(content):
        tuples += step.name.startswith("TUPLE")
        memo = "PUT" in step.name and not 0 <= int(argument or 0) <= len(content)
        if step.name not in _STEPS or memo or tuples > _MOST_TUPLES:
            raise DatasetError(
                f"expected the pickle of a dictionary of lists of integers, found {step.name} at byte {place}; nothing "
                "was executed"
            )


class _Unpickler(pickle.Unpickler):
    """Knows the types of the allow-list and nothing else."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Give an allowed type, or refuse."""
        allowed = _ALLOWED.get((module_name, global_name))
        if allowed is None:
            raise DatasetError(
                f"expected a pickle of defaultdict, list and int only, found {module_name}.{global_name}; "
                "nothing was executed"
            )
        return allowed

    def persistent_load(self, pid: Any) -> Any:
        """Refuse."""
        raise DatasetError(f"expected no persistent objects, found {pid!r}")
