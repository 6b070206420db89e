"""Two made-up platforms on tiny matrices, whose times follow from pattern and config: samples for DASH's tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from spmark.impls.core.interfaces import Config
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.dash import sites
from spmark.impls.dash.encoders import EncoderKind, fit
from spmark.impls.dash.featuriser import Featuriser
from spmark.impls.dash.finding import own_model
from spmark.impls.dash.mapping import vectors
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.dash.weights import ModelCard, Subject, TrainedModel
from spmark.impls.table import find_platform
from spmark.impls.tuning.platform import CommonLoops
from spmark.impls.tuning.space import Axis, Space
from spmark.studies.dash.samples import MatrixSamples, SampleSet

CPU_SPACE = Space(
    (
        Axis.of("isplit", (1, 4, 16)),
        Axis.of("ksplit", (1, 8)),
        Axis.of("rows_first", (True, False)),
        Axis.of("chunk", (1, 8, 64)),
        Axis.of("format", ("compressed", "dense")),
    )
)
CPU_OWN = OwnParameters(CPU_SPACE.axes[3:])
TILE_SPACE = Space(
    (
        Axis.of("p_row", (4, 16)),
        Axis.of("p_col", (8, 64)),
        Axis.of("d_split", (8, 32)),
        Axis.of("barrier", (False, True)),
        Axis.of("bypass", (False, True)),
        Axis.of("reorder", ("none", "length", "random")),
    )
)
TILE_OWN = OwnParameters(TILE_SPACE.axes[4:])
CPU = Subject(platform="cpu", op=Op.SPMM, space_digest=CPU_SPACE.digest, parameters_digest=CPU_OWN.digest)
TILES = Subject(platform="tiles", op=Op.SPMM, space_digest=TILE_SPACE.digest, parameters_digest=TILE_OWN.digest)


def common_cpu(config: Config) -> CommonLoops:
    order = ("i1", "i2", "j1", "j2", "k1", "k2") if config["rows_first"] else ("j1", "j2", "i1", "i2", "k1", "k2")
    return CommonLoops((config["isplit"], 1, config["ksplit"]), order)


def common_tiles(config: Config) -> CommonLoops:
    tiles = ("j2", "i2") if config["barrier"] else ("i2", "j2")
    return CommonLoops((config["p_col"], config["p_row"], config["d_split"]), ("k2", *tiles, "i1", "j1", "k1"))


def random_csr(seed: int, shape: tuple[int, int], density: float) -> Csr:
    rng = np.random.default_rng(seed)
    return Csr.of(sparse.random(*shape, density=density, format="csr", dtype=np.float32, rng=rng))


def problem_of(seed: int) -> Problem:
    """Give a matrix of up to 60 rows, whose density depends on the seed."""
    return Problem("spmm", random_csr(seed, (20 + seed % 40, 50), 0.02 + 0.1 * (seed % 3)), 32)


def samples_of(
    subject: Subject, seeds: Sequence[int], configs: Sequence[Config] | None = None, count: int = 12
) -> SampleSet:
    """Give samples of matrices; each has ``count`` configs, or those that are given."""
    space, own, common = (
        (CPU_SPACE, CPU_OWN, common_cpu) if subject.platform == "cpu" else (TILE_SPACE, TILE_OWN, common_tiles)
    )
    every = list(space.configs())
    matrices = []
    for seed in seeds:
        drawn = np.random.default_rng(seed).permutation(len(every))[:count]
        chosen = configs or [every[place] for place in drawn]
        problem = problem_of(seed)
        mapped = [common(config) for config in chosen]
        numbers = own.vectors(chosen)
        looks = sites.down_sample(problem.matrix), sites.sizes(problem), sites.statistics(problem)
        given = vectors(mapped), numbers, seconds_of(problem, mapped, numbers)
        matrices.append(MatrixSamples(f"made/{seed}", *looks, *given, problem.matrix.nnz))
    return SampleSet(subject, tuple(matrices))


def seconds_of(problem: Problem, common: Sequence[CommonLoops], own: NDArray[np.float32]) -> NDArray[np.float64]:
    """Give times: density says how much they follow the first split, and the last own parameter makes them longer."""
    density = problem.matrix.nnz / (problem.matrix.num_rows * problem.matrix.num_cols)
    splits = np.array([np.log2(one.splits[0]) for one in common])
    return 1e-5 * np.exp(0.3 * splits * (1 - 10 * density) + 0.5 * own[:, -1] + 0.01 * np.arange(len(common)))


def keep_model(name: str, op: Op, seed: int = 1, path: Path | None = None, about: Config | None = None) -> Path:
    """Write a small model of a platform and an operator, by default where the implementation ``dash`` looks for it."""
    platform, spec = find_platform(name), NetworkSpec(featuriser=Featuriser.NONE, encoder=EncoderKind.PCA)
    own = OwnParameters(platform.own_axes(op))
    digests = {"space_digest": platform.digest(op), "parameters_digest": own.digest}
    subject = Subject(**{"platform": name, "op": op, **digests, **(about or {})})
    card = ModelCard(subject=subject, spec=spec, trained_on=(), seed=seed)
    path = path or own_model(name, op)
    TrainedModel(card, Network(spec, seed), fit(EncoderKind.PCA, own.every())).save(path)
    return path
