"""What every implementation has to do, as checks that tests and ``spmark check`` share, and the problems for them.

Every tiny problem has a shape or a row length at which kernels go wrong. A check raises `NonconformingError`, which
says what was expected, what was found and what an author may do.
"""

from __future__ import annotations

import faulthandler
import os
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import import_module
from itertools import groupby
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.errors import DeviceError, KernelFault, OperandError, SpmarkError, SweepError, UnsupportedError
from spmark.impls.core.interfaces import PHASES, Implementation, Plan
from spmark.impls.core.operators import random_operands, reference
from spmark.impls.core.problem import Csr, DType, Op, Problem
from spmark.impls.core.tolerance import why_wrong
from spmark.impls.runtime.kernelfile import DeclaredKernel
from spmark.impls.runtime.template import KernelTemplate
from spmark.impls.table import create, name_of
from spmark.suite.cli.console import answer, console, say
from spmark.suite.plan.refusals import make

GUARD = 64
"""Elements of NaN before and after a result: what is written beside the result shows."""
SEED = 3
HOST_ORDERS = ("2", "5", "6")
"""Orders of the host ring in which blocks, warps and lanes run down, and as two seeds draw them."""
ORDERED = tuple(f"{case}-J32-{dtype}" for case in ("spmm-lengths_of_warps", "sddmm-under_32_rows") for dtype in DType)
"""Problems that are run in these orders."""
_UNTOUCHED = 7
"""What `out` holds where a run has to be refused."""
_ORDER = "SPMARK_HOST_ORDER"
OPERATORS = {"spmm": (Op.SPMM, False), "sddmm": (Op.SDDMM, False), "sddmm_scaled": (Op.SDDMM, True)}
WIDTH = 32
ODD_WIDTHS = (1, 3, 20, 33, 130)
_FAR_WIDTH = 1024
_FAR_COLUMNS = 2**31 // _FAR_WIDTH + 64
_FAR_LENGTHS = (3, 33, 0, 1, 17)


class NonconformingError(SpmarkError):
    """A plan does not do what every plan has to do.

    Parameters
    ----------
    expected, found : str
    remedy : str
        What an author may look at.
    """

    def __init__(self, expected: str, found: str, remedy: str) -> None:
        self.expected, self.found, self.remedy = expected, found, remedy
        super().__init__(f"expected {expected}, found {found}; {remedy}")


class Place:
    """Arrays of one kind of device: NumPy's, or CuPy's."""

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec = spec
        self.xp: Any = import_module("cupy") if spec.kind is DeviceKind.CUDA else np

    def upload(self, array: NDArray[Any]) -> Any:
        """Copy a host array to the device."""
        return self.xp.array(array)

    def download(self, array: Any) -> NDArray[Any]:
        """Give an array on the host."""
        return np.asarray(array) if self.xp is np else self.xp.asnumpy(array)

    def guarded(self, problem: Problem) -> tuple[Any, Any]:
        """Give a buffer of NaN and the part of it that is the result."""
        size = int(np.prod(problem.out_shape))
        buffer = self.xp.full(size + 2 * GUARD, problem.dtype.nan, problem.dtype.numpy)
        return buffer, buffer[GUARD : GUARD + size].reshape(problem.out_shape)


def random_csr(num_rows: int, num_cols: int, row_lengths: Sequence[int], seed: int = 0) -> Csr:
    """Draw a matrix with the given row lengths; values are a sign times [0.5, 1), so none is near zero."""
    rng = np.random.default_rng(seed)
    rows = [np.sort(rng.choice(num_cols, length, replace=False)) for length in row_lengths]
    indptr = np.concatenate([[0], np.cumsum(row_lengths, dtype=np.int64)])
    indices = np.concatenate([*rows, np.zeros(0, np.int64)]).astype(np.int64)
    values = rng.uniform(0.5, 1, indices.size) * rng.choice([-1, 1], indices.size)
    assert indptr.size == num_rows + 1
    return Csr.checked((num_rows, num_cols), indptr, indices, values.astype(np.float32))


