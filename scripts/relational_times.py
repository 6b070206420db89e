"""Times RGMS by every implementation that runs on a device, by turns and from cold caches, and prints JSON lines.

    python scripts/relational_times.py hetero/{aifb,mutag,wn18rr,fb15k237} relational_twin/am --widths 32 128
    python scripts/relational_times.py hetero/{aifb,mutag} --layers 2 --stored
    python scripts/relational_times.py minkunet/drawn --stored

Records of sweeps have times of graphs for fast kernels alone; here every plan that can be captured has one. Each plan
is built, held against float64 on some rows, and timed beside all others of its problem by the suite's protocol; a plan
that is wrong or cannot be built has a reason instead of a time. The last line has geometric means over the problems.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from time import perf_counter
from typing import Any

import numpy as np

from spmark.datasets.cache import Cache
from spmark.datasets.relational import load_relational
from spmark.datasets.sources.minkunet import LAYERS
from spmark.datasets.sweep.model import MatrixSpec
from spmark.datasets.sweep.reading import parse_matrix
from spmark.impls.core.devicespec import DeviceSpec
from spmark.impls.core.errors import KernelFault, SpmarkError
from spmark.impls.core.interfaces import Plan
from spmark.impls.core.operators import random_operands, reference
from spmark.impls.core.problem import DType
from spmark.impls.core.relational import (
    RelationalProblem,
)
from spmark.impls.core.tolerance import tolerance
from spmark.impls.runtime.device import calibrated, find
from spmark.impls.runtime.lab import Lab, open_lab
from spmark.impls.runtime.timing import Stopping, half_width, take_samples
from spmark.impls.table import RELATIONAL, create

_CHECKED_ROWS = 512
EXTENDED, PUBLISHED = ("rgms_hyb", dict[str, Any]()), ("rgms_hyb", {"tuned": False})
FAST_LAYER = ("pyg_rgcn", {"layer": "FastRGCNConv"})
_LARGE_ROOF_US = 5.0
"""Under this roof a launch decides."""
_ROUNDOFF = "largest error over the sum of the terms' magnitudes"


def candidates() -> Iterator[tuple[str, dict[str, Any]]]:
    """Give implementations with their configs: the defaults and what is published."""
    for name in RELATIONAL:
        yield name, {}
    yield from (PUBLISHED, FAST_LAYER)


def problems(text: str, widths: Sequence[int], dtype: DType, values: str) -> Iterator[tuple[str, RelationalProblem]]:
    """Give the problems of a matrix with its id: at these widths, or those of all layers where it is a scan."""
    asked = [(text, width, width) for width in widths]
    if text.startswith("minkunet/") and text.count("/") == 1:
        asked = [(f"{text}/{layer.map}", layer.width_in, layer.width_out) for layer in LAYERS]
    for name, group in groupby(sorted(asked), key=itemgetter(0)):
        spec = MatrixSpec.model_validate({**parse_matrix(name), "values": values})
        matrix = load_relational(spec, Cache.default(), 0)
        yield from ((spec.id, RelationalProblem(matrix, *layer[1:], dtype)) for layer in group)


def checked_rows(problem: RelationalProblem) -> np.ndarray[Any, Any]:
    """Draw the rows that are checked: the longest, and up to `_CHECKED_ROWS` others."""
    lengths = problem.matrix.wide.row_lengths
    some = np.random.default_rng(0).choice(lengths.size, min(_CHECKED_ROWS, lengths.size), replace=False)
    return np.union1d(some, [np.argmax(lengths)]).astype(np.int64)


def times(problem: RelationalProblem, lab: Lab, device: Any, layers: int = 1) -> Iterator[dict[str, Any]]:
    """Give a line for each candidate; of several layers, which are equal, with ReLU between them."""
    sources = random_operands(problem, 0)
    operands = [lab.empty(shape, problem.dtype.numpy) for shape in problem.operand_shapes]
    for source, operand in zip(sources, operands, strict=True):
        lab.draw(source, operand)
    hidden = [lab.empty(problem.out_shape, problem.dtype.numpy) for _ in range(layers - 1)]
    out, rows = lab.empty(problem.out_shape, problem.dtype.numpy), checked_rows(problem)
    expected = reference(problem, sources, rows)

    def run(plan: Plan) -> None:
        source = operands[0]
        for features in hidden:
            plan.run((source, operands[1]), features)
            source = lab.xp.maximum(features, features.dtype.type(0), out=features)
        plan.run((source, operands[1]), out)

    lines: list[dict[str, Any]] = []
    plans: list[tuple[dict[str, Any], Plan]] = []
    for name, config in candidates():
        line: dict[str, Any] = {"implementation": name, "config": config}
        how = create(name, config)
        if device.kind not in how.devices:
            continue
        lines.append(line)
        if (reason := how.unsupported(problem, device)) is not None:
            line["reason"] = reason
            continue
        try:
            with lab.peak() as peak:
                plan = how.build(problem, device)
                out.fill(np.nan)
                plan.run(operands, out)
                error = expected.max_error(lab.download(out[rows]))
        except (SpmarkError, MemoryError, RuntimeError) as fault:  # PyTorch has an error of its own for its memory
            line["reason"] = f"{type(fault).__name__}: {fault}"
            continue
        facts = {
            "chose": plan.config,
            "stored": plan.stored,
            "device_bytes": plan.device_bytes,
            "peak_device_bytes": peak.bytes,
        }
        if plan.search:
            facts["failed"] = list(dict.fromkeys(one.reason for one in plan.search.seen if one.reason))
        line |= {**facts, "phases_s": plan.phases_s, "deterministic": plan.deterministic, "max_rel_error": error}
        if not error <= tolerance(problem, plan.half_sums):
            line["reason"] = f"expected an error of at most {tolerance(problem, plan.half_sums):.3g}, the {_ROUNDOFF}"
        else:
            plans.append((line, plan))
    runs = [lambda plan=plan: run(plan) for _, plan in plans]
    if runs and lab.stopwatch is not None:
        found = take_samples(lab.stopwatch, runs, Stopping(max_seconds=0.3 * len(runs)))
        for (line, _), timed, samples in zip(plans, runs, found.times_us, strict=True):
            line |= {"median_us": float(np.median(samples)), "half_width": half_width(samples), "samples": len(samples)}
            with suppress(KernelFault):  # a library that cannot be captured has no time as a graph
                if graph := lab.graph_times_us(timed, 15):
                    line["graph_us"] = float(np.median(graph))
    yield from lines


def roof_us(problem: RelationalProblem, device: DeviceSpec) -> float:
    """Give the largest of three times by calibrated rates: compulsory bytes, gathered rows of X out of L2, and flops.

    NaN where the device has no such rates.
    """
    row_bytes = problem.width_in * problem.dtype.itemsize
    rates = device.l2_gather_bytes_per_s
    gather = rates[min(rates, key=lambda size: abs(size - row_bytes))] if rates else np.nan
    work = problem.compulsory_bytes(), problem.matrix.nnz * row_bytes, problem.flops()
    per_s = device.copy_bytes_per_s or np.nan, gather, device.flops_per_s(problem.dtype) or np.nan
    return float(np.max(np.divide(work, per_s))) * 1e6


def summary(problems: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Give geometric means over the problems, of times in graphs where every side has one, of bytes and of shares.

    Returns
    -------
    dict
        ``extended_over_rgms_naive`` and its like: how many times faster, than the faster one of several configs;
        ``bytes``: what operands, result and plan hold over what they hold with the plan of gather_gemm_scatter;
        ``share``: of the roof, over problems whose roof is above 5 us.
    """
    ratios: dict[str, list[float]] = {}
    for lines in problems:
        timed = [line for line in lines if "graph_us" in line]
        for label, (name, config) in (("extended", EXTENDED), ("published", PUBLISHED)):
            own = next((one for one in timed if (one["implementation"], one["config"]) == (name, config)), None)
            if own is None:
                continue
            for other in ("gather_gemm_scatter", "rgms_naive"):
                beside = [one for one in timed if one["implementation"] == other]
                if not beside:
                    continue
                best = min(beside, key=itemgetter("graph_us"))
                ratios.setdefault(f"{label}_over_{other}", []).append(best["graph_us"] / own["graph_us"])
                if other == "gather_gemm_scatter":
                    held, least = (one["operand_bytes"] + one["device_bytes"] for one in (own, best))
                    ratios.setdefault(f"{label}_bytes", []).append(held / least)
            if own.get("roof_us", 0.0) > _LARGE_ROOF_US:
                ratios.setdefault(f"{label}_share", []).append(own["roof_us"] / own["graph_us"])
    return {name: float(np.exp(np.mean(np.log(values)))) for name, values in ratios.items()}


