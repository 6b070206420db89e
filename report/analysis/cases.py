"""Columns that follow from the facts of one device's records: medians, speed-ups, shares of floors, build costs.

A speed-up is a ratio within one run: a row's own interleaved baseline samples are used where they are of the chosen
baseline. Otherwise the baseline's own record of the same problem is used, if a like machine has measured it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import inf, isnan, nan
from typing import Any

import numpy as np
import pandas as pd

from spmark.impls.core.baseline import chosen_baseline
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.enums import NetworkOp
from spmark.impls.core.interfaces import CHOOSING_PHASES
from spmark.impls.core.machine import Load
from spmark.records.schema import SPARSE_PACKAGE, Environment, Status
from spmark.report.analysis.statistics import Interval, break_even, median_interval, median_of, ratio_intervals

WIDE = 0.02
"""Relative half-width from which a median's interval is flagged: twice what sampling aims at."""
WIDE_SPEEDUP = 0.10
"""Relative half-width from which the interval of a case's speed-up is wide: runs of one code may differ by as much."""
WIDE_MARK = "~"
"""Stands over a bar, and behind a number, whose cases have wide intervals."""
SPENT_PHASES = (*CHOOSING_PHASES, "compile")
"""What a search costs until its first run: uploading is left out, since every plan uploads."""
PROBLEM = ("op", "dtype", "matrix", "width", "seed")
"""Columns that rows must share to be compared."""
Columns = dict[str, pd.Series]


def choose_baseline(frame: pd.DataFrame, wanted: str | None = None) -> str | None:
    """Choose the baseline of one device's records by `spmark.impls.core.baseline.chosen_baseline`."""
    plain = frame.loc[frame["requested"].map(len) == 0, "implementation"]
    return chosen_baseline(frame["baseline_implementation"], {*frame["label"], *plain}, wanted)


def baseline_names(frame: pd.DataFrame) -> list[str]:
    """List the names that can be a baseline: labels, implementations and baselines that rows name."""
    names = set(frame["label"]) | set(frame["implementation"]) | set(frame["baseline_implementation"])
    return sorted(names - {""})


