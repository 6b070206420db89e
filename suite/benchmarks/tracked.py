"""What airspeed velocity follows: times, build costs, storage and regret, live and out of records.

This file comes from today's checkout while ``spmark`` is the commit under test, so nothing of it is imported before a
benchmark runs, and then `spmark.suite.measure.track` only. Lower is better everywhere. Names, parameters and versions
are the identity of a history: a value may be added to a list, and none renamed.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from itertools import product
from math import nan
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

LIVE_KEYS, SWEPT_FOLDER = "SPMARK_LIVE_KEYS", "SPMARK_ASV_IMPORTED"
"""Variables of the environment: what is asked of the live set, and the folder of imported answers."""
PROTOCOL = 2
"""Of the measurements that are compared: a commit of another protocol is n/a."""
VERSION = f"protocol-{PROTOCOL}"
OPS = ("spmm", "sddmm")
IMPLEMENTATIONS = (
    "cusparse", "cusparse_best", "cublas", "gespmm", "sparsetir", "dgl", "scipy_cpu", "numba_cpu", "blas_cpu",
)  # fmt: skip
"""Followed from the first day, live and in imported sweeps."""
LATER = (
    "rowsplit", "nnzbalanced", "cusparse_bsr", "sparsetir_nohyb", "liteform", "stile", "lo_spmm",
    "dgsparse", "direct", "taco_cpu", "featgraph", "cublaslt_best",
)  # fmt: skip
"""Followed live beside these. A new implementation is appended here, or to `HALF_LATER`, or explained in `REFUSED`."""
HALF_LATER = (
    "cusparse_bell", "triton_blocksparse", "sparsetir_bsr", "sparsetir_dbsr", "sparsetir_srbcrs", "sparsetir_composed",
)  # fmt: skip
"""Followed live, of float16 alone: their builds have benchmarks of their own, since those of others are of float32."""
SDDMM_LATER = (
    "rowsplit", "cusparse_bsr", "stile", "triton_blocksparse", "sparsetir_bsr", "dgsparse", "taco_cpu", "featgraph",
)  # fmt: skip
"""Those of the later ones that have SDDMM."""
REFUSED: Mapping[str, str] = {"dash": "its choices are those of a model's file, which is no part of a commit"}
"""Implementations for CUDA that are not followed, and why, in words."""
DTYPES = ("float32", "float16")
PHASES = ("features", "select", "search", "convert", "compile", "upload")
SEARCH_PHASES = ("features", "select", "search")
BASELINE = {"cuda": "cusparse", "cpu": "scipy_cpu"}
"""What live runs alternate with: a vendor's kernel, which no change of ours makes faster or slower."""
BUILT, HALF_BUILT = (128, "float32"), (128, "float16")
"""Width and dtype at which build costs are followed: of most, and of `HALF_LATER`."""

_RMAT = {"scale": 13, "edge_factor": 16}
LIVE: Mapping[str, Mapping[str, Any]] = {"patterns/logsparse_4096": {}, "rmat/rmat_13": _RMAT}
"""Matrices that need no network, and the arguments of their sources."""
LIVE_WIDTHS = (32, 128)
CONVERTED: Mapping[str, Mapping[str, Any]] = {"patterns/strided_4096": {}, "rmat/rmat_13": _RMAT}
CONVERSIONS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "ell": ("ell", {}),
    "bsr_4x4": ("bsr", {"block_rows": 4, "block_cols": 4}),
    "bsr_16x16": ("bsr", {"block_rows": 16, "block_cols": 16}),
}
SEARCHES = ("stile_a100", "liteform_h200", "liteform_build_h200")
"""Searches for a GPU that need not be there, on the host: of LiteForm, CELL alone, and all that a build chooses."""
SDDMM_SEARCHES = ("stile_a100",)
"""Those that search for SDDMM, too."""
SEARCHED: Mapping[str, Mapping[str, Any]] = {"patterns/strided_4096": {}, "rmat/rmat_13": _RMAT}
SEARCHED_FOR = (128, "float16")
"""Width and dtype at which searches are followed."""
SWEPT = (
    "planetoid/cora", "planetoid/citeseer", "planetoid/pubmed", "dgl/ppi-train-20graphs", "ogb/ogbn-arxiv",
    "snap/web-NotreDame", "twin/proteins_twin", "twin/reddit_twin",
)  # fmt: skip
"""Matrices of imported sweeps that are followed."""
SWEPT_WIDTHS = (32, 128, 512)

