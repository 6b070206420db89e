"""What a study does: which methods, with which seeds, from how many matrices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spmark.impls.core.choices import none_of
from spmark.impls.core.errors import SweepError
from spmark.studies.dash.methods import HEADLINE, MODELS

BASELINES: Final[Mapping[str, tuple[bool, bool]]] = {
    "random5": (False, False),
    "target_best": (False, True),
    "rule_ck": (False, False),
    "lightgbm": (False, True),
    "lightgbm_source": (True, True),
}
"""What stands beside the models, and whether it sees the source platform and the target platform."""
RULED: Final = "rule_ck"
METHODS: Final = (*MODELS, *BASELINES)
SOURCE_SIZES: Final = (5, 20, 100, 500, 1000)
"""Matrices of pre-training in figure 11; those that the samples have are studied."""
TARGET_SIZES: Final = (1, 3, 5, 7, 10, 20, 50, 100, 1000)
"""Matrices of fine-tuning in figure 12, and of a training without transfer in figure 10; likewise."""
ABLATION_SEEDS: Final = 2
_DRAWN: Final = ("random5",)
"""Baselines that a seed changes."""


@dataclass(frozen=True)
class StudyTask:
    """One training, and its judging."""

    method: str
    seed: int
    source_matrices: int
    """0 where the method does not see the source platform."""
    target_matrices: int
    """Likewise."""


@dataclass(frozen=True)
class Sizes:
    """Matrices of one platform."""

    main: int
    """That every method learns from."""
    available: int
    """That have samples."""

    def others(self, sizes: Sequence[int]) -> list[int]:
        """Give the sizes beside the main one that there are samples for."""
        return [size for size in sizes if size != self.main and size <= self.available]


def check_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """Give the methods in the order of `METHODS`, all of them where none is named.

    Raises
    ------
    SweepError
        A method is unknown; lists the known ones.
    """
    for method in methods:
        if method not in METHODS:
            raise SweepError(none_of("a method", method, METHODS))
    return tuple(method for method in METHODS if method in (methods or METHODS))


def tasks(methods: Collection[str], seeds: int, source: Sizes, target: Sizes) -> Iterator[StudyTask]:
    """Walk over all tasks, one seed after the other; other sizes come last.

    Parameters
    ----------
    methods : collection of str
    seeds : int
        Of `HEADLINE`'s models; at most `ABLATION_SEEDS` of these for the others, and one for what no seed changes.
    source, target : Sizes
    """
    for seed in range(seeds):
        for method in methods:
            if seed < _seeds(method, seeds):
                yield _task(method, seed, source.main, target.main)
    for seed in range(min(ABLATION_SEEDS, seeds)):
        for method in [one for one in ("dash", "scratch") if one in methods]:
            for size in target.others(TARGET_SIZES):
                yield _task(method, seed, source.main, size)
        for size in source.others(SOURCE_SIZES) if "dash" in methods else ():
            yield _task("dash", seed, size, target.main)


def _seeds(method: str, seeds: int) -> int:
    if method in HEADLINE or method in _DRAWN:
        return seeds
    return min(ABLATION_SEEDS, seeds) if method in MODELS else 1


def _task(method: str, seed: int, source: int, target: int) -> StudyTask:
    variant = MODELS.get(method)
    sees_source, sees_target = (variant.pretrained, variant.fine_tuned) if variant else BASELINES[method]
    return StudyTask(method, seed, source if sees_source else 0, target if sees_target else 0)
