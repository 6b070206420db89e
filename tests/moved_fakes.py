"""Made-up facts of a study of moved cost models: few matrices, few configs, all drawn from one seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spmark.impls.core.problem import Op
from spmark.records.rowfile import RecordFile
from spmark.studies.transferfacts import TransferCost, TransferCurve, TransferFact, TransferResult, TransferRun

SOURCE, TARGET = 8, 5
"""Matrices of pre-training and of fine-tuning at the headline sizes."""
SIMULATED = "SPADE-like, simulated; not the published simulator"
# Skill in [0, 1]: the share of the optimum's logarithmic gain that the first choice reaches; and sizes.
MODELS = {
    "dash": (0.9, SOURCE, TARGET), "dash_mlp192": (0.85, SOURCE, TARGET), "waco_zero_shot": (0.0, SOURCE, 0),
    "waco_fine_tuned": (0.2, SOURCE, TARGET), "waco_fa": (0.3, SOURCE, TARGET), "waco_fm": (0.4, SOURCE, TARGET),
    "no_featuriser": (0.5, SOURCE, TARGET), "no_mapper": (0.4, SOURCE, TARGET), "no_encoder": (0.3, SOURCE, TARGET),
    "encoder_pca": (0.6, SOURCE, TARGET), "encoder_vae": (0.6, SOURCE, TARGET), "encoder_fa": (0.5, SOURCE, TARGET),
    "predictor_lstm": (0.5, SOURCE, TARGET), "predictor_gru": (0.5, SOURCE, TARGET),
    "predictor_transformer": (0.7, SOURCE, TARGET), "scratch": (0.5, 0, TARGET), "zero_shot": (-0.5, SOURCE, 0),
}  # fmt: skip
BASELINES = {
    "random5": (-0.2, 0, 0), "target_best": (0.5, 0, TARGET), "rule_ck": (0.3, 0, 0), "lightgbm": (0.6, 0, TARGET),
    "lightgbm_source": (0.7, SOURCE, TARGET),
}  # fmt: skip
TUNED = 0.6
"""Share of what is left to the optimum that measuring five configs gains."""


def results(
    methods: dict[str, tuple[float, int, int]] | None = None,
    *,
    source: str = "cpu",
    target: str = "cuda",
    op: Op = Op.SPMM,
    seeds: Sequence[int] = (0, 1, 2),
    matrices: int = 6,
    gain: float = 0.4,
    noise: float = 0.03,
    drawn: int = 7,
) -> Iterator[TransferResult]:
    """Give the results of methods on seeded matrices.

    ``gain`` is the mean logarithm of the optimum's speed-up, ``noise`` the deviation of a method's skill, ``drawn``
    the seed of all that is drawn.
    """
    rng = np.random.default_rng(drawn)
    simulated = target == "spade_sim"
    gains = gain * rng.uniform(0.5, 1.5, matrices)
    for method, (skill, source_matrices, target_matrices) in (methods or MODELS | BASELINES).items():
        for seed in seeds:
            for number, best in enumerate(gains):
                reached = best * min(1.0, skill + rng.normal(0, noise))
                tuned = reached + TUNED * (best - reached)
                yield TransferResult(
                    method=method,
                    source=source if source_matrices else "",
                    target=target,
                    op=op,
                    seed=seed,
                    source_matrices=source_matrices,
                    target_matrices=target_matrices,
                    matrix=f"seeded/m{number}",
                    pattern_sha256=f"{number:064x}",
                    nnz=1000 * (number + 1),
                    configs=100,
                    default_us=100.0,
                    optimum_us=float(100 * np.exp(-best)),
                    top1_us=float(100 * np.exp(-reached)),
                    top5_us=float(100 * np.exp(-tuned)),
                    opa=0.5 + 0.4 * max(skill, 0),
                    tau=0.8 * max(skill, 0),
                    opa_ceiling=1.0 if simulated else 0.95,
                    tau_ceiling=1.0 if simulated else 0.9,
                    machine="simulated" if simulated else "test-gpu",
                    note=SIMULATED if simulated else "median of GPU times",
                )


def curves(*, target: str = "cuda", op: Op = Op.SPMM, seeds: Sequence[int] = (0, 1, 2)) -> Iterator[TransferCurve]:
    """Give four epochs of each phase of the subject, whose scores rise."""
    for seed in seeds:
        for phase in ("pre-training", "fine-tuning"):
            for epoch in range(1, 5):
                score = 0.5 + 0.08 * epoch + 0.01 * seed
                values = {"prl": 1 / epoch, "opa": score, "tau": 2 * score - 1, "held_prl": 1.2 / epoch,
                          "held_opa": score - 0.05, "held_tau": 2 * score - 1.1}  # fmt: skip
                yield TransferCurve(
                    method="dash", source="cpu", target=target, op=op, seed=seed, source_matrices=SOURCE,
                    target_matrices=TARGET, phase=phase, epoch=epoch, values=values, seconds=2.0 * epoch,
                )  # fmt: skip


def costs(*, target: str = "cuda", op: Op = Op.SPMM) -> Iterator[TransferCost]:
    """Give what pre-training, fine-tuning and collecting cost."""
    shared: dict[str, Any] = {"method": "dash", "source": "cpu", "target": target, "op": op, "cores": 2}
    for seed in (0, 1):
        yield TransferCost(**shared, seed=seed, what="pretrain", seconds=60.0 + seed, matrices=SOURCE,
                           configs=800, machine="cpu")  # fmt: skip
        yield TransferCost(**shared, seed=seed, what="finetune", seconds=10.0, matrices=TARGET, configs=500,
                           machine="cpu")  # fmt: skip


def run() -> TransferRun:
    """Give what made the study."""
    return TransferRun(
        command="spmark study transfer dash --source cpu.jsonl", versions={"torch": "2.9"},
        samples={"source cpu.jsonl": "ab"}, spmark="0.1", commit="0123abc",
    )  # fmt: skip


def sizes() -> dict[str, dict[str, tuple[float, int, int]]]:
    """Give further sizes: of pre-training, of fine-tuning, and without transfer."""
    return {
        "source": {"dash": (0.6, 2, TARGET)},
        "target": {"dash": (0.7, SOURCE, 1), "scratch": (0.1, 0, 1)},
        "more": {"dash": (0.95, SOURCE, 10), "scratch": (0.7, 0, 10)},
    }


def study(
    targets: Sequence[str] = ("cuda", "spade_sim"), ops: Sequence[Op] = (Op.SPMM, Op.SDDMM)
) -> list[TransferFact]:
    """Give a whole study of every method, without the rule for c and k where it has no meaning."""
    facts: list[TransferFact] = [run()]
    for target in targets:
        for op in ops:
            ruled = (target, op) == ("cuda", Op.SPMM)
            methods = {name: of for name, of in (MODELS | BASELINES).items() if ruled or name != "rule_ck"}
            facts += results(methods, target=target, op=op)
            for more in sizes().values():
                facts += results(more, target=target, op=op, seeds=(0, 1))
            facts += curves(target=target, op=op)
            facts += costs(target=target, op=op)
    return facts


def write(folder: Path, facts: Sequence[TransferFact]) -> Path:
    """Write facts as a study does; gives the folder."""
    with RecordFile(folder / "transfers.jsonl") as file:
        file.append_all(facts)
    return folder