Answer = Mapping[str, Any]
"""As `spmark.suite.asv.track.Tracked` dumps it."""
Answers = Mapping[tuple[str, ...], Answer]
"""By op, implementation, matrix, width and dtype, by format and matrix, or by op, search and matrix."""


class _Followed:
    """What every benchmark has."""

    version = VERSION
    timeout = 60


class _Times(_Followed):
    """Seconds of one run from cold caches, every sample kept."""

    param_names = ("implementation", "matrix", "width", "dtype")
    op: ClassVar[str]

    def track_time(self, answers: Answers, implementation: str, matrix: str, width: int, dtype: str) -> Any:
        """Give the samples."""
        answer = _found(answers, self.op, implementation, matrix, str(width), dtype)
        return _samples(answer["samples_s"]) if answer else nan

    def track_ratio(self, answers: Answers, implementation: str, matrix: str, width: int, dtype: str) -> Any:
        """Give the time over the baseline's that was taken beside it: what slows the machine slows both."""
        answer = _found(answers, self.op, implementation, matrix, str(width), dtype)
        return _ratios(answer, "samples_s", "baseline_s")

    track_time.unit = "seconds"  # type: ignore[attr-defined]
    track_ratio.unit = "ratio"  # type: ignore[attr-defined]


class _Plans(_Followed):
    """What building leaves and costs."""

    param_names = ("op", "implementation", "matrix")
    built: ClassVar[tuple[int, str]] = BUILT

    def track_build(self, answers: Answers, op: str, implementation: str, matrix: str) -> Any:
        """Give the seconds of whole builds, with warm caches of compiled kernels."""
        return _summed(_built(answers, op, implementation, matrix, self.built), PHASES)

    def track_build_cpu(self, answers: Answers, op: str, implementation: str, matrix: str) -> Any:
        """Give the seconds that whole builds computed, which other work on the machine disturbs less."""
        answer = _built(answers, op, implementation, matrix, self.built)
        return _samples(answer["cpu_s"]) if answer else nan

    def track_build_cpu_ratio(self, answers: Answers, op: str, implementation: str, matrix: str) -> Any:
        """Give these seconds over those of SciPy's work beside each build."""
        return _ratios(_built(answers, op, implementation, matrix, self.built), "cpu_s", "baseline_cpu_s")

    def track_search(self, answers: Answers, op: str, implementation: str, matrix: str) -> Any:
        """Give the seconds of features, selecting and searching; n/a for what chooses nothing."""
        return _summed(_built(answers, op, implementation, matrix, self.built), SEARCH_PHASES)

    def track_stored(self, answers: Answers, op: str, implementation: str, matrix: str) -> float:
        """Give the elements that the format holds, padding included."""
        answer = _built(answers, op, implementation, matrix, self.built)
        return float(answer["stored"]) if answer else nan

    def track_device_bytes(self, answers: Answers, op: str, implementation: str, matrix: str) -> float:
        """Give the bytes that the plan holds."""
        answer = _built(answers, op, implementation, matrix, self.built)
        return float(answer["device_bytes"]) if answer else nan

    def track_regret(self, answers: Answers, op: str, implementation: str, matrix: str) -> float:
        """Give the time of the predicted candidate over the best one's; n/a without both.

        cuSPARSE's default predicts nothing: it stands for itself as the first candidate of ``cusparse_best``.
        """
        searched = "cusparse_best" if implementation == "cusparse" else implementation
        answer = _built(answers, op, searched, matrix, self.built)
        candidates = answer["candidates"] if answer else []
        if implementation == "cusparse":
            chosen = candidates[:1]
        else:
            chosen = sorted((c for c in candidates if c[0] is not None), key=lambda c: float(c[0]))[:1]
        return float(chosen[0][1] / min(c[1] for c in candidates)) if chosen else nan

    track_build.unit = track_build_cpu.unit = track_search.unit = "seconds"  # type: ignore[attr-defined]
    track_stored.unit = "elements"  # type: ignore[attr-defined]
    track_device_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_regret.unit = track_build_cpu_ratio.unit = "ratio"  # type: ignore[attr-defined]


class _Phases(_Followed):
    """What building costs, phase by phase."""

    param_names = ("op", "implementation", "matrix", "phase")
    built: ClassVar[tuple[int, str]] = BUILT

    def track_phase(self, answers: Answers, op: str, implementation: str, matrix: str, phase: str) -> Any:
        """Give the seconds of a phase; n/a where a plan has none of it."""
        return _summed(_built(answers, op, implementation, matrix, self.built), (phase,))

    track_phase.unit = "seconds"  # type: ignore[attr-defined]