@cache
def matrices() -> dict[str, Csr]:
    """Give the tiny matrices by name."""
    rng = np.random.default_rng(1)
    few = rng.integers(0, 6, 40)
    return {
        "one_by_one": random_csr(1, 1, [1]),
        "no_nonzeros": random_csr(5, 4, [0] * 5),
        "empty_rows": random_csr(45, 70, [0, 0, 5, 1, 0, *few[:37], 9, 0, 0]),
        "under_32_rows": random_csr(7, 47, [3, 11, 0, 2, 47, 1, 6]),
        "fully_dense": random_csr(16, 24, [24] * 16),
        "one_dense_row": random_csr(33, 65, [2] * 20 + [65] + [1] * 12),
        "wide": random_csr(3, 700, [260, 33, 5]),
        "tall": random_csr(700, 3, rng.integers(0, 4, 700).tolist()),
        "hub": random_csr(40, 2500, [*few[:17], 2000, *few[17:39]]),
        "lengths_of_warps": random_csr(9, 300, [31, 32, 33, 63, 64, 65, 127, 128, 129]),
    }


def far_problem(op: Op, dtype: DType) -> Problem:
    """Give a problem whose second operand has more than 2^31 elements: most non-zeros are in the last columns of A."""
    rng = np.random.default_rng(8)
    last = _FAR_COLUMNS - 1
    rows = [np.sort(np.append(rng.integers(9), last - rng.permutation(60)[: n - 1])) for n in _FAR_LENGTHS if n]
    indices = np.concatenate(rows)
    indptr = np.append(0, np.cumsum(_FAR_LENGTHS))
    values = rng.uniform(0.5, 1, indices.size).astype(np.float32)
    return Problem(op, Csr.checked((len(_FAR_LENGTHS), _FAR_COLUMNS), indptr, indices, values), _FAR_WIDTH, dtype)


def far_operands(problem: Problem, path: Path) -> list[NDArray[Any]]:
    """Give operands of a `far_problem`; the large one is a sparse file at ``path``, of which few pages are read."""
    rng, dtype = np.random.default_rng(9), problem.dtype.numpy
    with path.open("wb") as file:
        file.truncate(_FAR_COLUMNS * _FAR_WIDTH * dtype.itemsize)
        for column in np.unique(problem.matrix.indices).tolist():
            file.seek(column * _FAR_WIDTH * dtype.itemsize)
            file.write(problem.dtype.stored(rng.uniform(0.5, 1, _FAR_WIDTH).astype(np.float32)).tobytes())
    operands: list[NDArray[Any]] = [np.memmap(path, dtype, "r", shape=(_FAR_COLUMNS, _FAR_WIDTH))]
    if problem.op is Op.SDDMM:
        left = rng.uniform(0.5, 1, (len(_FAR_LENGTHS), _FAR_WIDTH)).astype(np.float32)
        operands.insert(0, problem.dtype.stored(left))
    return operands


@cache
def problems() -> dict[str, Problem]:
    """Give the tiny problems by a readable name: every matrix at one width, every odd width on two matrices."""
    cases = [(name, WIDTH) for name in matrices()]
    cases += [(name, width) for name in ("empty_rows", "under_32_rows") for width in ODD_WIDTHS]
    return {
        f"{operator}-{name}-J{width}-{dtype}": Problem(op, matrices()[name], width, dtype, scaled)
        for name, width in cases
        for operator, (op, scaled) in OPERATORS.items()
        for dtype in DType
    }


def dense_operands(problem: Problem, seed: int = 0) -> list[NDArray[Any]]:
    """Give the problem's seeded operands as host arrays."""
    return [operand[np.arange(operand.shape[0]), :] for operand in random_operands(problem, seed)]


def check_contract(how: Implementation) -> None:
    """Check what an implementation says of itself: its kernels, and tunables that make it again."""
    kernels = getattr(how, "kernels", ())
    if not all(isinstance(template, KernelTemplate) for template in kernels):
        raise NonconformingError(
            "kernels that are KernelTemplates", repr(kernels), "name the templates that plans launch"
        )
    kind: Any = type(how)
    tunables = {one.name: getattr(how, one.name) for one in fields(kind)}
    if kind(**tunables) != how:
        raise NonconformingError(
            f"two with the tunables {tunables} to be equal", "that they differ", "keep state in the plan alone"
        )


