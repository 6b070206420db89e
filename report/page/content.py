"""What a report says, before it is Markdown or HTML: facts, notices, figures and tables, device by device."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cache, partial

import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.impls.core.errors import RecordError
from spmark.impls.core.names import path_component
from spmark.impls.core.record import Environment, Flush, Status
from spmark.report.claims.published import PAPERS
from spmark.report.claims.scorecard import scorecard_tables
from spmark.report.derive.cases import baseline_names, choose_baseline, derive
from spmark.report.derive.transfers import Moved
from spmark.report.figures.all import start_drawing
from spmark.report.figures.costmodel import cost_model_table
from spmark.report.figures.plot import Drawing
from spmark.report.figures.predictions import agreement_table
from spmark.report.figures.roof import roof_table
from spmark.report.figures.variants import variant_table
from spmark.report.load.candidates import COLUMNS, measured
from spmark.report.load.records import current
from spmark.report.tables import results as tables
from spmark.report.tables.choices import choice_table
from spmark.report.tables.extrapolated import extrapolated_table
from spmark.report.tables.peers import best_other_table
from spmark.report.tables.table import Chapter, Table

_log = logging.getLogger(__name__)
Facts = list[tuple[str, str]]
NO_RECORDS = "There are no records here: nothing was measured yet, so there is nothing to show."
_MEASURED = {
    DeviceKind.CUDA: (
        "Each sample is one launch between CUDA events from a cold L2: its persisting part is reset and a buffer of at "
        "least twice its size is written before. Every result was checked against a float64 reference before it was "
        "timed, the baseline was measured in turn with the case, and all samples are kept."
    ),
    DeviceKind.CPU: (
        "Each sample is one run from a cold last-level cache. Every result was checked against a float64 reference "
        "before it was timed, the baseline was measured in turn with the case, and all samples are kept."
    ),
    DeviceKind.HOST_SIMT: (
        "The kernels ran on the host's cores under sanitizers. This shows that results and memory accesses are right; "
        "it gives no times."
    ),
}
_FLUSHED = {Flush.WRITE: "", Flush.READ: "after the buffer was written, another as large as the cache is read"}


@dataclass(frozen=True)
class Section:
    """The report of one device."""

    device: str
    measured: str
    """How the times were taken."""
    facts: Facts
    notices: list[str]
    """What a reader must know before believing a number."""
    blocks: list[Drawing | Table]
    """In reading order; their names are file stems and start with the device."""


@dataclass(frozen=True)
class PaperPage:
    """A paper whose sweeps a report is narrowed to."""

    name: str
    sweeps: frozenset[str] = field(default=frozenset())
    """Names of its sweeps, as records' folders have them."""


@dataclass(frozen=True)
class Report:
    """A whole report; one without records has notices and no sections."""

    title: str
    notices: list[str]
    sections: list[Section]


def compose(
    frame: pd.DataFrame,
    baseline: str | None = None,
    title: str | None = None,
    paper: PaperPage | None = None,
    seen: Callable[[], pd.DataFrame] | None = None,
    *,
    moved: Moved | None = None,
    pool: Executor | None = None,
) -> Report:
    """Build the report of loaded records.

    Parameters
    ----------
    frame : DataFrame
        As `spmark.report.load.records.load_records` gives it.
    baseline : str, optional
        What speed-ups are over: an implementation or a label. A device without this baseline takes the one that its
        records name most, as by default.
    title : str, optional
        The sweeps' names by default, or the paper's.
    paper : PaperPage, optional
        Only the records of this paper's sweeps are reported; all records, with a notice, where none is of these sweeps.
    seen : callable, optional
        Gives what searches saw, as `spmark.report.load.candidates.load_candidates` does. It is called late, so that
        another process can read meanwhile.
    moved : Moved, optional
        Studies of moved models, which answer claims beside the records.
    pool : Executor, optional
        Draws the figures; this process does by default.

    Raises
    ------
    RecordError
        No device has the baseline that was asked for; lists what there is.
    """
    notices: list[str] = []
    if paper is not None:
        title = title or f"spmark: {paper.name}"
        frame, notices = _of_paper(frame, paper)
    sweeps = ", ".join(sorted(frame["sweep"].unique()))
    heading = title or (f"spmark: {sweeps}" if sweeps else "spmark")
    if frame.empty:
        return Report(heading, [*notices, NO_RECORDS], [])
    kept = current(frame)
    if baseline and all(choose_baseline(part, baseline) != baseline for _, part in kept.groupby("device")):
        raise RecordError(
            f"expected a baseline out of {', '.join(baseline_names(kept))}, found {baseline!r} in none of the records"
        )
    papers = (paper.name,) if paper and paper.name in PAPERS else PAPERS
    older = frame.groupby("device").size() - kept.groupby("device").size()
    candidates = cache(seen or partial(pd.DataFrame, columns=list(COLUMNS)))
    sections = [
        _section(
            str(device), part.reset_index(drop=True), baseline, int(older[device]), papers, candidates, moved, pool
        )
        for device, part in kept.groupby("device", sort=False)
    ]
    return Report(heading, notices, sections)


