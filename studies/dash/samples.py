"""Samples that a model is trained on or judged by: collected rows with their matrices and configs as numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr
from spmark.impls.dash import sites
from spmark.impls.dash.mapping import vectors
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.dash.sites import Sites
from spmark.impls.dash.waco import Transfer, slot_numbers
from spmark.impls.dash.weights import SampleCard, Subject
from spmark.impls.table import find_platform
from spmark.studies.collected import CollectedRow

_NOISY = 0.9
"""The noise is the difference between halves that this share of configs stays below."""


@dataclass(frozen=True, eq=False)
class MatrixSamples:
    """Configs of one matrix, in any order."""

    matrix: str
    """The matrix's id."""
    sites: Sites
    sizes: NDArray[np.float32]
    """(4,) float32, in the order of `spmark.impls.dash.sites.SIZES`."""
    statistics: NDArray[np.float32]
    """(12,) float32, in the order of `spmark.impls.dash.sites.STATISTICS`."""
    common: NDArray[np.float32]
    """(n, 53) float32."""
    own: NDArray[np.float32]
    """(n, size) float32, of the platform's `OwnParameters`."""
    seconds: NDArray[np.float64]
    """(n,) float64, above 0."""

    nnz: int


@dataclass(frozen=True, eq=False)
class SampleSet:
    """Samples of one platform, operator and space."""

    subject: Subject
    matrices: tuple[MatrixSamples, ...]

    @property
    def count(self) -> int:
        """Samples of all matrices."""
        return sum(len(one.seconds) for one in self.matrices)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the subject, and over names, sites, configs and times of all matrices in their order."""
        digest = hashlib.sha256(self.subject.model_dump_json().encode())
        for one in self.matrices:
            digest.update(f"\0{one.matrix}\0{one.sites.grid}{one.sites.cell}".encode())
            seen = (one.sites.rows, one.sites.cols, one.sites.features, one.sizes, one.common, one.own, one.seconds)
            for array in seen:
                digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        return digest.hexdigest()

    @property
    def card(self) -> SampleCard:
        """What a model's card says of these samples."""
        platform, matrices = self.subject.platform, len(self.matrices)
        return SampleCard(platform=platform, matrices=matrices, samples=self.count, sha256=self.digest)

    def for_waco(self, transfer: Transfer) -> SampleSet:
        """Give the samples with the numbers that enter WACO's slots as their own parameters."""
        changed = (replace(one, own=slot_numbers(transfer, one.common, one.own)) for one in self.matrices)
        return replace(self, matrices=tuple(changed))


@dataclass(frozen=True)
class Gathered:
    """Samples of one platform and operator, with the rows that they were made of."""

    samples: SampleSet
    own: OwnParameters
    noise: float
    """Relative difference between the medians of the two halves of a config's samples, at the 90th percentile."""
    rows: tuple[CollectedRow, ...]
    """What was collected of each matrix of the samples, in their order."""

    @property
    def platform(self) -> str:
        """Name of the platform."""
        return self.samples.subject.platform

    @property
    def patterns(self) -> dict[str, str]:
        """Ids of the matrices by the digest of their patterns: one matrix may have several ids."""
        return {row.pattern_sha256: row.matrix for row in self.rows}

    def first(self, count: int) -> Gathered:
        """Give the samples of the first ``count`` matrices, with the noise of all.

        Raises
        ------
        DatasetError
            There are fewer.
        """
        if len(self.rows) < count:
            raise DatasetError(f"expected samples of {count} matrices, found {len(self.rows)}")
        samples = replace(self.samples, matrices=self.samples.matrices[:count])
        return replace(self, samples=samples, rows=self.rows[:count])


def gather(
    rows: Sequence[CollectedRow], load: Callable[[Mapping[str, Any]], Csr], *, matrices: int | None = None
) -> Gathered:
    """Give the samples of rows of one platform and operator.

    Parameters
    ----------
    rows : sequence of CollectedRow
        With configs (`spmark.studies.collected.read_collected`).
    load : callable
        Gives the matrix of a row's ``spec``.
    matrices : int, optional
        Matrices that are used, in the order of the rows; all by default.

    Raises
    ------
    DatasetError
        There are fewer matrices, the space or a matrix has changed since, or a row has no config with samples.
    """
    names = list(dict.fromkeys(row.matrix for row in rows))
    if len(names) < (matrices or 1):
        raise DatasetError(f"expected samples of {matrices or 1} matrices, found {len(names)}")
    platform, op = find_platform(rows[0].platform), rows[0].op
    own, digest = OwnParameters(platform.own_axes(op)), platform.digest(op)
    if rows[0].space_digest != digest:
        raise DatasetError(
            f"expected samples of the space {digest} of {platform.name}, found {rows[0].space_digest}: collect anew"
        )
    kept = tuple(row for row in rows if row.matrix in names[:matrices])
    found, differences = [], []
    for row in kept:
        if not (timed := row.timed):
            raise DatasetError(f"{row.matrix}: expected a config with samples, found {row.configs[0].reason}")
        chosen_by, valued_by = row.halves_us
        differences += np.abs(chosen_by / valued_by - 1).tolist()
        seconds = 1e-6 * np.array([np.median(one.samples_us) for one in timed])
        numbers = own.vectors([platform.own(one.config) for one in timed])
        common, problem = [platform.common(one.config) for one in timed], row.problem(load(row.spec))
        looks = sites.down_sample(problem.matrix), sites.sizes(problem), sites.statistics(problem)
        found.append(MatrixSamples(row.matrix, *looks, vectors(common), numbers, seconds, problem.matrix.nnz))
    subject = Subject(platform=platform.name, op=op, space_digest=digest, parameters_digest=own.digest)
    return Gathered(SampleSet(subject, tuple(found)), own, float(np.quantile(differences, _NOISY)), kept)


def check_apart(source: Gathered, target: Gathered | None, held_out: Gathered | None) -> None:
    """Check that a model's platforms differ, and that no training sees what is held out.

    Raises
    ------
    DatasetError
        One platform is source and target, held-out samples are of another platform than the model, or a held-out matrix
        is trained on, also under another name.
    """
    platform = (target or source).platform
    if target and platform == source.platform:
        raise DatasetError(f"expected samples of two platforms, found {platform} as source and as target")
    if held_out and held_out.platform != platform:
        raise DatasetError(
            f"expected held-out samples of {platform}, found {held_out.platform}: "
            "the model is judged on its own platform"
        )
    trained = source.patterns | (target.patterns if target else {})
    judges = held_out.patterns if held_out else {}
    if both := sorted(judges[pattern] for pattern in judges.keys() & trained.keys()):
        raise DatasetError(f"expected held-out matrices that no training has seen, found {', '.join(both)} in both")