def build_plan(how: Implementation, problem: Problem, place: Place) -> Plan | str:
    """Build a plan, or give the reason for which the implementation refuses the problem.

    Raises
    ------
    NonconformingError
        The reason says nothing.
    SpmarkError
        The plan cannot be built.
    """
    if problem.op not in how.ops:
        return f"{how.name} has no {problem.op}"
    reason: Any = how.unsupported(problem, place.spec)
    if reason is not None:
        if not (isinstance(reason, str) and reason.strip()):
            raise NonconformingError(
                "unsupported to give None or a reason", repr(reason), "the reason becomes a row of the records"
            )
        return reason
    try:
        return how.build(problem, place.spec)
    except UnsupportedError as error:
        return str(error)


def check_result(plan: Plan, problem: Problem, place: Place) -> None:
    """Run into NaN: complete, right, nothing beside it, operands as before, the same bits again, and of new operands.

    The last run has operands with other values at other addresses.
    """
    originals, others = dense_operands(problem, SEED), dense_operands(problem, SEED + 1)
    operands = [place.upload(original) for original in originals]
    results = []
    for given in (operands, operands, [place.upload(other) for other in others]):
        buffer, out = place.guarded(problem)
        plan.run(given, out)
        results.append(place.download(out).copy())
        around = place.download(buffer)
        for where, part in (("before", around[:GUARD]), ("past", around[around.size - GUARD :])):
            if not np.isnan(problem.dtype.numbers(part)).all():
                raise NonconformingError(
                    "a run to write its result alone",
                    f"that it wrote {where} the result",
                    "hold the indices of the last block and of the last vector against the bounds",
                )
    _check_values(plan, problem, originals, results[0])
    _check_follows(plan, problem, others, results[2], results[0])
    for position, (operand, original) in enumerate(zip(operands, originals, strict=True)):
        if not np.array_equal(place.download(operand), original):
            raise NonconformingError(
                f"operand {position} unchanged", "another content", "work in a buffer that the plan owns"
            )
    if plan.deterministic:
        _check_same(results[0], results[1], "two runs", "set deterministic = False where sums are added in any order")


def _check_follows(
    plan: Plan, problem: Problem, operands: Sequence[NDArray[Any]], out: NDArray[Any], before: NDArray[Any]
) -> None:
    """Hold a later result against its own operands; where it is that of the operands before, say so."""
    if problem.matrix.nnz and np.array_equal(out, before):
        raise NonconformingError(
            "the result of the operands that a run is given",
            "that of the operands of an earlier run",
            "keep no result and no operand in the plan, neither a copy nor an address",
        )
    _check_values(plan, problem, operands, out)


def check_orders(plan: Plan, problem: Problem, place: Place) -> None:
    """Run on the host ring in the `HOST_ORDERS`: all results are right and, without atomics, the same."""
    originals, results = dense_operands(problem, SEED), []
    with patch.dict(os.environ):  # the order is put back
        for order in HOST_ORDERS:
            os.environ[_ORDER] = order
            out = place.guarded(problem)[1]
            plan.run(originals, out)
            results.append(out)
            _check_values(plan, problem, originals, out)
            if plan.deterministic:
                _check_same(results[0], out, "two orders of threads", "look for a barrier that is missing")


def check_offsets(how: Implementation, op: Op, place: Place) -> str | None:
    """Run on the host ring over rows whose offsets 32 bits do not hold; give the reason where that is refused."""
    reasons: list[str] = []
    for dtype in DType:
        problem = far_problem(op, dtype)
        plan = build_plan(how, problem, place)
        if isinstance(plan, str):
            reasons.append(plan)
            continue
        with tempfile.TemporaryDirectory() as folder:
            operands, out = far_operands(problem, Path(folder) / "operand"), place.guarded(problem)[1]
            try:
                plan.run(operands, out)
                _check_values(plan, problem, operands, out)
            except (KernelFault, NonconformingError) as error:
                raise NonconformingError(
                    "a right result where the elements of an operand are more than 2^31",
                    str(error),
                    "compute offsets such as row * J in 64 bits",
                ) from error
    return reasons[0] if len(reasons) == len(DType) else None