def _of_paper(frame: pd.DataFrame, paper: PaperPage) -> tuple[pd.DataFrame, list[str]]:
    of_paper = frame[frame["sweep"].isin(paper.sweeps)]
    if len(of_paper):
        left_out = sorted(set(frame["sweep"]) - paper.sweeps)
        return of_paper, [f"Left out, not being sweeps of {paper.name}: {', '.join(left_out)}."] if left_out else []
    known = ", ".join(sorted(paper.sweeps)) or "none is packaged"
    return frame, [f"No record here is of a sweep of {paper.name} ({known}): all records are shown."]


def _section(  # noqa: PLR0917
    device: str,
    frame: pd.DataFrame,
    wanted: str | None,
    older: int,
    papers: Sequence[str],
    candidates: Callable[[], pd.DataFrame],
    moved: Moved | None,
    pool: Executor | None,
) -> Section:
    _log.info("%s: deriving speed-ups", device)
    baseline = choose_baseline(frame, wanted)
    derived = derive(frame, baseline)
    kind = DeviceKind(frame["device_kind"].iloc[0])
    _log.info("%s: making tables", device)
    blocks: list[Drawing | Table] = []
    if baseline:
        blocks += [*tables.mean_tables(derived, baseline), tables.break_even_table(derived, baseline)]
        blocks.append(best_other_table(derived))
    blocks += [variant_table(derived), cost_model_table(derived), extrapolated_table(derived)]
    # Late, since another process may still be reading.
    _log.info("%s: reading what searches saw", device)
    seen = measured(derived, candidates())
    figures = start_drawing(derived, baseline, seen, pool)
    blocks += [agreement_table(seen), choice_table(seen)]
    if kind is DeviceKind.HOST_SIMT:
        blocks.append(tables.checked_table(derived))
    blocks += [
        tables.failure_groups(derived),
        tables.failure_table(derived),
        tables.case_table(derived),
        roof_table(derived),
    ]
    blocks += [tables.build_table(derived, baseline), tables.flag_table(derived), tables.matrix_facts(derived)]
    _log.info("%s: answering the papers' claims", device)
    blocks += [replace(table, chapter=Chapter.SCORECARD) for table in scorecard_tables(frame, papers, moved)]
    _log.info("%s: drawing figures", device)
    prefix = path_component(device)
    named = [replace(block, name=f"{prefix}-{block.name}") for block in (*figures, *blocks) if _says_something(block)]
    notices = _notices(derived, baseline, wanted, older)
    return Section(device, _MEASURED[kind], _facts(derived, kind, baseline), notices, named)


def _says_something(block: Drawing | Table) -> bool:
    return isinstance(block, Drawing) or not block.frame.empty