def derive(frame: pd.DataFrame, baseline: str | None) -> pd.DataFrame:
    """Add derived columns to the records of one device.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.records.current` gives it, of one device.
    baseline : str or None
        An implementation, or the label of one config; None leaves speed-ups and break-even counts unknown.

    Returns
    -------
    DataFrame
        The frame with further columns. Unknown numbers are NaN, and so is every time of a case that is not ok.

        - ``matrix_kind``, also where a case was refused before its matrix was loaded, if another row of the matrix
          has the kind.
        - ``is_baseline``; ``median_us``, ``speedup`` and their ``_low`` and ``_high``; ``speedup_from``
          (``interleaved``, ``common``, ``record``, ``itself`` or empty); ``baseline_us``; ``warm_us``, ``graph_us``,
          ``samples``. ``common``: another baseline was interleaved with the case and with the baseline's record, whose
          samples are scaled by its two medians, so that the drift between the two moments cancels; the interval leaves
          out the spread of these two medians. ``record``: the baseline's record is of a like machine, with the same
          driver, CUDA and sparse library, and of a CPU with as many cores; a record of another machine counts as none.
        - ``sparse_us``, the time of a network's sparse layers, each alone, and ``sparse_share`` of it in a step.
        - ``gflops_per_s``; ``bytes_share`` and ``flops_share`` (floor over median).
        - ``wide``, whether the speed-up's interval reaches more than `WIDE_SPEEDUP` to either side; ``taken_cores``,
          the host's cores that other processes took; ``flags``.
        - ``padding``; ``build_s``, ``choosing_s``, ``break_even_runs``, ``break_even_runs_with_compile``.
    """
    itself = _is_baseline(frame, baseline) if baseline else pd.Series(False, frame.index)
    nothing = pd.Series([np.empty(0)] * len(frame), frame.index, object)
    samples = frame["samples_us"].where(frame["status"] == Status.OK.value, nothing)
    count = samples.map(len).astype(int)
    own, drift, alike = _own_record(frame, itself & (count > 0))
    interleaved = (frame["baseline_implementation"] == baseline) & (frame["baseline_samples_us"].map(len) > 0)
    sources = [count == 0, itself, interleaved, drift.notna(), alike]
    source = pd.Series(np.select(sources, ["", "itself", "interleaved", "common", "record"], ""), frame.index, object)
    scaled = (own["samples_us"] * drift).where(drift.notna(), own["samples_us"])
    against = scaled.mask(interleaved, frame["baseline_samples_us"]).mask(itself, samples)
    against = against.where(source != "", nothing)
    median = _intervals("median_us", map(median_interval, samples), frame.index)
    speedup = _intervals("speedup", ratio_intervals(against.mask(itself, nothing), samples), frame.index)
    median_us, baseline_us = median["median_us"], medians(against)
    rates = frame[["copy_bytes_per_s", "flops_per_s"]].where(lambda known: known > 0)
    floors = {"bytes_share": ("compulsory_bytes", "copy_bytes_per_s"), "flops_share": ("flops", "flops_per_s")}
    shares = {name: frame[amount] / rates[rate] * 1e6 / median_us for name, (amount, rate) in floors.items()}
    sparse_us = frame["parts_us"].map(lambda parts: sum(parts.values()) if parts else nan).astype(float)
    loads = list(map(_load, frame["facts"], frame["free_cores"]))
    return frame.assign(
        is_baseline=itself,
        matrix_kind=_known_kinds(frame),
        samples=count,
        **median,
        warm_us=medians(frame["warm_samples_us"]),
        graph_us=medians(frame["graph_samples_us"]),
        baseline_us=baseline_us,
        **(speedup | {"speedup": speedup["speedup"].mask(itself & (count > 0), 1.0)}),
        speedup_from=source,
        wide=_half_width(speedup, "speedup") > WIDE_SPEEDUP,
        taken_cores=[load.taken_cores for load in loads],
        sparse_us=sparse_us,
        sparse_share=sparse_us / median_us,
        gflops_per_s=frame["flops"] / median_us * 1e-3,
        **shares,
        padding=(frame["stored"] / frame["nnz"] - 1).where((frame["stored"] > 0) & (frame["nnz"] > 0)).astype(float),
        **_building(frame["phases_s"], own["phases_s"].where(alike), median_us.mask(itself), baseline_us),
        flags=list(map(_flags, frame["throttled"], _half_width(median, "median_us"), loads)),
    )


def _own_record(
    frame: pd.DataFrame, of_baseline: pd.Series[bool]
) -> tuple[pd.DataFrame, pd.Series[float], pd.Series[bool]]:
    """Give what each row's problem has in the baseline's record, and how that record's machine compares.

    The second is how much slower the machine was in the row: the median of the baseline that was interleaved with the
    row over that with the record; NaN where the two are not of one implementation and one sparse library. The third
    tells whether the record is of a machine like the row's.
    """
    columns = ("samples_us", "phases_s", "baseline_implementation", "baseline_samples_us", "library", "machine")
    frame = frame.assign(machine=list(map(_machine, frame["facts"], frame["environment"])))
    own = beside(frame, frame[of_baseline], *columns)
    alike = (own[["baseline_implementation", "library"]] == frame[["baseline_implementation", "library"]]).all(axis=1)
    here, there = (medians(rows.loc[alike, "baseline_samples_us"]) for rows in (frame, own))
    return own, (here / there).reindex(frame.index), own["machine"] == frame["machine"]


def _machine(facts: Environment | None, environment: str) -> str:
    """Tell machines of one device apart where times on them may differ; by the environment where its facts are lost."""
    if facts is None:
        return environment
    # The host's cores change no time of a kernel on a GPU, whose samples wait until the host has enqueued them.
    on_gpu = facts.device.kind is DeviceKind.CUDA
    cores, library = "" if on_gpu else f", {facts.cores} cores", facts.packages.get(SPARSE_PACKAGE) if on_gpu else ""
    return f"driver {facts.driver}, CUDA {facts.cuda}{cores}{library}"


