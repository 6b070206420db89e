"""Plans kept on disk: what a search chose, and which machine code goes with it, so that a second build only loads.

A search's cost and its candidates are kept too and told again whenever a plan is loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.digest import implementation_version
from spmark.impls.core.files import read_sealed, write_sealed
from spmark.impls.core.interfaces import Candidate, Search
from spmark.impls.core.plainjson import parse_json
from spmark.impls.core.problem import Problem
from spmark.impls.lo_spmm.space import TileSize
from spmark.impls.runtime.compile import Binary, cache_folder, cached
from spmark.impls.runtime.toolchain import nvcc_version


@dataclass(frozen=True)
class Remembered:
    """A plan without its arrays."""

    size: TileSize
    num_tiles: int
    config: Mapping[str, Any]
    phases_s: Mapping[str, float]
    """Seconds of building it the first time."""
    search: Search
    code_key: str
    """Of its machine code in the cache of compiled kernels."""


class _AbsentError(Exception):
    """There is no machine code of that name, or it is damaged."""


class PlanCache:
    """One file for each matrix with its values, config, GPU, tools and version of the code.

    Parameters
    ----------
    problem : Problem
    device : DeviceSpec
    pinned : mapping
        The implementation's fields.
    """

    def __init__(self, problem: Problem, device: DeviceSpec, pinned: Mapping[str, Any]) -> None:
        words = [problem.matrix.hash, problem.width, str(problem.dtype), device.name, device.arch, dict(pinned)]
        text = json.dumps([*words, nvcc_version(), implementation_version("lo_spmm")], sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode())
        digest.update(problem.values.data)
        self.path: Path = cache_folder().parent / "plans" / "lo_spmm" / f"{digest.hexdigest()}.json"

    def read(self) -> tuple[Remembered, Binary] | None:
        """Give what was kept and its code; None where there is nothing, or where any of it is not what was written."""
        with suppress(ValueError, KeyError, TypeError, _AbsentError):
            facts = parse_json(read_sealed(self.path) or b"")
            told = facts["search"]
            seen = tuple(Candidate(**{**one, "samples_us": tuple(one["samples_us"])}) for one in told["seen"])
            search = Search(**{**told, "seen": seen})
            size = TileSize(**facts["size"])
            key = facts["code_key"]
            kept = Remembered(size, facts["num_tiles"], facts["config"], facts["phases_s"], search, key)
            return kept, cached(key, _absent)
        return None

    def write(self, plan: Remembered) -> None:
        """Keep it; a cache that cannot be written costs only time."""
        write_sealed(self.path, json.dumps(asdict(plan)).encode())


def _absent() -> NoReturn:
    raise _AbsentError
