"""Collected rows of real platforms on tiny matrices, with made-up times: samples for studies, without measuring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dash_fakes import random_csr

from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.table import find_platform
from spmark.records.rowfile import RecordFile
from spmark.studies.collected import CollectedRow, SampledConfig


def load(spec: Mapping[str, Any]) -> Csr:
    """Give the matrix of a row's entry."""
    return random_csr(spec["seed"], (20 + spec["seed"] % 40, 50), 0.02 + 0.1 * (spec["seed"] % 3))


def row_of(platform: str, seed: int, op: Op = Op.SPMM, count: int = 6) -> CollectedRow:
    """Give a row of the default and of ``count`` drawn configs, whose times follow from splits and position."""
    of, matrix = find_platform(platform), load({"seed": seed})
    problem = Problem(op, matrix, 32)
    configs = [of.default(problem), *of.space(problem).sample(seed, count)]
    splits = np.array([np.log2(of.common(config).splits).sum() for config in configs])
    times = 100 * np.exp(0.1 * splits + 0.02 * np.arange(len(configs)))
    return CollectedRow(
        platform=platform,
        note="made up",
        op=op,
        matrix=f"made/{seed}",
        spec={"seed": seed},
        width=32,
        dtype=problem.dtype,
        space_digest=of.digest(op),
        version="0" * 16,
        machine="simulated",
        wanted=count,
        pattern_sha256=matrix.hash,
        configs=tuple(
            SampledConfig.of(config, (time, 1.01 * time)) for config, time in zip(configs, times, strict=True)
        ),
    )


def write_rows(path: Path, rows: Sequence[CollectedRow]) -> Path:
    """Write rows as ``spmark study collect`` does."""
    with RecordFile(path) as file:
        file.append_all(rows)
    return path