def beside(rows: pd.DataFrame, other: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """Give columns of the row of ``other`` that has the same problem, the last of several; NaN where none has."""
    keys = list(PROBLEM)
    last_rows = other.drop_duplicates(keys, keep="last")[[*keys, *columns]]
    return rows[keys].merge(last_rows, on=keys, how="left").set_axis(rows.index)[list(columns)]


def each_problem_once(frame: pd.DataFrame) -> pd.DataFrame:
    """Give matrices of one pattern one name, and keep one row of each problem and label: the newest with a result.

    Several sources have the same matrix, so that rows of several sweeps would count it twice and never meet. The name
    is the one that most rows bear, the first by alphabet of several.
    """
    of_pattern = frame.loc[frame["pattern"] != "", ["pattern", "matrix"]].value_counts().reset_index()
    if of_pattern["pattern"].duplicated().any():
        known = of_pattern.sort_values(["count", "matrix"], ascending=[False, True])
        known = known.assign(name=known.groupby("pattern")["matrix"].transform("first")).drop_duplicates("matrix")
        names = dict(zip(known["matrix"], known["name"], strict=True))
        frame = frame.assign(matrix=frame["matrix"].map(lambda name: names.get(name, name)))
    keys = [*PROBLEM, "label"]
    if frame.duplicated(keys).any():
        solved = frame["status"] == Status.OK.value
        frame = frame.iloc[np.lexsort((frame["started_at"], solved))].drop_duplicates(keys, keep="last")
    return frame.sort_index()


def spent_s(phases_s: pd.Series[Any], phases: Sequence[str] = SPENT_PHASES) -> pd.Series[float]:
    """Give the seconds that plans spent in some phases; 0 where nothing is known."""
    return phases_s.map(lambda spent: sum(spent.get(phase, 0.0) for phase in phases) if spent else 0.0).astype(float)


def medians(samples_us: pd.Series[Any]) -> pd.Series[float]:
    """Give the median of each row's samples; NaN where a row has none."""
    return samples_us.map(lambda taken: median_of(np.sort(taken)) if len(taken) else nan).astype(float)


def _intervals(name: str, intervals: Iterable[Interval], index: pd.Index) -> Columns:
    ends = [(interval.value, interval.low, interval.high) for interval in intervals]
    frame = pd.DataFrame(ends, index, [name, f"{name}_low", f"{name}_high"], float)
    return {str(column): frame[column] for column in frame}


def _half_width(interval: Columns, name: str) -> pd.Series[float]:
    return (interval[f"{name}_high"] - interval[f"{name}_low"]) / 2 / interval[name]


def _building(phases_s: pd.Series, paid: pd.Series, run_us: pd.Series, baseline_us: pd.Series) -> Columns:
    """Give what building cost, and after how many runs it has paid off against the baseline's own building."""
    known, paid = phases_s.map(len) > 0, paid.map(lambda spent: spent if isinstance(spent, Mapping) else {})
    choosing, compiling = spent_s(phases_s, CHOOSING_PHASES), spent_s(phases_s, ["compile"])
    # The baseline's search for its fastest variant is not counted: counting it would let every rival pay off sooner.
    base = spent_s(paid, CHOOSING_PHASES) - spent_s(paid, ["search"])
    with_compile = (choosing + compiling, run_us, base + spent_s(paid, ["compile"]), baseline_us)
    return {
        "build_s": phases_s.map(lambda spent: sum(spent.values())).where(known).astype(float),
        "choosing_s": choosing.where(known),
        "break_even_runs": pd.Series(list(map(break_even, choosing, run_us, base, baseline_us)), run_us.index, float),
        "break_even_runs_with_compile": pd.Series(list(map(break_even, *with_compile)), run_us.index, float),
    }


def _known_kinds(frame: pd.DataFrame) -> pd.Series[str]:
    known = frame[frame["matrix_kind"] != ""].drop_duplicates("matrix").set_index("matrix")["matrix_kind"]
    return frame["matrix_kind"].where(frame["matrix_kind"] != "", frame["matrix"].map(known).astype(object).fillna(""))


def _is_baseline(frame: pd.DataFrame, name: str) -> pd.Series[bool]:
    default = frame["requested"].map(len) == 0
    return (frame["label"] == name) | ((frame["implementation"] == name) & default)


def _load(facts: Environment | None, free_cores: float | None) -> Load:
    """Give the recorded load of other processes."""
    cores = facts.cores if facts else 0
    return Load(cores, None if free_cores is None or isnan(free_cores) or not cores else float(free_cores))


def _flags(throttled: Sequence[str], half_width: float, load: Load) -> str:
    flags = [f"throttled ({', '.join(throttled)})"] if throttled else []
    if half_width > WIDE:
        flags.append(f"wide interval (±{half_width:.1%})")
    if load.busy:
        flags.append(f"busy machine ({load})")
    return "; ".join(flags)


ALL = "all"
"""First word of the groups that stand for several matrices."""
_OPS = ("spmm", "sddmm", "sddmm-scaled", "spmm-scaled", "rgms", *NetworkOp)
MOST_GROUPS = 16
"""Matrices up to which each has a place of its own."""
MOST_POOLED = 22
"""Places up to which matrices and pooled layers are drawn side by side."""
_LAYER = re.compile(r"^(?P<source>[^/]+)/.*@(?P<sparsity>\d*\.?\d+)(?P<way>(?:_[a-z]+)*)(?: #\w+)?$")
_DLMC = re.compile(r"^(?:[^/]+/(?:rn50|tf)__[^_]+__|dlmc/[^/]+/[^/]+/)(?P<sparsity>\d*\.\d+)(?:__|/)")


def group_of(matrix: str) -> str:
    """Name the pool of a layer, ``source 90 %`` or ``dlmc 90 %``; any other matrix is a group of its own.

    Words for the way that a layer was pruned stand behind its source, so that layers of two ways are never pooled.
    """
    if layer := _LAYER.match(matrix):
        return f"{layer['source']}{layer['way'].replace('_', ' ')} {100 * float(layer['sparsity']):g} %"
    layer = _DLMC.match(matrix)
    return f"dlmc {100 * float(layer['sparsity']):g} %" if layer else matrix


def groups_of(frame: pd.DataFrame) -> tuple[pd.Series[str], list[str]]:
    """Give the group of every row, and the groups in the order drawn.

    Parameters
    ----------
    frame : DataFrame
        With ``matrix`` and ``nnz``.

    Returns
    -------
    groups : Series of str
        The matrix itself where there are at most `MOST_GROUPS`; else layers are pooled.
    order : list of str
        Matrices by size, then pools by source and sparsity.
    """
    matrices = by_size(frame)
    if len(matrices) <= MOST_GROUPS:
        return frame["matrix"].astype(str), matrices
    names = {matrix: group_of(matrix) for matrix in matrices}
    single = [matrix for matrix in matrices if names[matrix] == matrix]
    pools = sorted({name for name in names.values() if name not in names}, key=source_and_sparsity)
    return frame["matrix"].map(names), [*single, *pools]


def source_and_sparsity(pool: str) -> tuple[str, float]:
    """Give what the pools of `group_of` are ordered by."""
    source, sparsity, _ = pool.rsplit(" ", 2)
    return source, float(sparsity)


def panels_of(frame: pd.DataFrame) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """Split a frame by op and dtype, in the order of panels."""
    panels = [((str(op), str(dtype)), part) for (op, dtype), part in frame.groupby(["op", "dtype"])]
    return sorted(panels, key=lambda panel: (_OPS.index(panel[0][0]), -int(panel[0][1].removeprefix("float"))))


def beside_baseline(rivals: pd.DataFrame, baseline: str, column: str) -> pd.DataFrame:
    """Give the rows that have a ratio to the baseline, and the baseline's own, whose ratio is 1."""
    known = rivals[rivals[column].notna()]
    own = known.drop_duplicates(list(PROBLEM)).assign(label=baseline, **{column: 1.0})
    return pd.concat([known, own], ignore_index=True)


def by_size(frame: pd.DataFrame) -> list[str]:
    """Give the matrices from few to many non-zeros."""
    sizes = frame.groupby("matrix")["nnz"].max().fillna(inf)
    return sorted((str(matrix) for matrix in sizes.index), key=lambda matrix: (float(sizes[matrix]), matrix))


def in_panel_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Order the rows of a plot's data by op and dtype as its panels are; rows of one panel keep their order."""
    return pd.concat([part for _, part in panels_of(frame)], ignore_index=True) if len(frame) else frame
