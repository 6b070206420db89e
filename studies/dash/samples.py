"""Samples that a model is trained on: for each matrix, configs as numbers and their measured seconds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Problem
from spmark.impls.dash import sites
from spmark.impls.dash.mapping import COMMON_SIZE, CommonConfig, vectors
from spmark.impls.dash.sites import MAX_SIDE, MAX_SITES, Sites
from spmark.impls.dash.waco import Transfer, slot_numbers
from spmark.impls.dash.weights import SampleCard, Subject


@dataclass(frozen=True, eq=False)
class MatrixSamples:
    """Configs of one matrix, in any order."""

    matrix: str
    """The matrix's id."""
    limits: tuple[int, int]
    """Most sites and longest side that the sites were made with."""
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

    @classmethod
    def of(
        cls,
        matrix: str,
        problem: Problem,
        common: Sequence[CommonConfig],
        own: NDArray[np.float32],
        seconds: NDArray[np.float64],
        *,
        limits: tuple[int, int] = (MAX_SITES, MAX_SIDE),
    ) -> MatrixSamples:
        """Look at a matrix, and check that configs and seconds belong together.

        Parameters
        ----------
        matrix : str
        problem : Problem
        common : sequence of CommonConfig
        own : (n, size) float32
        seconds : (n,) float64
        limits : tuple of int
            Most sites and longest side (`spmark.impls.dash.sites.down_sample`); a network has its own.

        Raises
        ------
        DatasetError
            The numbers of rows differ, or a time is no positive number.
        """
        if not len(common) == len(own) == len(seconds):
            raise DatasetError(
                f"{matrix}: expected as many mapped configs, own parameters and times, found {len(common)}, {len(own)} "
                f"and {len(seconds)}"
            )
        wrong = np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0)))
        if wrong.size:
            raise DatasetError(f"{matrix}: expected times above 0 s, found {seconds[wrong[0]]} of config {wrong[0]}")
        return cls(
            matrix,
            limits,
            sites.down_sample(problem.matrix, *limits),
            sites.sizes(problem),
            sites.statistics(problem),
            vectors(common),
            own.astype(np.float32),
            np.asarray(seconds, np.float64),
        )


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
                digest.update(f"{array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @property
    def card(self) -> SampleCard:
        """What a model's card says of these samples."""
        return SampleCard(
            platform=self.subject.platform, matrices=len(self.matrices), samples=self.count, sha256=self.digest
        )

    def for_waco(self, transfer: Transfer) -> SampleSet:
        """Give the samples with the numbers that enter WACO's slots as their own parameters."""
        changed = (replace(one, own=slot_numbers(transfer, one.common, one.own)) for one in self.matrices)
        return replace(self, matrices=tuple(changed))


def check_samples(samples: SampleSet, own: int, limits: tuple[int, int]) -> None:
    """Check that every matrix has vectors of the lengths, and sites within the limits, that a model takes.

    Raises
    ------
    DatasetError
        Says which matrix has others.
    """
    for one in samples.matrices:
        found = one.common.shape[1], one.own.shape[1]
        if found != (COMMON_SIZE, own):
            raise DatasetError(f"{one.matrix}: expected vectors of {COMMON_SIZE} and {own} numbers, found {found}")
        if one.limits != limits:
            raise DatasetError(f"{one.matrix}: expected sites within the limits {limits}, found {one.limits}")