class _OnHost(_Followed):
    """Work on the host whatever the device is, done again and again."""

    def track_time(self, answers: Answers, *key: str) -> Any:
        """Give the seconds of a piece of work."""
        answer = _found(answers, *key)
        return _samples(answer["samples_s"]) if answer else nan

    def track_cpu(self, answers: Answers, *key: str) -> Any:
        """Give the seconds that a piece of work computed, which other work on the machine disturbs less."""
        answer = _found(answers, *key)
        return _samples(answer["cpu_s"]) if answer else nan

    def track_cpu_ratio(self, answers: Answers, *key: str) -> Any:
        """Give these seconds over those of SciPy's work beside each."""
        return _ratios(_found(answers, *key), "cpu_s", "baseline_cpu_s")

    track_time.unit = track_cpu.unit = "seconds"  # type: ignore[attr-defined]
    track_cpu_ratio.unit = "ratio"  # type: ignore[attr-defined]


class _Live:
    """Measures all runs of the live set once, in one process, for all classes."""

    def setup_cache(self) -> Answers:
        """Ask the installed commit; `LIVE_KEYS` in the environment asks less: keys of questions, as JSON."""
        return _asked("run")

    setup_cache.timeout = 1800  # type: ignore[attr-defined]


class _Swept:
    """Reads what ``spmark asv import`` kept in place of measuring, so that imported sweeps stay benchmarks."""

    def setup_cache(self) -> Answers:
        """Read the answers of the commit under test from the folder that `SWEPT_FOLDER` names, one machine's.

        Without the variable everything is n/a: records of another machine must not be filed under this one.
        """
        return _imported(os.environ.get(SWEPT_FOLDER, ""), os.environ.get("ASV_COMMIT", ""))

    setup_cache.timeout = 300  # type: ignore[attr-defined]


class LiveSpmm(_Live, _Times):
    """SpMM on generated matrices."""

    op = "spmm"
    params = ((*IMPLEMENTATIONS, *LATER, *HALF_LATER), tuple(LIVE), LIVE_WIDTHS, DTYPES)


class LiveSddmm(_Live, _Times):
    """SDDMM on generated matrices."""

    op = "sddmm"
    params = ((*IMPLEMENTATIONS, *SDDMM_LATER), tuple(LIVE), LIVE_WIDTHS, DTYPES)


class LivePlans(_Live, _Plans):
    """Plans for generated matrices."""

    params = (OPS, (*IMPLEMENTATIONS, *LATER), tuple(LIVE))


class LivePhases(_Live, _Phases):
    """Building for generated matrices."""

    params = (OPS, (*IMPLEMENTATIONS, *LATER), tuple(LIVE), PHASES)


class LiveHalfPlans(_Live, _Plans):
    """Plans of what computes in float16 alone."""

    built = HALF_BUILT
    params = (OPS, HALF_LATER, tuple(LIVE))


class LiveHalfPhases(_Live, _Phases):
    """Building of what computes in float16 alone."""

    built = HALF_BUILT
    params = (OPS, HALF_LATER, tuple(LIVE), PHASES)


class LiveConversions(_OnHost):
    """Composition of formats."""

    param_names = ("format", "matrix")
    params = (tuple(CONVERSIONS), tuple(CONVERTED))

    def setup_cache(self) -> Answers:
        """Measure conversions in a process of their own: what ran before would leave other memory to them."""
        return _asked("convert")

    def track_stored(self, answers: Answers, format: str, matrix: str) -> float:
        """Give the elements that the format holds, padding included."""
        answer = _found(answers, format, matrix)
        return float(answer["stored"]) if answer else nan

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
    track_stored.unit = "elements"  # type: ignore[attr-defined]


class LiveSearches(_OnHost):
    """Searches for a GPU that is not there: how long they take, and how good they think their plan is."""

    param_names = ("op", "search", "matrix")
    params = (OPS, SEARCHES, tuple(SEARCHED))

    def setup_cache(self) -> Answers:
        """Measure searches in a process of their own, too."""
        return _asked("search")

    def track_predicted(self, answers: Answers, op: str, search: str, matrix: str) -> float:
        """Give the seconds that the cost model predicts for what was chosen."""
        answer = _found(answers, op, search, matrix)
        return float(answer["predicted_s"]) if answer and answer["predicted_s"] is not None else nan

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
    track_predicted.unit = "seconds"  # type: ignore[attr-defined]


class SweptSpmm(_Swept, _Times):
    """SpMM of imported sweeps."""

    op = "spmm"
    params = (IMPLEMENTATIONS, SWEPT, SWEPT_WIDTHS, DTYPES)


