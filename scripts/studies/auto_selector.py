"""Make what `auto` learns from, train it, and judge it: rows of times by candidate out of published records.

    python scripts/studies/auto_selector.py rows FOLDER # records, and candidates in FOLDER -> report/reference/auto
    python scripts/studies/auto_selector.py train       # rows of the tuning half -> impls/auto/models
    python scripts/studies/auto_selector.py validate    # shares by cross-validation on the tuning half, in Markdown
    python scripts/studies/auto_selector.py judge       # shares of the fastest on the judging half, in Markdown

``rows`` asks for the mirror (``SPMARK_MIRROR``), and for a folder in which the candidates of the published searches
stand as ``spmark fetch candidates`` writes them. The others read the rows alone. ``validate`` reads those of
the tuning half, and all decisions rest on it: ``judge`` is for the end. A row is of the judging half where its pattern
is that of a matrix of this half, under whatever name.

In records of before, ``sparsetir``, ``stile`` and ``liteform`` may have chosen the CSR kernel that is `direct` now.
Such a time counts as one of ``direct`` with its search, and ``sparsetir`` and ``stile`` get the least time that their
searches measured of their own formats. The least of hundreds of medians of few samples is mostly luck: times of a
search are scaled by the record's median over the search's least.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.origins import other_ids
from spmark.datasets.sweep.reading import packaged_lists, read_list
from spmark.impls.auto.model import DENSE, REFERENCE, Trees, ranked, read, samples_of
from spmark.impls.auto.portfolio import NAMES, PORTFOLIO, Features, by_rule
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import DType, Op
from spmark.impls.kernels.sddmm_runs import RUNS_SDDMM
from spmark.records.plausible import read_measurements
from spmark.report.candidates import load_candidates
from spmark.report.records import current, load_records, record_files

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "report/reference/h200"
ROWS = ROOT / "report/reference/auto/nvidia-h200.ndjson.gz"
MODEL = ROOT / "impls/auto/models/nvidia-h200.npz"
SCHEDULES = ROOT / "impls/liteform/schedules/nvidia-h200.ndjson.gz"
LABELS = ROOT / "impls/liteform/models/nvidia-h200.labels.jsonl.gz"
PROBLEM = ["pattern", "op", "dtype", "width"]
AS_RECORDED = ("direct", "rowsplit", "gespmm", "nnzbalanced", "dgsparse", "cusparse_best", "cublas", "liteform")
SEARCHED = ("sparsetir", "stile")
_MOST = 50_000_000
"""Non-zeros of a matrix that is still loaded for its features."""
CELL_OVER_BEST = 1.05
"""Where no time of LiteForm's CELL is on record, it counts as so many times that of hyb with its search, which is the
same kernel. Over those of `sparsetir`, 42 times on record in the tuning half have 1.04 in the median."""
BUILT_AS = {"direct": "rowsplit", "sparsetir untuned": "rowsplit"}
"""Candidates whose building nobody has recorded on the tuning half, and who also converts and searches nothing."""
_SEED, _FOLDS, _REPEATS = 0, 5, 3
_SMS = 132
"""Multiprocessors of the GPU of the rows."""
_SETTINGS: dict[str, Any] = {"n_estimators": 600, "num_leaves": 15, "min_child_samples": 4, "colsample_bytree": 0.7}
"""Of LightGBM: of these and the next, the best on the tuning half in both products (`validated`)."""
_OTHER_SETTINGS: tuple[dict[str, Any], ...] = (
    {"n_estimators": 300},
    {"n_estimators": 1200},
    {"num_leaves": 7},
    {"num_leaves": 31},
    {"min_child_samples": 2},
    {"min_child_samples": 8},
    {"min_child_samples": 20},
    {"colsample_bytree": 1.0},
)


def judging_names() -> dict[str, set[str]]:
    """Give the ids of the judging half by kind, graphs and layers."""
    lists = {kind: read_list(packaged_lists()[f"judging_{kind}"]) for kind in ("graphs", "layers")}
    return {kind: {id for one in found for id in (one.id, *other_ids(one))} for kind, found in lists.items()}


def collected(folder: Path) -> Iterator[dict[str, Any]]:
    """Give a row for each problem of the records, and of the schedules that LiteForm ships."""
    frame = current(load_records(RECORDS))
    frame = frame[(frame["status"] == "ok") & frame["op"].isin(list(Op))]
    frame = frame.assign(us=[float(np.median(one)) for one in frame["samples_us"]])
    frame = frame.assign(build_s=[sum(one.values()) - one.get("upload", 0.0) for one in frame["phases_s"]])
    times = pd.concat(_times(frame, load_candidates([folder], frame[frame["label"].isin(SEARCHED)])))
    judged = {kind: set(frame[frame["matrix"].isin(ids)]["pattern"]) for kind, ids in judging_names().items()}
    features = _features(frame)
    for key, group in times.groupby(PROBLEM):
        pattern, op, dtype, width = cast("tuple[str, str, str, int]", key)
        if pattern in features:
            kind = next((kind for kind, patterns in judged.items() if pattern in patterns), "tuning")
            least = group.groupby("name")[["us", "build_s"]].min()
            yield _row(pattern, kind, op, dtype, width, features[pattern], least["us"], least["build_s"].dropna())
    yield from _schedules(judged, frame)


def _times(frame: pd.DataFrame, seen: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Give times by problem and candidate, as columns ``name``, ``us`` and ``build_s``."""
    formats = frame.assign(form=[one.get("format", "own") for one in frame["config"]])
    for label in AS_RECORDED:
        yield formats[formats["label"] == label].assign(name=label)
    cells = formats["label"].isin(["liteform", "liteform_cell"]) & (formats["form"] == "cell")
    yield formats[cells].assign(name="liteform cell")
    for label in SEARCHED:
        own = formats[formats["label"] == label]
        yield own[own["form"] != "direct"].assign(name=label)
        yield own[own["form"] == "direct"].assign(name="direct searched", build_s=np.nan)
        keys = ["case_id", "implementation_version", "environment"]
        tried = seen[seen["seen_us"].notna()].merge(own[[*keys, *PROBLEM, "nnz", "us", "build_s"]], on=keys)
        cases = tried.groupby(keys)["seen_us"]
        tried = tried.assign(us=tried["seen_us"] * tried["us"] / cases.transform("min"))
        direct = pd.Series([one.get("format") == "direct" for one in tried["candidate"]], tried.index, dtype=bool)
        share = direct.groupby([tried[key] for key in keys]).transform("mean")
        yield tried[~direct].assign(name=label, build_s=tried["build_s"] * (1 - share))
        yield tried[direct].assign(name="direct searched", build_s=tried["build_s"] * share)
        runs = tried[(tried["op"] == Op.SDDMM) & np.array(["run" in one for one in tried["candidate"]], bool)]
        untuned = list(map(_is_untuned, runs["candidate"], runs["width"], runs["dtype"], runs["nnz"]))
        yield runs[untuned].assign(name="sparsetir untuned", build_s=np.nan)


