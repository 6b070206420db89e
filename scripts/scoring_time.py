"""Measure how long DASH's network takes to score the configs of one matrix, the featuriser included.

    python scripts/scoring_time.py
    python scripts/scoring_time.py --device cuda

The weights are random, because they do not change the work. Each line is a part of the time: milliseconds, the median
of all rounds and the least. A first round, which compiles, is left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from scipy import sparse

from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.dash.encoders import fit
from spmark.impls.dash.finding import scores_of
from spmark.impls.dash.network import Network, NetworkSpec
from spmark.impls.dash.parameters import OwnParameters
from spmark.impls.dash.score import DashScores
from spmark.impls.dash.weights import ModelCard, Subject, TrainedModel
from spmark.impls.table import find_platform


def untrained(platform: Any, op: Op, device: str) -> DashScores:
    """Give the scores of a network with random weights for a platform."""
    spec, own = NetworkSpec(), OwnParameters(platform.own_axes(op))
    subject = Subject(platform=platform.name, op=op, space_digest=platform.digest(op), parameters_digest=own.digest)
    card = ModelCard(subject=subject, spec=spec, trained_on=(), seed=0)
    model = TrainedModel(card, Network(spec, 0, device), fit(spec.encoder, own.every(), 0))
    return scores_of(model, platform, own)


def main() -> None:
    """Write a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--platform", default="cuda", help="whose configs are scored")
    parser.add_argument("--op", choices=[op.value for op in Op], default="spmm")
    parser.add_argument("--rows", type=int, default=65_536)
    parser.add_argument("--nnz", type=int, default=1_000_000)
    parser.add_argument("--configs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=50)
    asked = parser.parse_args()
    op, platform = Op(asked.op), find_platform(asked.platform)
    density = asked.nnz / asked.rows**2
    a = sparse.random_array((asked.rows, asked.rows), density=density, rng=np.random.default_rng(0), format="csr")
    problem = Problem(op, Csr.of(a), 32)
    scores = untrained(platform, op, asked.device)
    configs = [platform.default(problem), *platform.space(problem).sample(0, asked.configs)][: asked.configs]
    embedded: dict[str, Any] = {}
    parts: dict[str, Callable[[], object]] = {
        "embedding of the matrix": lambda: embedded.update(matrix=scores.embed(problem)),
        "embeddings of the configs": lambda: embedded.update(configs=scores.embed_configs(configs)),
        "scores": lambda: scores.rank(embedded["matrix"], embedded["configs"]),
    }
    wait: Callable[[], Any] = torch.cuda.synchronize if asked.device == "cuda" else lambda: None
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(asked.rounds + 1):
        for name, part in parts.items():
            started = perf_counter()
            part()
            wait()
            seconds[name].append(perf_counter() - started)
    seconds = {name: times[1:] for name, times in seconds.items()}
    seconds["all"] = [sum(one) for one in zip(*seconds.values(), strict=True)]
    for name, times in seconds.items():
        sys.stdout.write(f"{name:28} {median(times) * 1e3:8.2f} ms, at least {min(times) * 1e3:8.2f} ms\n")


if __name__ == "__main__":
    main()
