"""Loading a matrix of a sweep from mirror, cache or source, with checks of its counts and of its CSR."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spmark.datasets.cache import Cache
from spmark.datasets.mirror import at_origin, find_in_mirror
from spmark.datasets.origins import LIST, find_origin
from spmark.datasets.readers.npz import LARGE_BYTES
from spmark.datasets.source import Args, Facts, RawMatrix, Source, check_shape
from spmark.datasets.sources.table import find_source, own_file
from spmark.impls.core.errors import DatasetError, MatrixError
from spmark.impls.core.files import stamp
from spmark.impls.core.operators import random_values
from spmark.impls.core.problem import Csr
from spmark.records.schema import MatrixKind, MatrixSource, Orientation

_CHUNK = 1 << 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class LoadedMatrix:
    """A matrix that is ready for a problem."""

    csr: Csr
    kind: MatrixKind
    """``real`` only with its own values; a real matrix with seeded values is a ``pattern``."""
    source_kind: MatrixKind
    """Kind of what the source has: ``real`` with values of its own, whichever values the sweep asks for."""
    spec: MatrixSource


def load_matrix(spec: MatrixSource, cache: Cache, seed: int) -> LoadedMatrix:
    """Load a matrix as a sweep asks for it.

    Parameters
    ----------
    spec : MatrixSource
    cache : Cache
        For a source on the network the mirror comes first, then the files of the cache, then the network. It also keeps
        what large files of the user's own hold, so that each is parsed once.
    seed : int
        Seed of the values, which are `random_values` at positions 0 .. nnz - 1 of A's CSR (stream 0), whatever the
        orientation: the transpose has the same value at the same edge.

    Raises
    ------
    DatasetError
        The matrix could not be found, fetched, verified or read, or its counts differ from those that the publisher
        states.
    MatrixError
        The matrix is not a canonical CSR.
    """
    spec = at_origin(spec, cache.mirror)
    source = find_source(spec.source)
    file, args, key = own_file(spec), spec.args, spec.args
    if file is not None:
        args, seen = {**args, "path": str(file)}, stamp(file)
        key, keep = {**args, "stamp": str(seen)}, seen is not None and seen.size >= LARGE_BYTES
    elif source.network and (mirrored := find_in_mirror(cache.mirror, source, spec.name)) is not None:
        return _ready(source, spec, mirrored, seed, cache=cache, where=f"in the mirror {cache.mirror}")
    else:
        keep = source.cached
    if not keep:
        return _made(source, spec, args, seed, cache)[1]
    if (kept := _kept(source, spec, key, seed, cache)) is not None:
        return kept
    with cache.turn(source.name, spec.name, key) as waited:  # one of the processes that want it makes it
        if waited and (kept := _kept(source, spec, key, seed, cache)) is not None:
            return kept
        raw, loaded = _made(source, spec, args, seed, cache)
        cache.keep(source.name, spec.name, key, raw)
        return loaded


def _made(source: Source, spec: MatrixSource, args: Args, seed: int, cache: Cache) -> tuple[RawMatrix, LoadedMatrix]:
    """Let the source read or generate a matrix."""
    raw = source.load(spec.name, args, cache)
    return raw, _ready(source, spec, raw, seed, cache=cache, where="in what the source gives")


def _kept(source: Source, spec: MatrixSource, key: Args, seed: int, cache: Cache) -> LoadedMatrix | None:
    """Give a matrix from the cache, or None where it is not there or cannot be used."""
    kept = cache.parsed(source.name, spec.name, key)
    if kept is None or (spec.values == "stored" and kept.values is None):
        return None
    try:
        return _ready(source, spec, kept, seed, cache=cache, where=f"in the cache {cache.root}")
    except (DatasetError, MatrixError) as error:
        _log.warning("making %s again, since its cached form is unusable: %s", spec.id, error)
        return None


def _ready(
    source: Source, spec: MatrixSource, raw: RawMatrix, seed: int, *, cache: Cache, where: str = ""
) -> LoadedMatrix:
    """Check a matrix, give it the values and the orientation that the sweep asks for."""
    _check_counts(source, spec.name, raw)
    stored = spec.values == "stored"
    if stored and raw.values is None:
        raise DatasetError(f"{spec.id}: expected stored values, found a pattern without any; use values: seeded")
    # Stored values are checked even where seeded ones take their place: a file with NaN is damaged.
    values = seeded_values(raw.indices.shape[0], seed) if raw.values is None else raw.values
    csr = Csr.checked(raw.shape, raw.indptr, raw.indices, values, where=spec.id)
    _check_pattern(spec, csr, cache, where)
    if raw.values is not None and not stored:
        csr = replace(csr, values=seeded_values(csr.nnz, seed))
    kind = MatrixKind.PATTERN if raw.kind is MatrixKind.REAL and not stored else raw.kind
    return LoadedMatrix(csr.transposed() if spec.orientation is Orientation.TRANSPOSED else csr, kind, raw.kind, spec)


def seeded_values(nnz: int, seed: int) -> NDArray[np.float32]:
    """Give (nnz,) float32 values of stream 0. O(nnz) time, O(1) scratch memory."""
    values = np.empty(nnz, np.float32)
    for start in range(0, nnz, _CHUNK):
        index = np.arange(start, min(start + _CHUNK, nnz), dtype=np.uint64)
        values[start : start + index.size] = random_values(index, seed, stream=0)
    return values


def _check_counts(source: Source, name: str, raw: RawMatrix) -> None:
    expected, facts = source.facts(name), raw.facts
    if expected is not None and facts != expected:
        origin = find_origin(source.name, name)
        stated = f"{LIST} states for {origin.id}" if origin else f"{source.title} states"
        raise DatasetError(f"{source.name}/{name}: expected {_counts(expected)} (as {stated}), found {_counts(facts)}")
    check_shape(f"{source.name}/{name}", facts.num_rows, facts.num_cols, facts.nnz)


def _check_pattern(spec: MatrixSource, csr: Csr, cache: Cache, where: str) -> None:
    """Compare a listed matrix with the list's hash, or with that of the first fetch where the list has none."""
    origin = find_origin(spec.source, spec.name)
    if origin is None:
        return
    expected, stated = (origin.pattern, LIST) if origin.pattern else cache.first_pattern(origin.id, csr.hash)
    if expected != csr.hash:
        raise DatasetError(
            f"{spec.id}: expected the pattern {expected[:12]} that {stated} states for {origin.id} ({origin.url}), "
            f"found {csr.hash[:12]} {where}: another matrix of the same size"
        )


def _counts(facts: Facts) -> str:
    return f"{facts.num_rows:,} x {facts.num_cols:,} with {facts.nnz:,} non-zeros"
