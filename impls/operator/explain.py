"""What a compiled operator says about itself: the choice for each width, its storage, its cost, and its rivals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from spmark.impls.auto.race import Chosen, told
from spmark.impls.core.baseline import BASELINES
from spmark.impls.core.interfaces import PHASES, Candidate, Config


def explained(choices: Mapping[int, Chosen], nnz: int, kind: str) -> Iterator[str]:
    """Give the lines of all widths.

    Parameters
    ----------
    choices : mapping
        By J.
    nnz : int
        Non-zeros of A.
    kind : str
        Of the device; its baseline is a key of `BASELINES`.
    """
    for width, chosen in choices.items():
        plan = chosen.plan
        config = ", ".join(f"{name} = {value}" for name, value in plan.config.items())
        yield f"J = {width}: {chosen.choice.name}" + (f" ({config})" if config else "")
        padding = f"padding {plan.stored / nnz - 1:.1%}" if nnz else "no non-zeros"
        yield f"  storage: {plan.stored:,} elements, {padding}, {plan.device_bytes:,} bytes"
        phases = [f"{name} {plan.phases_s[name]:.3f}" for name in PHASES if name in plan.phases_s]
        yield "  seconds of building: " + (", ".join(phases) or "none")
        if not plan.deterministic:
            yield "  two runs on the same operands may differ in the last bits"
        if chosen.race:
            yield from _race(told(chosen.choice), chosen.race.search.seen, BASELINES.get(kind, ""))
        else:
            yield "  nothing was measured: one implementation was asked for, or the first that fits"


def _race(winner: Config, candidates: Sequence[Candidate], baseline: str) -> Iterator[str]:
    """Give a line for each rival, the fastest first, and the speed-up over the baseline where both were measured."""
    times = {_label(one.config): _median(one) for one in candidates}
    won = _label(winner)
    yield "  candidates, with the median of their times from cold caches:"
    for one in sorted(candidates, key=_median):
        name = _label(one.config)
        told = f"{times[name]:,.1f} us" if one.samples_us else f"not measured: {one.reason}"
        yield f"    {name}: {told}" + (", chosen" if name == won else "")
    if baseline != won and np.isfinite(times.get(baseline, np.inf)):
        yield f"  {times[baseline] / times[won]:.2f} times as fast as the baseline {baseline}"


def _label(config: Mapping[str, Any]) -> str:
    pinned = ", ".join(f"{name} = {value}" for name, value in config.items() if name != "implementation")
    return f"{config['implementation']}" + (f" ({pinned})" if pinned else "")


def _median(candidate: Candidate) -> float:
    return float(np.median(candidate.samples_us)) if candidate.samples_us else float("inf")
