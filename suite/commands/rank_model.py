"""``spmark label lo_spmm`` and ``spmark train lo_spmm``: kernels measured for the rank model, and the model itself."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.markup import escape

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep import MatrixSpec
from spmark.impls.core.names import path_component
from spmark.impls.core.problem import Op, Problem
from spmark.impls.core.recordfile import RecordFile, read_rows
from spmark.suite.commands.console import answer, console, say, table
from spmark.suite.commands.label import gpu_named, parsed_shard
from spmark.suite.commands.train import labels_in
from spmark.suite.reproduce import seconds

if TYPE_CHECKING:
    from spmark.impls.core.devicespec import DeviceSpec
    from spmark.impls.lo_spmm.search import Space
    from spmark.impls.lo_spmm.study import Compared
    from spmark.impls.tuning.race import Race

METHOD = "lo_spmm"
LAYERS: Sequence[tuple[str, int]] = (
    ("resnet50_64x576@0.9", 50_176),
    ("resnet50_256x64@0.8", 50_176),
    ("resnet50_128x256@0.9", 50_176),
    ("resnet50_512x128@0.9", 12_544),
    ("resnet50_256x512@0.9", 12_544),
    ("mobilenetv2_1280x320@0.95", 784),
    ("mobilenetv2_576x96@0.9", 3_136),
    ("shufflenetv2_1024x464@0.95", 784),
    ("bert_768x768@0.98", 512),
    ("resnet50_512x1024@0.98", 3_136),
)
"""Pruned layers, with J, on which proxies are compared with kernels: of every network and width, short enough for ten
kernels each."""


@dataclass(frozen=True)
class RankRequest:
    """What the command line asks for."""

    budget: str
    shard: str
    device: str
    out: Path
    as_json: bool
    proxies: bool = False
    """Compare proxies with the kernels that they stand for, and measure no labels."""


def measure_kernels(request: RankRequest) -> int:
    """Measure until everything has a row or the time is up; gives how many are left.

    Raises
    ------
    SweepError
        The budget or the shard is not what it must be.
    DeviceError
        The device is no GPU.
    RecordError
        The rows cannot be written.
    """
    from spmark.impls.lo_spmm.labels import GROUPS, label_all, prepare

    ends = time.monotonic() + seconds(request.budget)
    number, total = parsed_shard(request.shard)
    device = gpu_named(request.device)
    folder = request.out / path_component(device.name) / METHOD
    if request.proxies:
        return _compare_proxies(folder / "proxies.jsonl", LAYERS[number - 1 :: total], device, ends, request.as_json)
    file = folder / f"shard-{number:02d}-of-{total:02d}.jsonl"
    seeds = range(number - 1, GROUPS, total)
    made, left = label_all(file, seeds, partial(prepare, device=device), partial(_race, device=device), ends)
    if request.as_json:
        answer({"file": file, "made": made, "left": left})
    else:
        say(console(request.as_json), escape(f"{file}: {made} made, {left} left"))
    return left


def train_rank_model(labels: Sequence[str], name: str, out: Path, as_json: bool) -> None:
    """Train on measured kernels and write the model's file.

    Raises
    ------
    DatasetError
        Labels are missing, broken or too few.
    UnsupportedError
        LightGBM is not installed.
    BuildError
        The model cannot be written.
    """
    from spmark.impls.lo_spmm.labels import read_labels
    from spmark.impls.lo_spmm.rank import Card
    from spmark.impls.lo_spmm.training import train

    files = [path for one in labels for path in labels_in(Path(one)) if path.name != "proxies.jsonl"]
    rows = read_labels(files)
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    command = f"spmark train {METHOD} " + " ".join(f"--labels {Path(one).name}" for one in labels)
    card = Card(
        name=name, gpu=rows[0].device, labels_sha256=digest, groups=0, candidates=0, ranges={},
        made_with={"command": command},
    )  # fmt: skip
    model = train(rows, card).save(out)
    if as_json:
        answer({"file": out, "card": model.card.model_dump()})
        return
    told = model.card
    say(
        console(as_json),
        escape(f"{out}: {told.groups} problems, {told.candidates} candidates; held out: {told.held_out}"),
    )


def _race(space: Space, device: DeviceSpec, proxies: bool = False) -> Race[Any]:
    from spmark.impls.lo_spmm.gpu import open_race
    from spmark.impls.lo_spmm.machine import Emitter
    from spmark.impls.runtime.target import open_target

    return open_race(space, open_target(device), emitter=Emitter.PTX, proxies=proxies)


def _compare_proxies(
    file: Path, layers: Sequence[tuple[str, int]], device: DeviceSpec, ends: float, as_json: bool
) -> int:
    from spmark.impls.lo_spmm.reorder import Order
    from spmark.impls.lo_spmm.search import Pins, explore
    from spmark.impls.lo_spmm.study import Compared, compare, spread_out

    have = {row.layer: row for row in read_rows(file, Compared)} if file.is_file() else {}
    with RecordFile(file) as rows:
        for name, width in layers:
            key = f"{name} J{width}"
            if key in have:
                continue
            if time.monotonic() >= ends:
                break
            loaded = load_matrix(MatrixSpec(source="dnn_layers", name=name), Cache.default(), 0)
            space = explore(Problem(Op.SPMM, loaded.csr, width), device, Order.GREEDY, Pins())
            have[key] = compare(key, space, partial(_race, space, device), spread_out(space))
            rows.append(have[key])
    _show(file, list(have.values()), as_json)
    return sum(f"{name} J{width}" not in have for name, width in layers)


def _show(file: Path, rows: Sequence[Compared], as_json: bool) -> None:
    told = [
        {"layer": row.layer, "candidates": len(row.real_us), "tau": row.tau, "tau of the estimate": row.tau_of_estimate,
         "regret": row.regret}
        for row in rows
    ]  # fmt: skip
    taus = [row.tau for row in rows if not np.isnan(row.tau)]
    mean = float(np.mean(taus)) if taus else float("nan")
    if as_json:
        answer({"file": file, "kendall_tau": mean, "layers": told})
        return
    screen = console(as_json)
    screen.print(
        table(f"Proxies and the kernels they stand for: Kendall's tau {mean:.2f} on average", told, plain=True)
    )
    say(screen, escape(str(file)))