def check_account(plan: Plan, problem: Problem) -> None:
    """Check what a plan says of itself: phases, elements that it stores, bytes that it holds."""
    phases, nnz = plan.phases_s, problem.matrix.nnz
    if unknown := sorted(set(phases) - set(PHASES)):
        raise NonconformingError(
            f"phases_s with keys out of {', '.join(PHASES)}", ", ".join(unknown), "use `with self.phase(...)` of Built"
        )
    if not all(seconds >= 0 for seconds in phases.values()):
        raise NonconformingError("seconds of at least 0 in phases_s", str(dict(phases)), "measure with perf_counter")
    for name, remedy in (("stored", "count padding, too"), ("device_bytes", "add up the plan's arrays")):
        held = getattr(plan, name)
        if not held >= nnz:
            raise NonconformingError(f"{name} of at least {nnz}, the non-zeros", repr(held), remedy)


def check_refuses(fault: str, plan: Plan, problem: Problem, place: Place) -> None:
    """Hand over one wrong array after the other, each in one way of `WRONG_ARRAYS`: every run has to refuse it."""
    good = [place.upload(operand) for operand in dense_operands(problem, SEED)]
    good.append(place.xp.full(problem.out_shape, _UNTOUCHED, problem.dtype.numpy))
    for position, array in enumerate(good):
        arrays = [*good[:position], WRONG_ARRAYS[fault](place, array), *good[position + 1 :]]
        _check_refused(plan, arrays[:-1], arrays[-1], f"array {position} of {len(good)} ({fault})", "expected")
        if not (place.download(good[-1]) == _UNTOUCHED).all():
            raise NonconformingError(
                "a refused run to write nothing", "another result than before", "check all arrays before the launch"
            )


def check_refuses_number_and_overlap(plan: Plan, problem: Problem, place: Place) -> None:
    """Hand over an operand too many, and a result in the memory of an operand."""
    operands = [place.upload(operand) for operand in dense_operands(problem, SEED)]
    _, out = place.guarded(problem)
    _check_refused(plan, [*operands, operands[0]], out, "an operand too many", "operands")
    size, first = int(np.prod(problem.out_shape)), operands[0]
    held = place.xp.zeros(size + first.size, problem.dtype.numpy)
    inside = held[: first.size].reshape(first.shape)
    overlapping = held[first.size - 4 :][:size].reshape(problem.out_shape)
    what = "a result that overlaps an operand"
    _check_refused(plan, [inside, *operands[1:]], overlapping, what, "memory of its own")


def check_capture(plan: Plan, problem: Problem, place: Place) -> None:
    """Capture a run in a CUDA graph, which an allocation, a synchronisation or a launch on another stream breaks.

    The graph is replayed over other values at the same addresses.
    """
    originals, others = dense_operands(problem, SEED), dense_operands(problem, SEED + 1)
    operands = [place.upload(operand) for operand in originals]
    _, out = place.guarded(problem)
    with place.xp.cuda.Stream(non_blocking=True) as stream:
        plan.run(operands, out)
        stream.synchronize()
        before = place.download(out).copy()
        stream.begin_capture()
        try:
            plan.run(operands, out)
            graph = stream.end_capture()
        except Exception as error:
            with suppress(Exception):
                stream.end_capture()
            raise NonconformingError(
                "a run that a CUDA graph captures",
                f"{type(error).__name__}: {error}",
                "allocate and synchronise in build, and launch on the current stream",
            ) from error
        out.fill(problem.dtype.nan)
        for operand, other in zip(operands, others, strict=True):
            operand.set(other)
        graph.launch(stream)
        stream.synchronize()
    _check_follows(plan, problem, others, place.download(out), before)