def _is_untuned(config: Mapping[str, Any], width: int, dtype: str, nnz: int) -> bool:
    """Tell whether a config is the one that is built without a search."""
    default = RUNS_SDDMM.default
    assert default is not None
    wanted = default(_Sized(int(width), DType(dtype), int(nnz)), {})  # type: ignore[arg-type]
    return all(config.get(name) == value for name, value in wanted.items())


class _Sized:
    """As much of a problem as a default looks at."""

    def __init__(self, width: int, dtype: DType, nnz: int) -> None:
        self.width, self.dtype, self.matrix = width, dtype, self
        self.nnz = nnz


def _features(frame: pd.DataFrame) -> dict[str, Features]:
    """Load each matrix of the records and look at it."""
    wanted, found, cache = set(frame["pattern"]), dict[str, Features](), Cache.default()
    for file in record_files(RECORDS):
        for row in read_measurements(file):
            small = row.problem is not None and row.problem.nnz <= _MOST
            if small and row.matrix_hash in wanted and row.matrix_hash not in found:
                found[row.matrix_hash] = Features.of(load_matrix(row.spec.matrix, cache, row.spec.seed).csr)
    return found


def _schedules(judged: Mapping[str, set[str]], frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Give rows of the times that LiteForm's table and forests are fitted to: tuning half and seeded matrices."""
    labels = [json.loads(line) for line in gzip.open(LABELS)]
    rule = {
        (one["matrix"], one["dtype"], int(width)): float(np.median(us))
        for one in labels
        for width, us in one["fixed_us"]["direct"].items()
    }
    barred = set().union(*judged.values())
    barred_ids = {*frame[frame["pattern"].isin(barred)]["matrix"]} | set().union(*judging_names().values())
    barred_ids |= {one["matrix"] for one in labels if one["matrix_hash"] in barred}
    for line in gzip.open(SCHEDULES):
        one = json.loads(line)
        if one["matrix"] in barred_ids or not one["direct"]:
            continue
        told, key = one["features"], (one["matrix"], one["dtype"], one["width"])
        least = min(timed["time_us"] for timed in one["timed"])
        us = {"direct searched": min(timed["time_us"] for timed in one["direct"]), "sparsetir": least}
        us |= {"liteform cell": least * CELL_OVER_BEST} | ({"direct": rule[key]} if key in rule else {})
        num_rows, num_cols, nnz, longest = (int(told[n]) for n in ("num_rows", "num_cols", "nnz", "max_length"))
        features = Features(num_rows, num_cols, nnz, longest, told["std_length"])
        yield _row(one["matrix"], "tuning", Op.SPMM, one["dtype"], one["width"], features, us, {})


def _row(  # noqa: PLR0917
    pattern: str, kind: str, op: str, dtype: str, width: int, features: Features, us: Any, build_s: Any
) -> dict[str, Any]:
    told = {name: float(f"{value:.6g}") for name, value in vars(features).items()}
    row = {"pattern": pattern, "half": kind, "op": str(op), "dtype": str(dtype), "width": int(width), "features": told}
    digits = {
        name: {key: float(f"{value:.4g}") for key, value in dict(of).items()}
        for name, of in (("us", us), ("build_s", build_s))
    }
    return row | digits


def rows() -> list[dict[str, Any]]:
    """Read the rows, each with its `Features`."""
    found = [json.loads(line) for line in gzip.open(ROWS)]
    for row in found:
        told = row["features"]
        row["features"] = Features(
            **{name: int(told[name]) for name in told if name != "deviation"} | {"deviation": told["deviation"]}
        )
    return found


def trained(op: Op, given: list[dict[str, Any]], without: str = "", **settings: Any) -> Trees:
    """Fit the trees of one operator to rows, blind to one of the features if so wanted."""
    import lightgbm

    names = list(PORTFOLIO[op])
    samples, targets, weights = [], [], []
    matrices = pd.Series([(row["pattern"], name) for row in given for name in row["us"]]).value_counts()
    for row in given:
        width, dtype = row["width"], DType(row["dtype"])
        every = samples_of(row["features"].vector(width, dtype)[None], len(names))
        for place, name in enumerate(names):
            unit = row["features"].unit_us(width, dtype, name == DENSE)
            if name not in (DENSE, REFERENCE):
                unit = row["us"].get(REFERENCE, np.nan)
            if name in row["us"] and np.isfinite(unit):
                samples.append(every[place])
                targets.append(np.log2(row["us"][name] / unit))
                weights.append(matrices[row["pattern"], name] ** -0.5)
    model = lightgbm.LGBMRegressor(
        **_SETTINGS | settings, learning_rate=0.03, subsample=0.7, subsample_freq=1, random_state=_SEED,
        deterministic=True, n_jobs=1, verbose=-1,
    )  # fmt: skip
    seen = np.array(samples)
    if without:
        seen[:, NAMES.index(without)] = 0
    model.fit(seen, np.array(targets), sample_weight=np.array(weights))
    nodes: list[tuple[int, float, int, int, float]] = []
    roots = [_flat(tree["tree_structure"], nodes) for tree in model.booster_.dump_model()["tree_info"]]
    feature, threshold, left, right, value = map(np.array, zip(*nodes, strict=True))
    return Trees(
        np.array(roots, np.int32), feature.astype(np.int16), threshold, left.astype(np.int32), right.astype(np.int32),
        value, _build_s(names, given),
    )  # fmt: skip


def _flat(node: Mapping[str, Any], nodes: list[tuple[int, float, int, int, float]]) -> int:
    """Append a tree, parents before children; give the place of its root."""
    place = len(nodes)
    if "leaf_value" in node:
        nodes.append((-1, 0.0, 0, 0, node["leaf_value"]))
        return place
    nodes.append((-1, 0.0, 0, 0, 0.0))
    left, right = (_flat(node[f"{side}_child"], nodes) for side in ("left", "right"))
    nodes[place] = (node["split_feature"], node["threshold"], left, right, 0.0)
    return place


def _build_s(names: list[str], given: list[dict[str, Any]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Fit seconds of building: the median below a million non-zeros, and what a million more adds beyond."""
    fitted = []
    for name in (BUILT_AS.get(name, name) for name in names):
        known = [(row["features"].nnz / 1e6, row["build_s"][name]) for row in given if name in row["build_s"]]
        small = [seconds for millions, seconds in known if millions < 1]
        constant = float(np.median(small)) if small else 0.0
        large = [(seconds - constant) / millions for millions, seconds in known if millions >= 1]
        fitted.append((constant, max(0.0, float(np.median(large))) if large else 0.0))
    return np.array(fitted)


def judged() -> Iterator[str]:
    """Give the lines of a table: shares of the fastest by operator and dtype."""
    yield "| half | product | number type | problems | rule | learned, first | learned, best of three |"
    yield "|---|---|---|---|---|---|---|"
    widths = {"graphs": (32, 128, 512), "layers": (128, 512)}
    told = []
    for row in rows():
        kind, op, dtype = row["half"], row["op"], row["dtype"]
        in_sweep = kind == "graphs" or (kind == "layers" and (op, dtype) == (Op.SPMM, DType.FLOAT32))
        if in_sweep and row["width"] in widths[kind] and {"sparsetir", "stile"} <= row["us"].keys():
            told.append({"half": kind, "op": op, "dtype": dtype, **shares(row, read()[Op(op)])})
    for (kind, op, dtype), group in pd.DataFrame(told).groupby(["half", "op", "dtype"]):
        means = " | ".join(f"{_mean(group[column]):.3f}" for column in ("rule", "first", "best of three"))
        yield f"| {kind} | {op} | {dtype} | {len(group)} | {means} |"


def _mean(of: pd.Series[float] | np.ndarray[Any, Any]) -> float:
    return float(np.exp(np.log(of).mean()))


def shares(row: Mapping[str, Any], trees: Trees, late: frozenset[str] = frozenset()) -> dict[str, float]:
    """Give the least recorded time of a problem over the time of each way of choosing, ``late`` ones never first."""
    op, us = Op(row["op"]), dict(row["us"])
    if op is Op.SPMM and REFERENCE in us:
        us.setdefault("liteform cell", us[REFERENCE] * CELL_OVER_BEST)
    names = {str(choice): name for name, choice in PORTFOLIO[op].items()}
    named = [
        names[str(one.choice)] for one in ranked(trees, row["features"], op, row["width"], DType(row["dtype"]), runs=0)
    ]
    named = [name for name in named if name in us]
    first = next(name for name in named if name not in late)
    rule = next(n for c in by_rule(op, row["features"], DeviceKind.CUDA) if (n := names.get(str(c), c.name)) in us)
    least = min(us.values())
    return {
        "rule": least / us[rule],
        "first": least / us[first],
        "best of three": least / min(us[name] for name in [first, *(name for name in named if name != first)][:3]),
    }


def validated() -> Iterator[str]:
    """Give the lines of a table: shares by cross-validation over the matrices of the tuning half."""
    yield "| product | trees | limit of evidence | learned, first | of it where STile was timed | best of three |"
    yield "|---|---|---|---|---|---|"
    given = [row for row in rows() if row["half"] == "tuning"]
    for op in Op:
        of = [row for row in given if row["op"] == op]
        yield from _validated(op, of, (0, 0.25, 0.5))
        for name in NAMES:
            yield from _validated(op, of, (0,), without=name)
        for settings in _OTHER_SETTINGS:
            yield from _validated(op, of, (0,), **settings)
    yield from _rules(given)


def _rules(given: list[dict[str, Any]]) -> Iterator[str]:
    """Give the lines of a table: shares of the faster of `direct` and CELL that rules have on the tuning half."""
    yield from ("", "| SpMM takes CELL where the longest row has more than | share of the faster |", "|---|---|")
    both = [row for row in given if row["op"] == Op.SPMM and {"direct", "liteform cell"} <= row["us"].keys()]
    us = np.array([[row["us"][name] for name in ("direct", "liteform cell")] for row in both])
    longest, mean, nnz = (np.array([getattr(row["features"], n) for row in both]) for n in ("longest", "mean", "nnz"))
    over_mean, over_sm = longest / np.maximum(1, mean), longest / (nnz / _SMS)
    cells = {f"{times} mean rows": over_mean > times for times in (4, 8, 12, 16, 20, 24, 32)}
    cells |= {f"{times} of what an SM gets": over_sm > times for times in (0.125, 0.25, 0.5, 1, 2)}
    for times in (0.125, 0.25, 0.5, 1, 2):
        cells[f"16 mean rows, and {times} of what an SM gets"] = (over_mean > 16) & (over_sm > times)
        cells[f"16 mean rows, or {times} of what an SM gets"] = (over_mean > 16) | (over_sm > times)
    for limit in (32, 64, 128):
        cells[f"16 mean rows, or a mean row more than {limit}"] = (over_mean > 16) | (mean > limit)
    cells |= {"anything (always CELL)": mean >= 0, "everything (never CELL)": mean < 0}
    shares_of = {rule: us.min(1) / np.where(cell, us[:, 1], us[:, 0]) for rule, cell in cells.items()}
    for rule, one in shares_of.items():
        yield f"| {rule} | {_mean(one):.4f} |"
    held_out = []
    for seed in range(_REPEATS):
        fold = np.array([_folds(both, seed)[_matrix(row)] for row in both])
        for number in range(_FOLDS):
            best = max(shares_of.values(), key=lambda one: _mean(one[fold != number]))
            held_out.append(best[fold == number])
    yield f"| the best of these on four fifths of the matrices, on the fifth | {_mean(np.concatenate(held_out)):.4f} |"


def _validated(op: Op, given: list[dict[str, Any]], limits: tuple[float, ...], **how: Any) -> Iterator[str]:
    """Train on four fifths of the matrices and choose on the fifth, as often as every matrix has served three times."""
    told = []
    for seed in range(_REPEATS):
        fold = _folds(given, seed)
        for held_out in range(_FOLDS):
            training = [row for row in given if fold[_matrix(row)] != held_out]
            trees, evidence = trained(op, training, **how), _evidence(op, training)
            for row in (row for row in given if fold[_matrix(row)] == held_out):
                if len(row["us"].keys() & PORTFOLIO[op].keys()) > 1 and REFERENCE in row["us"]:
                    for limit in limits:
                        late = frozenset(name for name, part in evidence.items() if part < limit)
                        told.append({"limit": limit, "stile": "stile" in row["us"], **shares(row, trees, late)})
    what = ", ".join(f"{name} {value}" for name, value in how.items()) or "as they are"
    for least, group in pd.DataFrame(told).groupby("limit"):
        means = (_mean(one) for one in (group["first"], group[group["stile"]]["first"], group["best of three"]))
        yield f"| {op} | {what} | {least} | " + " | ".join(f"{mean:.4f}" for mean in means) + " |"


def _evidence(op: Op, given: list[dict[str, Any]]) -> dict[str, float]:
    """Give the share of the reference's matrices on which each candidate was timed, too."""
    beside = {name: {_matrix(row) for row in given if {name, REFERENCE} <= row["us"].keys()} for name in PORTFOLIO[op]}
    return {name: len(one) / len(beside[REFERENCE]) for name, one in beside.items()}


def _folds(given: list[dict[str, Any]], seed: int) -> dict[tuple[int, ...], int]:
    """Give each matrix a fold."""
    matrices = sorted({_matrix(row) for row in given})
    return dict(zip(matrices, np.random.default_rng(seed).permutation(len(matrices)) % _FOLDS, strict=True))


def _matrix(row: Mapping[str, Any]) -> tuple[int, ...]:
    """Tell matrices apart by sizes: rows of LiteForm's tables have names, not patterns."""
    features = row["features"]
    return features.num_rows, features.num_cols, features.nnz, features.longest


def main(words: list[str]) -> None:
    """Do what the command says."""
    if words[:1] == ["rows"] and len(words) == 2:
        ROWS.parent.mkdir(exist_ok=True)
        lines = "".join(json.dumps(row) + "\n" for row in collected(Path(words[1])))
        ROWS.write_bytes(gzip.compress(lines.encode(), mtime=0))
    elif words == ["train"]:
        given = [row for row in rows() if row["half"] == "tuning"]
        arrays: dict[str, Any] = {}
        for op in Op:
            trees = trained(op, [row for row in given if row["op"] == op])
            arrays |= {f"{op}.{name}": array for name, array in vars(trees).items()}
        np.savez_compressed(MODEL, **arrays)
    elif words == ["validate"]:
        for line in validated():
            sys.stdout.write(f"{line}\n")
    elif words == ["judge"]:
        sys.stdout.write("".join(f"{line}\n" for line in judged()))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