class SweptSddmm(_Swept, _Times):
    """SDDMM of imported sweeps."""

    op = "sddmm"
    params = (IMPLEMENTATIONS, SWEPT, SWEPT_WIDTHS, DTYPES)


class SweptPlans(_Swept, _Plans):
    """Plans of imported sweeps."""

    params = (OPS, IMPLEMENTATIONS, SWEPT)


class SweptPhases(_Swept, _Phases):
    """Building in imported sweeps."""

    params = (OPS, IMPLEMENTATIONS, SWEPT, PHASES)


def questions() -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Give what `spmark.suite.measure.track` is asked for the live set, by the key of the answer.

    Those of the first day come first: a later implementation that breaks the device takes nothing away from them.
    """
    later = {"spmm": (*LATER, *HALF_LATER), "sddmm": SDDMM_LATER}
    for names in (dict.fromkeys(OPS, IMPLEMENTATIONS), later):
        for matrix, op, dtype, width in product(LIVE, OPS, DTYPES, LIVE_WIDTHS):
            for implementation in names[op]:
                built = HALF_BUILT if implementation in HALF_LATER else BUILT
                question = {"what": "run", "op": op, "width": width, "dtype": dtype, "implementation": implementation}
                question |= {"baseline": BASELINE} | _matrix(matrix, LIVE[matrix])
                question["builds"] = 8 if (width, dtype) == built else 0
                yield (op, implementation, matrix, str(width), dtype), question
    for matrix, (name, (format_name, format_args)) in product(CONVERTED, CONVERSIONS.items()):
        question = {"what": "convert", "format": format_name, "format_args": dict(format_args)}
        yield (name, matrix), question | _matrix(matrix, CONVERTED[matrix])
    searched = [("spmm", search) for search in SEARCHES] + [("sddmm", search) for search in SDDMM_SEARCHES]
    for matrix, (op, search) in product(SEARCHED, searched):
        question = {"what": "search", "search": search, "op": op, "width": SEARCHED_FOR[0], "dtype": SEARCHED_FOR[1]}
        yield (op, search, matrix), question | _matrix(matrix, SEARCHED[matrix])


def _asked(what: str) -> Answers:
    """Ask the installed commit one kind of question."""
    only = set(map(tuple, json.loads(os.environ.get(LIVE_KEYS, "[]"))))
    asked = {key: of for key, of in questions() if of["what"] == what and (not only or key in only)}
    try:
        from spmark.suite.measure import track
    except ImportError:
        return {}  # a commit from before there was anything to ask
    return dict(zip(asked, track(list(asked.values())), strict=True))


def _matrix(matrix_id: str, args: Mapping[str, Any]) -> dict[str, Any]:
    source, _, name = matrix_id.partition("/")
    return {"source": source, "matrix": name, "args": dict(args)}


def _imported(folder: str, commit: str) -> Answers:
    path = Path(folder) / f"{commit}.json.gz"
    if not (folder and commit and path.is_file()):
        return {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return {tuple(key): answer for key, answer in json.load(file)}


def _found(answers: Answers, *key: str) -> Answer | None:
    """Give the answer; None for n/a; raise where the case failed, which airspeed velocity shows as such."""
    answer = answers.get(key)
    if answer is None or answer["protocol"] != PROTOCOL or answer["status"] == "unsupported":
        return None
    if answer["status"] != "ok":
        raise RuntimeError(f"{answer['status']}: {answer['reason']}")
    return answer


def _built(answers: Answers, op: str, implementation: str, matrix: str, built: tuple[int, str]) -> Answer | None:
    return _found(answers, op, implementation, matrix, *map(str, built))


def _ratios(answer: Answer | None, seconds: str, beside: str) -> Any:
    """Give samples over the baseline's beside them; n/a of a commit that timed no baseline there."""
    pairs = zip(answer[seconds], answer.get(beside, ()), strict=False) if answer else ()
    return _samples([own / other for own, other in pairs])


def _summed(answer: Answer | None, phases: tuple[str, ...]) -> Any:
    parts = [answer["phases_s"][phase] for phase in phases if phase in answer["phases_s"]] if answer else []
    return _samples([sum(build) for build in zip(*parts, strict=True)]) if parts else nan


def _samples(seconds: list[float]) -> Any:
    """Give what makes airspeed velocity keep samples and intervals; one sample has no spread and is a plain value."""
    if len(seconds) > 1:
        return {"samples": list(seconds), "number": 1}
    return median(seconds) if seconds else nan