def _check_values(plan: Plan, problem: Problem, operands: Sequence[NDArray[Any]], out: NDArray[Any]) -> None:
    """Hold a result on the host, which was NaN before, against float64."""
    missing = np.argwhere(np.isnan(problem.dtype.numbers(out)))
    if missing.size:
        raise NonconformingError(
            "a complete result",
            f"{len(missing)} elements of `out` that the run left unwritten, or NaN, the first at "
            f"{tuple(map(int, missing[0]))}",
            "write the rows that A leaves empty, and clear what is accumulated, inside of run",
        )
    expected = reference(problem, operands)
    selected = expected.select(problem, out, plan.order)
    worst = expected.max_error(selected)
    wrong = why_wrong(problem, worst, 0, plan.half_sums)
    if wrong is None:
        return
    selected = problem.dtype.numbers(selected)
    difference = np.abs(selected - expected.result)
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(difference), np.inf, difference))), difference.shape)
    limit, _, error = wrong.removeprefix("expected ").partition(", found ")
    raise NonconformingError(
        limit,
        f"{error}; the worst element is {tuple(map(int, at))}, {expected.result[at]:.6g} in float64, "
        f"{selected[at]:.6g} here",
        _remedy(worst, problem),
    )


def _remedy(error: float, problem: Problem) -> str:
    """Say what to look at: rounding to 16 bits explains errors of some times its unit, and nothing larger."""
    unit = 2.0 ** -min(DType.FLOAT16.digits, problem.dtype.digits)
    if error <= unit * max(1.0, float(np.sqrt(problem.width + problem.matrix.row_lengths.max(initial=0)))):
        return "accumulate in float32, and compare this element by hand"
    return "compare this element by hand: rounding does not explain it, a term or a factor that is wrong does"


def _check_same(one: NDArray[Any], other: NDArray[Any], what: str, remedy: str) -> None:
    bits = f"u{one.itemsize}"
    differ = int(np.count_nonzero(one.view(bits) != other.view(bits)))
    if differ:
        raise NonconformingError(f"{what} to give the same bits", f"{differ} elements that differ", remedy)


def _check_refused(plan: Plan, operands: Sequence[Any], out: Any, what: str, word: str) -> None:
    expected, found = f"an OperandError for {what}", "a run"
    cause: Exception | None = None
    try:
        plan.run(operands, out)
    except OperandError as error:
        if word in str(error):
            return
        expected, found, cause = f"an OperandError that speaks of {word!r} for {what}", str(error), error
    except Exception as error:
        found, cause = f"{type(error).__name__}: {error}", error
    remedy = "call check_operands (spmark.impls.core.operands), or derive from DevicePlan or HostPlan"
    raise NonconformingError(expected, found, remedy) from cause


def _misaligned(place: Place, array: Any) -> Any:
    """Give an array of the same shape one byte past an aligned address."""
    buffer = place.xp.zeros(array.nbytes + GUARD, np.uint8)
    if place.xp is np:
        return np.ndarray(array.shape, array.dtype, buffer.data, 1)
    return place.xp.ndarray(array.shape, array.dtype, buffer.data + 1)


def _elsewhere(place: Place, array: Any) -> Any:
    """Give an array of the host where a GPU's is expected, and the other way round."""
    if place.xp is not np:
        return place.download(array)
    facts = {"shape": array.shape, "typestr": array.dtype.str, "data": (256, False), "version": 3}
    return SimpleNamespace(__cuda_array_interface__=facts)


WRONG_ARRAYS: Mapping[str, Callable[[Place, Any], Any]] = {
    "transposed": lambda place, array: place.xp.ascontiguousarray(array.T) if array.ndim > 1 else array[:-1],
    "widened": lambda place, array: array.astype(np.float64),
    "every_second": lambda place, array: place.xp.repeat(array, 2, axis=-1)[..., ::2],
    "misaligned": _misaligned,
    "elsewhere": _elsewhere,
    "plain_list": lambda place, array: place.download(array).tolist(),
}
"""Ways in which an array is wrong: another shape, dtype, layout, alignment, device, or no array at all."""


_ONE = "empty_rows-J20"
"""Part of the names of problems that are taken where one problem is enough."""
_MOST_CONFIGS = 16
"""Configs of a CUDA file that are checked."""


