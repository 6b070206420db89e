"""Train what `auto` learns from, and judge it: rows of times by candidate, which `auto_measure.py` measures.

    python scripts/studies/auto_selector.py train      # rows of the tuning half -> impls/auto/models
    python scripts/studies/auto_selector.py validate   # shares by cross-validation on the tuning half, in Markdown
    python scripts/studies/auto_selector.py judge      # shares of the fastest on the judging half, in Markdown

All read rows in ``report/reference/auto`` alone and need no GPU. ``validate`` reads those of the tuning half, and all
decisions rest on it: ``judge`` is for the end, and also judges on rows of a GPU that no tree has seen.
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

from spmark.impls.auto.model import DENSE, MODEL, REFERENCE, TRAINED_ON, Trees, ranked, read, samples_of, worth_a_race
from spmark.impls.auto.portfolio import NAMES, PORTFOLIO, Features, by_rule
from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.problem import DType, Op

FOLDER = Path(__file__).parents[2] / "report/reference/auto"
OTHERS = ("nvidia-h200",)
"""Other GPUs with rows."""
_SEED, _FOLDS, _REPEATS = 0, 5, 3
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


def rows(device: str = TRAINED_ON) -> list[dict[str, Any]]:
    """Read the rows of a GPU, each with its `Features`."""
    found = [json.loads(line) for line in gzip.open(FOLDER / f"{device}.ndjson.gz")]
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
    for name in names:
        known = [(row["features"].nnz / 1e6, row["build_s"][name]) for row in given if name in row["build_s"]]
        small = [seconds for millions, seconds in known if millions < 1]
        constant = float(np.median(small)) if small else 0.0
        large = [(seconds - constant) / millions for millions, seconds in known if millions >= 1]
        fitted.append((constant, max(0.0, float(np.median(large))) if large else 0.0))
    return np.array(fitted)


def judged() -> Iterator[str]:
    """Give the lines of a table: shares of the fastest by GPU, half, operator and dtype."""
    yield "| GPU | half | product | number type | problems | rule | learned, first | learned, raced |"
    yield "|---|---|---|---|---|---|---|---|"
    for device in (TRAINED_ON, *OTHERS):
        of = [row for row in rows(device) if row["half"] != "tuning"]
        told = [{**row, **shares(row, read()[Op(row["op"])], device)} for row in of]
        for keys, group in pd.DataFrame(told).groupby(["half", "op", "dtype"]):
            means = " | ".join(f"{_mean(group[column]):.3f}" for column in ("rule", "first", "raced"))
            yield f"| {device} | {' | '.join(cast('tuple[str, ...]', keys))} | {len(group)} | {means} |"


def _mean(of: pd.Series[float] | np.ndarray[Any, Any]) -> float:
    return float(np.exp(np.log(of).mean()))


def shares(row: Mapping[str, Any], trees: Trees, device: str = TRAINED_ON) -> dict[str, float]:
    """Give the least time of a problem over the time of each way of choosing; a race may have the rule's, too."""
    op, us, features = Op(row["op"]), row["us"], row["features"]
    width, dtype, least = row["width"], DType(row["dtype"]), min(row["us"].values())
    names = {str(choice): name for name, choice in PORTFOLIO[op].items()}
    expected = ranked(trees, features, op, width, dtype, runs=0)
    named, raced = (
        [name for one in some if (name := names[str(one.choice)]) in us]
        for some in (expected, worth_a_race(expected, dtype))
    )
    ruled = by_rule(op, features, width, dtype, DeviceKind.CUDA)
    rule = next(n for c in ruled if (n := names.get(str(c), c.name)) in us)
    raced += [rule] if device != TRAINED_ON else []
    return {
        "rule": least / us[rule],
        "first": least / us[named[0]],
        "raced": least / min(us[name] for name in raced),
    }


def validated() -> Iterator[str]:
    """Give the lines of a table: shares by cross-validation over the matrices of the tuning half."""
    yield "| product | trees | learned, first | raced |"
    yield "|---|---|---|---|"
    given = [row for row in rows() if row["half"] == "tuning"]
    for op in Op:
        of = [row for row in given if row["op"] == op]
        yield _validated(op, of)
        yield from (_validated(op, of, without=name) for name in NAMES)
        yield from (_validated(op, of, **settings) for settings in _OTHER_SETTINGS)
    told = [{**row, **shares(row, read()[Op(row["op"])])} for row in given]
    yield from ("", "| product | number type | rule on the tuning half |", "|---|---|---|")
    for keys, group in pd.DataFrame(told).groupby(["op", "dtype"]):
        yield f"| {' | '.join(cast('tuple[str, ...]', keys))} | {_mean(group['rule']):.4f} |"


def _validated(op: Op, given: list[dict[str, Any]], **how: Any) -> str:
    """Train on four fifths of the matrices and choose on the fifth, as often as every matrix has served three times."""
    told = []
    for seed in range(_REPEATS):
        matrices = sorted({row["pattern"] for row in given})
        folds = np.random.default_rng(seed).permutation(len(matrices)) % _FOLDS
        fold = dict(zip(matrices, folds, strict=True))
        for held_out in range(_FOLDS):
            trees = trained(op, [row for row in given if fold[row["pattern"]] != held_out], **how)
            told += [shares(row, trees) for row in given if fold[row["pattern"]] == held_out]
    means = pd.DataFrame(told).apply(_mean)
    what = ", ".join(f"{name} {value}" for name, value in how.items()) or "as they are"
    return f"| {op} | {what} | {means['first']:.4f} | {means['raced']:.4f} |"


def main(words: list[str]) -> None:
    """Do what the command says."""
    if words == ["train"]:
        given = [row for row in rows() if row["half"] == "tuning"]
        arrays: dict[str, Any] = {}
        for op in Op:
            trees = trained(op, [row for row in given if row["op"] == op])
            arrays |= {f"{op}.{name}": array for name, array in vars(trees).items()}
        np.savez_compressed(MODEL, **arrays)
    elif words in (["validate"], ["judge"]):
        sys.stdout.write("".join(f"{line}\n" for line in (validated() if words == ["validate"] else judged())))
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