def main() -> None:
    """Print a line for each matrix, width and candidate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("matrices", nargs="+", help="source/name, or minkunet/scan for all layers of MinkUNet")
    parser.add_argument(
        "--widths", type=int, nargs="+", default=[32], help="columns of X and of Y; layers have their own"
    )
    parser.add_argument("--dtype", type=DType, choices=list(DType), default=DType.FLOAT16)
    parser.add_argument("--device", default="auto", help="cuda, cpu or host-simt (no times)")
    parser.add_argument("--layers", type=int, default=1, help="so many layers with ReLU between, as inference of RGCN")
    parser.add_argument("--stored", action="store_true", help="A's own values (of a map: ones), not random ones")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no further problem after so long")
    args = parser.parse_args()
    started, told = perf_counter(), list[list[dict[str, Any]]]()
    device = calibrated(find(args.device))
    lab = open_lab(device)
    values = "stored" if args.stored else "seeded"
    for name in args.matrices:
        for matrix, problem in problems(name, args.widths, args.dtype, values):
            if args.layers > 1 and problem.operand_shapes[0] != problem.out_shape:
                parser.error(
                    f"{matrix}: expected as many rows and columns of Y as of X, to put layers behind each other"
                )
            about = {"matrix": matrix, "values": values, "dtype": args.dtype, "device": device.name}
            about |= {"width_in": problem.width_in, "width_out": problem.width_out, "layers": args.layers}
            if perf_counter() - started > args.seconds:
                sys.stdout.write(json.dumps({**about, "reason": "the time is up"}) + "\n")
                continue
            shapes = (*problem.operand_shapes, problem.out_shape)
            held = sum(int(np.prod(shape)) for shape in shapes) * problem.dtype.itemsize
            work = {"flops": problem.flops(), "compulsory_bytes": problem.compulsory_bytes()}
            about |= {"operand_bytes": held} | {name: args.layers * count for name, count in work.items()}
            if np.isfinite(roof := roof_us(problem, device)):
                about["roof_us"] = roof * args.layers
            told.append([{**about, **line} for line in times(problem, lab, device, args.layers)])
            sys.stdout.write("".join(json.dumps(line) + "\n" for line in told[-1]))
            sys.stdout.flush()
    sys.stdout.write(json.dumps({"summary": summary(told), "seconds": perf_counter() - started}) + "\n")


if __name__ == "__main__":
    main()
