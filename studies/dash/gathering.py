"""Collected rows as the samples that a model is trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spmark.impls.core.errors import DatasetError
from spmark.impls.core.problem import Csr
from spmark.impls.dash.mapping import of_loops
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.dash.sites import MAX_SIDE, MAX_SITES
from spmark.impls.dash.weights import Subject
from spmark.impls.table import find_platform
from spmark.studies.collected import CollectedRow
from spmark.studies.dash.samples import MatrixSamples, SampleSet

_NOISY = 0.9
"""The noise is the difference between halves that this share of configs stays below."""


@dataclass(frozen=True)
class Gathered:
    """Samples of one platform and operator."""

    samples: SampleSet
    own: OwnParameters
    noise: float
    """Relative difference between the medians of the two halves of a config's samples, at the 90th percentile."""

    patterns: Mapping[str, str]
    """Ids of the matrices by the digest of their patterns: one matrix may have several ids."""
    rows: tuple[CollectedRow, ...]
    """What was collected of each matrix of the samples, in their order."""
    nnz: tuple[int, ...]
    """Likewise."""

    def first(self, count: int) -> Gathered:
        """Give the samples of the first ``count`` matrices, with the noise of all.

        Raises
        ------
        DatasetError
            There are fewer.
        """
        if len(self.rows) < count:
            raise DatasetError(f"expected samples of {count} matrices, found {len(self.rows)}")
        rows = self.rows[:count]
        patterns = {row.pattern_sha256: row.matrix for row in rows}
        samples = replace(self.samples, matrices=self.samples.matrices[:count])
        return replace(self, samples=samples, patterns=patterns, rows=rows, nnz=self.nnz[:count])


def gather(
    rows: Sequence[CollectedRow],
    load: Callable[[Mapping[str, Any]], Csr],
    *,
    matrices: int | None = None,
    limits: tuple[int, int] = (MAX_SITES, MAX_SIDE),
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
    limits : tuple of int
        Most sites and longest side (`spmark.impls.dash.sites.down_sample`).

    Raises
    ------
    DatasetError
        There are fewer matrices, the space or a matrix has changed since, or a row has no config with samples.
    """
    names = list(dict.fromkeys(row.matrix for row in rows))
    if len(names) < (matrices or 1):
        raise DatasetError(f"expected samples of {matrices or 1} matrices, found {len(names)}")
    used = set(names[:matrices])
    platform, op = find_platform(rows[0].platform), rows[0].op
    own, digest = OwnParameters(platform.own_axes(op)), platform.digest(op)
    if rows[0].space_digest != digest:
        raise DatasetError(
            f"expected samples of the space {digest} of {platform.name}, found {rows[0].space_digest}: collect anew"
        )
    found, differences, nnz = [], [], []
    kept = tuple(row for row in rows if row.matrix in used)
    for row in kept:
        timed = [one for one in row.configs if one.chosen_by_us]
        if not timed:
            raise DatasetError(f"{row.matrix}: expected a config with samples, found {row.configs[0].reason}")
        configs = [one.config for one in timed]
        halves = np.array([[np.median(one.chosen_by_us), np.median(one.valued_by_us)] for one in timed])
        differences += np.abs(halves[:, 0] / halves[:, 1] - 1).tolist()
        seconds = 1e-6 * np.array([np.median(one.samples_us) for one in timed])
        numbers = own.vectors([platform.own(config) for config in configs])
        common = [of_loops(platform.common(config)) for config in configs]
        problem = row.problem(load(row.spec))
        nnz.append(problem.matrix.nnz)
        found.append(MatrixSamples.of(row.matrix, problem, common, numbers, seconds, limits=limits))
    subject = Subject(platform=platform.name, op=op, space_digest=digest, parameters_digest=own.digest)
    noise = float(np.quantile(differences, _NOISY))
    patterns = {row.pattern_sha256: row.matrix for row in kept}
    return Gathered(SampleSet(subject, tuple(found)), own, noise, patterns, kept, tuple(nnz))


def check_apart(source: Gathered, target: Gathered | None, held_out: Gathered | None) -> None:
    """Check that a model's platforms differ, and that no training sees what is held out.

    Raises
    ------
    DatasetError
        One platform is source and target, held-out samples are of another platform than the model, or a held-out matrix
        is trained on, also under another name.
    """
    platform = (target or source).samples.subject.platform
    if target and platform == source.samples.subject.platform:
        raise DatasetError(f"expected samples of two platforms, found {platform} as source and as target")
    if held_out is None:
        return
    if held_out.samples.subject.platform != platform:
        raise DatasetError(
            f"expected held-out samples of {platform}, found {held_out.samples.subject.platform}: "
            "the model is judged on its own platform"
        )
    trained = source.patterns.keys() | (target.patterns.keys() if target else set())
    if both := sorted(held_out.patterns[pattern] for pattern in trained & held_out.patterns.keys()):
        raise DatasetError(f"expected held-out matrices that no training has seen, found {', '.join(both)} in both")
