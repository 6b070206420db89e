"""What airspeed velocity follows: times, build costs, storage and regret.

This file comes from today's checkout while ``spmark`` is the commit under test, so nothing of it is imported before a
benchmark runs, and then `spmark.suite.measure.track` only. Lower is better everywhere. Names, parameters and versions
are the identity of a history: a value may be added to a list, and none renamed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import product
from math import nan
from statistics import median
from typing import Any, ClassVar

LIVE = "SPMARK_LIVE"
"""Variable of the environment, as JSON: the ``device``'s kind, the ``implementations`` that run there, methods that are
``left_out``, and keys of the ``questions`` that are asked. Without it the live set is that of all machines."""
PROTOCOL = 2
"""Of the measurements that are compared: a commit of another protocol is n/a."""
VERSION = f"protocol-{PROTOCOL}"
OPS = ("spmm", "sddmm")
IMPLEMENTATIONS = (
    "cusparse", "cusparse_best", "cublas", "gespmm", "sparsetir", "dgl", "scipy_cpu", "numba_cpu", "blas_cpu",
)  # fmt: skip
"""Followed from the first day, live and in imported sweeps."""
LATER = (
    "rowsplit", "nnzbalanced", "sparsetir_nohyb", "liteform", "stile", "lo_spmm",
    "dgsparse", "direct", "taco_cpu", "featgraph", "cublaslt_best", "rode",
)  # fmt: skip
"""Followed live beside these. A new implementation is appended here, or to `HALF_LATER`, or explained in `REFUSED`."""
HALF_LATER = (
    "triton_blocksparse", "sparsetir_bsr", "sparsetir_dbsr", "sparsetir_srbcrs", "flashsparse",
)  # fmt: skip
"""Followed live, of float16 alone: their builds have benchmarks of their own, since those of others are of float32."""
SDDMM_LATER = (
    "rowsplit", "stile", "triton_blocksparse", "sparsetir_bsr", "dgsparse", "taco_cpu", "featgraph",
    "rode", "flashsparse",
)  # fmt: skip
"""Those of the later ones that have SDDMM."""
REFUSED: Mapping[str, str] = {
    "auto": "it chooses among implementations that are followed themselves",
    "dash": "its choices are those of a model's file, which is no part of a commit",
    **dict.fromkeys(
        ("torch_sparse", "cupyx", "pyg", "nvmath"), "it is another project's code, which no commit changes"
    ),
}
"""Implementations for CUDA that are not followed, and why, in words."""
DTYPES = ("float32", "float16")
PHASES = ("features", "select", "search", "convert", "compile", "upload")
SEARCH_PHASES = ("features", "select", "search")
BASELINE = {"cuda": "cusparse", "cpu": "scipy_cpu"}
"""What live runs alternate with: a vendor's kernel, which no change of ours makes faster or slower."""
BUILT, HALF_BUILT = (128, "float32"), (128, "float16")
"""Width and dtype at which build costs are followed: of most, and of `HALF_LATER`."""

_RMAT = {"scale": 13, "edge_factor": 16}
MULTIPLIED: Mapping[str, Mapping[str, Any]] = {"patterns/logsparse_4096": {}, "rmat/rmat_13": _RMAT}
"""Matrices that need no network, and the arguments of their sources."""
LIVE_WIDTHS = (32, 128)
CONVERTED: Mapping[str, Mapping[str, Any]] = {"patterns/strided_4096": {}, "rmat/rmat_13": _RMAT}
CONVERSIONS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "hyb_32": ("hyb", {"max_width": 32}),
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

Answer = Mapping[str, Any]
"""As `spmark.suite.asv.track.Tracked` dumps it."""
Answers = Mapping[tuple[str, ...], Answer]
"""By op, implementation, matrix, width and dtype, by format and matrix, or by op, search and matrix."""
_ASKED: Mapping[str, Any] = json.loads(os.environ.get(LIVE, "{}"))


def _here(*names: str) -> tuple[str, ...]:
    """Give those of the implementations that run on this machine."""
    return tuple(name for name in names if name in _ASKED.get("implementations", names))


def _timed(*names: str) -> tuple[str, ...]:
    """Give those of them that are timed: on a CPU, the baseline has but a ratio to itself."""
    return tuple(name for name in _here(*names) if (_ASKED.get("device"), name) != ("cpu", BASELINE["cpu"]))


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

    def track_build_cpu_ratio(self, answers: Answers, op: str, implementation: str, matrix: str) -> Any:
        """Give the seconds that whole builds computed, over those of SciPy's work beside each."""
        return _ratios(_built(answers, op, implementation, matrix, self.built), "cpu_s", "baseline_cpu_s")

    def track_search(self, answers: Answers, op: str, implementation: str, matrix: str) -> Any:
        """Give the seconds of features, selecting and searching; n/a for what chooses nothing."""
        return _summed(_built(answers, op, implementation, matrix, self.built), SEARCH_PHASES)

    def track_stored(self, answers: Answers, op: str, implementation: str, matrix: str) -> float:
        """Give the elements that the format holds, padding included."""
        return _number(_built(answers, op, implementation, matrix, self.built), "stored")

    def track_device_bytes(self, answers: Answers, op: str, implementation: str, matrix: str) -> float:
        """Give the bytes that the plan holds."""
        return _number(_built(answers, op, implementation, matrix, self.built), "device_bytes")

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

    track_build.unit = track_search.unit = "seconds"  # type: ignore[attr-defined]
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

    def track_cpu_ratio(self, answers: Answers, *key: str) -> Any:
        """Give the seconds that a piece of work computed, over those of SciPy's work beside each."""
        return _ratios(_found(answers, *key), "cpu_s", "baseline_cpu_s")

    track_cpu_ratio.unit = "ratio"  # type: ignore[attr-defined]


