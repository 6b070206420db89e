"""What a section says beside its figures and tables: facts of machine and run, and notices for its reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pandas as pd

from spmark.impls.core.devicespec import DeviceKind
from spmark.records.schema import RUNS_ON, Environment, Flush, Status
from spmark.report.analysis.cases import beside
from spmark.report.tables.table import config_text, explained

Facts = list[tuple[str, str]]
_STEPS = " A sample of a network is a step by the host's clock, from an idle device; no cache is emptied."
_DIGITS = 8
"""First digits of an implementation's version, which is a digest."""
MEASURED = {
    DeviceKind.CUDA: (
        "Each sample is one launch between CUDA events from a cold L2: its persisting part is reset and a buffer of at "
        "least twice its size is written before. Every result was checked against a float64 reference before it was "
        "timed, the baseline was measured in turn with the case, and all samples are kept." + _STEPS
    ),
    DeviceKind.CPU: (
        "Each sample is one run from a cold last-level cache. Every result was checked against a float64 reference "
        "before it was timed, the baseline was measured in turn with the case, and all samples are kept." + _STEPS
    ),
    DeviceKind.HOST_SIMT: (
        "The kernels ran on the host's cores under sanitizers. This shows that results and memory accesses are right; "
        "it gives no times."
    ),
}
UNSEEN = (
    "What searches measured of each config (`candidates.jsonl`) is published apart: `spmark fetch candidates` "
    "brings it.\n"
    "It is not beside these records. Tables and figures of choices and of predicted times are left out, or show only "
    "what other sweeps here saw of the same cases."
)
"""A notice whose first line stands alone until a reader asks for more, like any notice of several lines."""
_DOUBTS = {
    "busy machine": "ran on a busy machine", "throttled": "on a throttled device",
    "wide interval": "have a wide interval",
}  # fmt: skip
"""Of the flags that `spmark.report.analysis.cases.derive` gives, in words."""
_FLUSHED = {Flush.WRITE: "", Flush.READ: "after the buffer was written, another as large as the cache is read"}


def notices_of(derived: pd.DataFrame, baseline: str | None, wanted: str | None, older: int, sweep: str) -> list[str]:
    """Say what a reader must know before believing a number.

    Parameters
    ----------
    derived : DataFrame
        As `spmark.report.analysis.cases.derive` gives it.
    baseline : str or None
        What its speed-ups are over.
    wanted : str or None
        The baseline that was asked for.
    older : int
        Rows that were left out as older.
    sweep : str
        The sweep whose page has the notices.
    """
    notices = without_result(derived)
    if wanted and baseline != wanted:
        notices.append(f"No record here is of the baseline {wanted}: speed-ups are over {baseline or 'nothing'}.")
    if baseline is None:
        notices.append("No record names a baseline: there are no speed-ups. Choose one to compare with.")
    lent = int((derived["speedup_from"] == "record").sum())
    if lent:
        notices.append(
            f"{lent:,} speed-ups over {baseline} use the baseline's own record, not samples taken in turn with the "
            "case: they carry the drift between two moments."
        )
    notices += [*without_baseline(derived, baseline), *_refused(derived), *doubtful(derived)]
    versions = derived.groupby("implementation")["implementation_version"].nunique()
    mixed = sorted(str(name) for name in versions[versions > 1].index)
    if mixed:
        notices.append(f"Cases of more than one version stand beside each other for {', '.join(mixed)}.")
    if by_direct := _of_direct(derived):
        notices.append(
            f"Older code of these labels could choose the kernel of direct, and did in these cases: {by_direct}."
        )
    if alike := _of_one_pattern(derived):
        notices.append(f"Matrices have the same pattern, and count once in figures and means: {'; '.join(alike)}.")
    lenders = Counter(derived.loc[derived["sweep"] != sweep, "sweep"])
    if lenders:
        names = ", ".join(f"{name} ({count:,})" for name, count in sorted(lenders.items()))
        notices.append(f"{lenders.total():,} of these cases were measured with other sweeps that list them: {names}.")
    if older:
        notices.append(
            f"{older:,} rows of older versions of the code or the protocol, or of another flush, are left out."
        )
    return notices


def _of_direct(derived: pd.DataFrame) -> str:
    """Count the cases of a label in which older code of its system ran the kernel of ``direct``."""
    ran = derived["config"].map(lambda config: config.get("format") == "direct")
    counts = Counter(derived.loc[ran & (derived["status"] == Status.OK.value), "label"])
    return ", ".join(f"{label} {count:,} of {(derived['label'] == label).sum():,}" for label, count in counts.items())


def without_result(derived: pd.DataFrame) -> list[str]:
    """Count the cases without a result; those that another kind of device could run stand apart, with their reasons."""
    failed = derived[derived["status"] != Status.OK.value]
    elsewhere = failed["reason"].str.startswith(RUNS_ON) & (failed["status"] == Status.UNSUPPORTED.value)
    counts = Counter(failed.loc[~elsewhere, "status"])
    notices = []
    if len(failed) == len(derived):
        notices.append("No case has a result: all of them failed, for the reasons below.")
    elif counts:
        each = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
        notices.append(
            f"{counts.total():,} of {len(derived):,} cases have no result ({each}); each is listed among its sweep's "
            "failures."
        )
    if elsewhere.any():
        rows = failed[elsewhere]
        device = "another device" if DeviceKind.CUDA.value in set(rows["device_kind"]) else "a GPU"
        reasons = "; ".join(
            f"{', '.join(sorted(set(of['label'])))}: {reason} ({len(of):,})" for reason, of in rows.groupby("reason")
        )
        count = rows["implementation"].nunique()
        of_these = f"{count} implementation{'s' if count > 1 else ''}"
        notices.append(f"{len(rows):,} cases of {of_these} need {device} and did not run.\n{reasons}.")
    return notices