def _notices(derived: pd.DataFrame, baseline: str | None, wanted: str | None, older: int) -> list[str]:
    failed = Counter(derived.loc[derived["status"] != Status.OK.value, "status"])
    notices = []
    if failed.total() == len(derived):
        notices.append("No case has a result: all of them failed, for the reasons below.")
    elif failed:
        counts = ", ".join(f"{count} {status}" for status, count in sorted(failed.items()))
        notices.append(
            f"{failed.total()} of {len(derived)} cases have no result ({counts}); each is listed among the failures."
        )
    if wanted and baseline != wanted:
        notices.append(f"No record here is of the baseline {wanted}: speed-ups are over {baseline or 'nothing'}.")
    if baseline is None:
        notices.append("No record names a baseline: there are no speed-ups. Choose one to compare with.")
    lent = int((derived["speedup_from"] == "record").sum())
    if lent:
        notices.append(
            f"{lent} speed-ups over {baseline} use the baseline's own record, not samples taken in turn with the case: "
            "they carry the drift between two moments."
        )
    flagged = int((derived["flags"] != "").sum())
    if flagged:
        notices.append(
            f"{flagged} cases ran on a throttled device or a busy machine, or have a wide interval; they are listed "
            "among the cases."
        )
    versions = derived.groupby("implementation")["implementation_version"].nunique()
    mixed = sorted(str(name) for name in versions[versions > 1].index)
    if mixed:
        notices.append(f"Cases of more than one version stand beside each other for {', '.join(mixed)}.")
    if older:
        notices.append(
            f"{older} rows of older versions of the code or the protocol, or of another flush, are left out."
        )
    return notices


def _facts(derived: pd.DataFrame, kind: DeviceKind, baseline: str | None) -> Facts:
    pairs = zip(derived["environment"], derived["facts"], strict=True)
    environments = list({digest: facts for digest, facts in pairs if facts is not None}.values())
    return [
        (name, text)
        for name, text in (
            ("Device", f"{derived['device'].iloc[0]} ({kind.value})"),
            *_environment_facts(environments),
            ("Sweeps", _joined(derived["sweep"])),
            ("Cases", f"{len(derived):,}, of which {int((derived['status'] == Status.OK.value).sum()):,} ok"),
            ("Baseline", baseline or "none"),
            ("Protocol", _joined(derived["protocol_version"])),
            (
                "Measured",
                f"{derived['started_at'].min():%Y-%m-%d %H:%M} to {derived['started_at'].max():%Y-%m-%d %H:%M} UTC",
            ),
            ("Flush", _joined(_FLUSHED[Flush(flush)] for flush in derived["flush"])),
            ("Seed", _joined(derived["seed"])),
            ("Other work", _other_work(derived)),
        )
        if text
    ]


def _other_work(derived: pd.DataFrame) -> str:
    """Say what other processes took of the host while cases were measured; empty where no record tells."""
    known = derived[derived["free_cores"].notna()]
    if known.empty:
        return ""
    return f"at most {known['taken_cores'].max():.1f} of the host's cores, in {len(known)} cases that tell"


def _environment_facts(environments: list[Environment]) -> Facts:
    if not environments:
        return [("Environment", "not recorded")]
    devices = [environment.device for environment in environments]
    return [
        ("Driver", _joined(e.driver for e in environments)),
        ("CUDA", _joined(e.cuda for e in environments)),
        (
            "Architecture",
            _joined(f"{d.arch}, {d.num_sms} {'SMs' if d.compute_capability else 'cores'}" for d in devices),
        ),
        (
            "Memory",
            _joined(f"{d.memory_bytes / 1e9:,.0f} GB, last-level cache {d.l2_bytes / 1e6:,.0f} MB" for d in devices),
        ),
        ("Copy bandwidth", _joined(f"{d.copy_bytes_per_s / 1e9:,.0f} GB/s" for d in devices if d.copy_bytes_per_s)),
        ("float32 rate", _joined(f"{d.fma_flops_per_s / 1e9:,.0f} GFLOP/s" for d in devices if d.fma_flops_per_s)),
        (
            "Matrix-unit rates",
            _joined(f"{t} {r / 1e9:,.0f} GFLOP/s" for d in devices for t, r in d.tensor_flops_per_s.items()),
        ),
        (
            "Host",
            _joined(f"{e.cpu}, {e.cores} cores, {e.memory_bytes / 1e9:,.0f} GB, {e.system}" for e in environments),
        ),
        ("Packages", _joined(f"{name} {version}" for e in environments for name, version in e.packages.items())),
        ("Commit", _joined(e.commit for e in environments)),
    ]


def _joined(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if str(value)))