class _Live:
    """Measures all runs of the live set once, in one process, for all classes."""

    def setup_cache(self) -> Answers:
        """Ask the installed commit what `LIVE` in the environment says."""
        return _asked("run")

    setup_cache.timeout = 1800  # type: ignore[attr-defined]


class LiveSpmm(_Live, _Times):
    """SpMM on generated matrices."""

    op = "spmm"
    params = (_timed(*IMPLEMENTATIONS, *LATER, *HALF_LATER), tuple(MULTIPLIED), LIVE_WIDTHS, DTYPES)


class LiveSddmm(_Live, _Times):
    """SDDMM on generated matrices."""

    op = "sddmm"
    params = (_timed(*IMPLEMENTATIONS, *SDDMM_LATER), tuple(MULTIPLIED), LIVE_WIDTHS, DTYPES)


class LivePlans(_Live, _Plans):
    """Plans for generated matrices."""

    params = (OPS, _here(*IMPLEMENTATIONS, *LATER), tuple(MULTIPLIED))


class LivePhases(_Live, _Phases):
    """Building for generated matrices."""

    params = (OPS, _here(*IMPLEMENTATIONS, *LATER), tuple(MULTIPLIED), PHASES)


class LiveHalfPlans(_Live, _Plans):
    """Plans of what computes in float16 alone."""

    built = HALF_BUILT
    params = (OPS, _here(*HALF_LATER), tuple(MULTIPLIED))


class LiveHalfPhases(_Live, _Phases):
    """Building of what computes in float16 alone."""

    built = HALF_BUILT
    params = (OPS, _here(*HALF_LATER), tuple(MULTIPLIED), PHASES)


class LiveConversions(_OnHost):
    """Composition of formats."""

    param_names = ("format", "matrix")
    params = (tuple(CONVERSIONS), tuple(CONVERTED))

    def setup_cache(self) -> Answers:
        """Measure conversions in a process of their own: what ran before would leave other memory to them."""
        return _asked("convert")

    def track_stored(self, answers: Answers, format: str, matrix: str) -> float:
        """Give the elements that the format holds, padding included."""
        return _number(_found(answers, format, matrix), "stored")

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
    track_stored.unit = "elements"  # type: ignore[attr-defined]


class LiveSearches(_OnHost):
    """Searches for a GPU that is not there: what they compute, and how good they think their plan is."""

    param_names = ("op", "search", "matrix")
    params = (OPS, SEARCHES, tuple(SEARCHED))

    def setup_cache(self) -> Answers:
        """Measure searches in a process of their own, too."""
        return _asked("search")

    def track_predicted(self, answers: Answers, op: str, search: str, matrix: str) -> float:
        """Give the seconds that the cost model predicts for what was chosen."""
        return _number(_found(answers, op, search, matrix), "predicted_s")

    setup_cache.timeout = 1800  # type: ignore[attr-defined]
    track_predicted.unit = "seconds"  # type: ignore[attr-defined]


def questions() -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Give what `spmark.suite.measure.track` is asked for the live set, by the key of the answer.

    Those of the first day come first: a later implementation that breaks the device takes nothing away from them.
    """
    later = {"spmm": (*LATER, *HALF_LATER), "sddmm": SDDMM_LATER}
    for names in (dict.fromkeys(OPS, IMPLEMENTATIONS), later):
        for matrix, op, dtype, width in product(MULTIPLIED, OPS, DTYPES, LIVE_WIDTHS):
            for implementation in names[op]:
                built = HALF_BUILT if implementation in HALF_LATER else BUILT
                question = {"what": "run", "op": op, "width": width, "dtype": dtype, "implementation": implementation}
                question |= {"baseline": BASELINE} | _matrix(matrix, MULTIPLIED[matrix])
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
    asked = {key: question for key, question in questions() if question["what"] == what}
    if "questions" in _ASKED:
        asked = {key: question for key, question in asked.items() if list(key) in _ASKED["questions"]}
    try:
        from spmark.suite.measure import track
    except ImportError:
        return {}  # a commit from before there was anything to ask
    return dict(zip(asked, track(list(asked.values())), strict=True))


def _matrix(matrix_id: str, args: Mapping[str, Any]) -> dict[str, Any]:
    source, _, name = matrix_id.partition("/")
    return {"source": source, "matrix": name, "args": dict(args)}


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


def _number(answer: Answer | None, name: str) -> float:
    return float(answer[name]) if answer and answer[name] is not None else nan


def _ratios(answer: Answer | None, seconds: str, beside: str) -> Any:
    """Give samples over the baseline's beside them; n/a of a commit that timed no baseline there."""
    pairs = zip(answer[seconds], answer.get(beside, ()), strict=False) if answer else ()
    # Of four digits: airspeed velocity prints all that a ratio has.
    return _samples([float(f"{own / other:.4g}") for own, other in pairs])


def _summed(answer: Answer | None, phases: tuple[str, ...]) -> Any:
    parts = [answer["phases_s"][phase] for phase in phases if phase in answer["phases_s"]] if answer else []
    return _samples([sum(build) for build in zip(*parts, strict=True)]) if parts else nan


def _samples(seconds: list[float]) -> Any:
    """Give what makes airspeed velocity keep samples and intervals; one sample has no spread and is a plain value."""
    if len(seconds) > 1:
        return {"samples": list(seconds), "number": 1}
    return median(seconds) if seconds else nan


for _owner in (_Times, _Plans, _Phases, _OnHost):
    for _name in vars(_owner).keys() & set(_ASKED.get("left_out", ())):
        delattr(_owner, _name)