@dataclass(frozen=True)
class Flaw:
    """What is wrong on one problem."""

    rule: str
    problem: str
    expected: str
    found: str
    remedy: str


@dataclass
class Conformance:
    """What was found on one device."""

    device: str
    kind: str
    config: dict[str, Any]
    checked: int = 0
    """Checks that were made."""
    refused: dict[str, str] = field(default_factory=dict)
    """The implementation's reasons for problems that it does not take."""
    flaws: list[Flaw] = field(default_factory=list)
    lost: bool = False
    """A fault ended the checks: the GPU computes nothing more in this process."""


class _LostError(Exception):
    """A GPU computes nothing more in this process."""


def check_implementation(name: str, device: str, as_json: bool) -> bool:
    """Check an implementation where it says that it runs, and show what is wrong; tells whether nothing is.

    Parameters
    ----------
    name : str
        A name of the table, or a class in a file.
    device : str
        As `spmark.impls.runtime.device.find` takes it; ``auto`` means every device that the class names and that is
        here.

    Raises
    ------
    SweepError
        The class cannot be used, or a file is named without a class.
    DeviceError
        The implementation runs on no device that is here, not on the device that was asked for, or lacks a package.
    """
    from spmark.impls.runtime.device import find

    if name.endswith(".py"):
        raise SweepError(f"{name}: expected a class in the file, found its path alone; add the class: {name}:MyKernel")
    faulthandler.enable()  # a kernel may end this process
    screen, chosen = console(as_json), name_of(name)
    how = make(chosen, {})
    if isinstance(how, str):
        raise DeviceError(f"{name}: {how}")
    configs, legal = chosen_configs(how)
    absent: dict[str, str] = {}
    found = []
    for kind in sorted(how.devices) if device == "auto" else [DeviceKind(device)]:
        if kind not in how.devices:
            runs_on = ", ".join(sorted(how.devices))
            raise DeviceError(f"{how.name}: expected a device out of its devices {runs_on}, found {kind}")
        try:
            spec = find(kind.value)
        except DeviceError as error:
            absent[str(kind)] = str(error)
            continue
        for config in configs:
            pinned = f" with {', '.join(f'{one} = {value}' for one, value in config.items())}" * bool(config)
            say(screen, f"[bold]{escape(how.name)}[/bold]{escape(pinned)} on {escape(spec.name)}")
            found.append(judge(create(chosen, config), spec, config))
            _show(found[-1], screen)
            if found[-1].lost:
                break
        if legal is not None:
            checked = sum(told.kind == kind for told in found)
            say(screen, f"{checked} of {legal} legal configs checked")
    for kind_name, reason in absent.items():
        say(screen, f"[yellow]not checked on {kind_name}:[/yellow] {escape(reason)}")
    if not found:
        raise DeviceError(
            f"{how.name}: expected one of its devices to be here, found none: {'; '.join(absent.values())}"
        )
    passed = not any(told.flaws for told in found)
    if as_json:
        devices = [asdict(told) for told in found]
        answer(
            {
                "implementation": how.name,
                "passed": passed,
                "legal_configs": legal,
                "devices": devices,
                "absent": absent,
            }
        )
    return passed


def chosen_configs(how: Implementation) -> tuple[list[dict[str, Any]], int | None]:
    """Give the configs to check, the default first, and how many are legal, which a class does not say.

    Of a CUDA file all legal configs are checked, or the default and a seeded draw, `_MOST_CONFIGS` in all; of a class
    its defaults alone.
    """
    if not isinstance(how, DeclaredKernel):
        return [{}], None
    default, *others = how.configs()
    drawn = Random(SEED).sample(others, min(len(others), _MOST_CONFIGS - 1))
    return [default, *drawn], 1 + len(others)