def without_baseline(derived: pd.DataFrame, baseline: str | None) -> list[str]:
    """Count the cases with a time and no speed-up, with what became of the baseline on each of their matrices."""
    lacking = derived[derived["median_us"].notna() & derived["speedup"].isna()]
    if not baseline or lacking.empty:
        return []
    of_baseline = beside(lacking, derived[derived["is_baseline"]], "status")["status"].fillna("not recorded")
    each = sorted(
        f"{matrix}: {status} ({len(of):,})" for (matrix, status), of in lacking.groupby(["matrix", of_baseline])
    )
    return [
        f"{len(lacking):,} of {len(derived):,} cases have a time and no speed-up: the baseline {baseline} has no time "
        f"there.\n{'; '.join(each)}."
    ]


def doubtful(derived: pd.DataFrame) -> list[str]:
    """Count the cases whose times may be off, by reason."""
    flagged = derived["flags"][derived["flags"] != ""]
    if flagged.empty:
        return []
    told = ", ".join(
        f"{int(flagged.str.contains(flag).sum()):,} {words}"
        for flag, words in _DOUBTS.items()
        if flagged.str.contains(flag).any()
    )
    return [f"Times of {len(flagged):,} of {len(derived):,} cases may be off: {told}. Lists of cases mark them."]


def _refused(derived: pd.DataFrame) -> list[str]:
    """Name the variants that a baseline's search could not use, with the reasons, the most frequent ones first."""
    rows = derived.loc[derived["baseline_refused"].map(len) > 0]
    if rows.empty:
        return []
    told = Counter(
        f"{name}, {config_text(one.config)}: {one.reason}"
        for name, refused in zip(rows["baseline_implementation"], rows["baseline_refused"], strict=True)
        for one in refused
    )
    each = "; ".join(f"{what} ({count:,})" for what, count in told.most_common())
    return [
        f"In {len(rows):,} of {len(derived):,} cases the baseline's search could not use all of its variants: one of "
        f"them might have been the fastest.\n{each}."
    ]


def facts_of(derived: pd.DataFrame, kind: DeviceKind, baseline: str | None) -> Facts:
    """Give machine, software and run of one device's cases, as far as records tell."""
    pairs = zip(derived["environment"], derived["facts"], strict=True)
    environments = list({digest: facts for digest, facts in pairs if facts is not None}.values())
    first, last = derived["started_at"].agg(["min", "max"])
    return [
        (name, text)
        for name, text in (
            ("Device", f"{derived['device'].iloc[0]} ({kind.value})"),
            *_environment_facts(environments),
            ("Cases", f"{len(derived):,}, of which {int((derived['status'] == Status.OK.value).sum()):,} ok"),
            ("Baseline", explained(baseline) if baseline else "none"),
            ("Protocol", _joined(sorted(derived["protocol_version"]))),
            ("Measured", f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"),
            ("Flush", _joined(_FLUSHED[Flush(flush)] for flush in derived["flush"])),
            ("Seed", _joined(derived["seed"])),
            ("Other work", _other_work(derived)),
        )
        if text
    ]


def versions_of(derived: pd.DataFrame) -> str:
    """Name the implementations with the first digits of each of their versions."""
    versions = derived.groupby("implementation")["implementation_version"].unique()
    return ", ".join(f"{name} {'/'.join(sorted(v[:_DIGITS] for v in of))}" for name, of in versions.items())


def _of_one_pattern(derived: pd.DataFrame) -> list[str]:
    """Name the matrices whose non-zeros stand at the same places, each set of them once."""
    known = derived[derived["matrix_hash"] != ""].drop_duplicates(["matrix_hash", "matrix"])
    sets = known.groupby("matrix_hash")["matrix"].agg(sorted)
    return sorted(" and ".join(names) for names in sets if len(names) > 1)


def _other_work(derived: pd.DataFrame) -> str:
    """Say what other processes took of the host while cases were measured; empty where no record tells."""
    known = derived[derived["free_cores"].notna()]
    if known.empty:
        return ""
    return f"at most {known['taken_cores'].max():.1f} of the host's cores, in {len(known):,} cases that tell"


def _environment_facts(environments: list[Environment]) -> Facts:
    if not environments:
        return [("Environment", "not recorded")]
    devices = [environment.device for environment in environments]
    told: dict[str, Iterable[object]] = {
        "Driver": (e.driver for e in environments),
        "CUDA": (e.cuda for e in environments),
        "Architecture": (f"{d.arch}, {d.num_sms} {'SMs' if d.compute_capability else 'cores'}" for d in devices),
        "Memory": (f"{d.memory_bytes / 1e9:,.0f} GB, last-level cache {d.l2_bytes / 1e6:,.0f} MB" for d in devices),
        "Copy bandwidth": (f"{d.copy_bytes_per_s / 1e9:,.0f} GB/s" for d in devices if d.copy_bytes_per_s),
        "float32 rate": (f"{d.fma_flops_per_s / 1e9:,.0f} GFLOP/s" for d in devices if d.fma_flops_per_s),
        "Matrix-unit rates": (
            f"{name} {rate / 1e9:,.0f} GFLOP/s" for d in devices for name, rate in d.tensor_flops_per_s.items()
        ),
        "Host": (f"{e.cpu}, {e.cores} cores, {e.memory_bytes / 1e9:,.0f} GB, {e.system}" for e in environments),
        "Packages": (f"{name} {version}" for e in environments for name, version in e.packages.items()),
        "Commit": (e.commit for e in environments),
    }
    return [(name, _joined(texts)) for name, texts in told.items()]


def _joined(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if str(value)))