def judge(how: Implementation, spec: DeviceSpec, config: dict[str, Any]) -> Conformance:
    """Make every check of an implementation with this config on a device; a fault of a GPU ends the checks.

    Every problem is built and run. What one problem of an operator is enough for comes last.
    """
    told = Conformance(spec.name, str(spec.kind), config)
    place, plans = Place(spec), dict[str, Plan]()
    wanted = {name: problem for name, problem in problems().items() if problem.op in how.ops}
    with suppress(_LostError):
        _attempt(told, "contract", "none", check_contract, how)
        for name, problem in wanted.items():
            built = _attempt(told, "build", name, build_plan, how, problem, place)
            if isinstance(built, str):
                told.refused[name] = built
            elif built is not None:
                plan = plans[name] = built
                _attempt(told, "result", name, check_result, plan, problem, place)
                if spec.kind is DeviceKind.HOST_SIMT and name in ORDERED:
                    _attempt(told, "order", name, check_orders, plan, problem, place)
        if spec.kind is DeviceKind.HOST_SIMT and not told.flaws:  # a plainer fault would be found there again
            for op in sorted(how.ops):
                _attempt(told, "offsets", f"{op}-far", check_offsets, how, op, place)
        for op in sorted(how.ops):
            taken = [name for name in plans if wanted[name].op is op and wanted[name].matrix.nnz > 1]
            one = next((name for name in taken if _ONE in name), next(iter(taken), None))
            if one is not None:
                _check_once(told, one, plans[one], wanted[one], place)
    if not plans and not told.flaws:
        reason = next(iter(told.refused.values()), "no operator")
        taken_none = f"that unsupported refuses all: {reason}"
        told.flaws.append(Flaw("build", "all", "a plan for a tiny problem", taken_none, "mend unsupported"))
    return told


def _check_once(told: Conformance, name: str, plan: Plan, problem: Problem, place: Place) -> None:
    """Make the checks that one problem of an operator is enough for."""
    _attempt(told, "account", name, check_account, plan, problem)
    for fault in WRONG_ARRAYS:
        _attempt(told, "refusal", name, check_refuses, fault, plan, problem, place)
    _attempt(told, "refusal", name, check_refuses_number_and_overlap, plan, problem, place)
    if place.spec.kind is DeviceKind.CUDA:
        _attempt(told, "capture", name, check_capture, plan, problem, place)


def _attempt(told: Conformance, rule: str, name: str, check: Callable[..., Any], *arguments: Any) -> Any:
    """Make one check; an exception becomes a flaw."""
    told.checked += 1
    try:
        return check(*arguments)
    except NonconformingError as error:
        told.flaws.append(Flaw(rule, name, error.expected, error.found, error.remedy))
    except Exception as error:
        wanted, remedy = "no exception", "mend what raises it"
        if rule == "build":
            wanted, remedy = "a plan, or a reason from unsupported", "mend build, or refuse the problem in unsupported"
        told.flaws.append(Flaw(rule, name, wanted, _told(error), remedy))
        if isinstance(error, KernelFault) and told.kind == DeviceKind.CUDA:
            told.lost = True
            raise _LostError from error
    return None


def _told(error: Exception) -> str:
    """Give the message of an exception, with the place that raised it where the exception is not one of spmark's."""
    if isinstance(error, SpmarkError):
        return f"{type(error).__name__}: {error}"
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(at.filename).name}:{at.lineno})"


def _show(told: Conformance, screen: Console) -> None:
    for rule in dict.fromkeys(flaw.rule for flaw in told.flaws):
        flaws = [flaw for flaw in told.flaws if flaw.rule == rule]
        flaw = flaws[0]
        say(screen, f"[red]{rule}[/red] on {escape(flaw.problem)}")
        told_so = f"    expected  {flaw.expected}\n    found     {flaw.found}\n    to do     {flaw.remedy}"
        say(screen, escape(told_so))
        if len(flaws) > 1:
            say(screen, f"    and {len(flaws) - 1} more of {rule}, the next on {flaws[1].problem}; --json lists all")
    for reason, names in groupby(sorted(told.refused, key=told.refused.__getitem__), told.refused.get):
        no_fault = ", which is no fault" * (not told.flaws)
        say(screen, escape(f"{len(list(names))} problems refused{no_fault}: {reason}"))
    ended = f"[red]{len(told.flaws)} failed[/red]" if told.flaws else "[green]all passed[/green]"
    say(screen, f"{told.checked} checks, {ended}")
