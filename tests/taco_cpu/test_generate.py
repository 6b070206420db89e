"""Generated loop nests against the float64 reference, under sanitizers, for every legal order of loops."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from problems import dense_operands, random_csr
from taco_nests import every_nest
from taco_sanitized import compile_nests, run_nests

from spmark.impls.core.operators import reference
from spmark.impls.core.problem import Csr, Op, Problem
from spmark.impls.core.tolerance import tolerance
from spmark.impls.taco_cpu.generate import generate
from spmark.impls.taco_cpu.space import CSR, Nest, nest_of

pytestmark = pytest.mark.full

BATCH = 60
"""Nests of one executable."""


@cache
def matrices() -> dict[str, Csr]:
    """Give shapes that no split divides, empty rows and columns, and the smallest matrices."""
    return {
        "odd": random_csr(11, 13, [3, 0, 13, 1, 4, 0, 0, 2, 7, 5, 1]),
        "one_row": random_csr(1, 9, [4]),
        "one_column": random_csr(7, 1, [1, 0, 1, 1, 0, 0, 1]),
        "no_nonzeros": random_csr(5, 4, [0] * 5),
        "one_by_one": random_csr(1, 1, [1]),
    }


def cases(op: Op) -> list[Problem]:
    """Give small problems: J below, at and above a split, and none of its multiples."""
    scales = [False, True] if op is Op.SDDMM else [False]
    odd = [Problem(op, matrices()["odd"], width, scaled=scaled) for width in (1, 11) for scaled in scales]
    return [*odd, *(Problem(op, matrix, 5, scaled=scales[-1]) for matrix in matrices().values())]


def check_nests(op: Op, nests: Sequence[Nest], folder: Path) -> None:
    """Run nests on all small problems and hold every result against the reference."""
    executable = folder / "nests"
    compile_nests(nests, executable)
    inputs = [(problem, dense_operands(problem)) for problem in cases(op)]
    expected = [reference(problem, operands) for problem, operands in inputs]
    requests = [
        (number, nest, every_nest(op)[nest], problem, operands)
        for number, nest in enumerate(nests)
        for problem, operands in inputs
    ]
    results = run_nests(executable, requests)
    for at, (_, nest, config, problem, _) in enumerate(requests):
        if results[at].size:
            error = expected[at % len(inputs)].max_error(results[at])
            assert error <= tolerance(problem), (nest.name, config, problem.matrix.shape, problem.width)


@pytest.mark.full
@pytest.mark.parametrize(("op", "start"), [(op, start) for op in Op for start in range(0, len(every_nest(op)), BATCH)])
def test_every_nest_gives_the_result_under_sanitizers(op: Op, start: int, tmp_path: Path) -> None:
    check_nests(op, list(every_nest(op))[start : start + BATCH], tmp_path)


@pytest.mark.parametrize("op", Op)
def test_one_loop_is_parallel_and_the_innermost_runs_in_vectors(op: Op) -> None:
    for nest in every_nest(op):
        text = generate(nest)
        loop, innermost = nest.parallel, nest.loops[-1]
        counter = f"p_{loop}" if loop in nest.compressed else loop
        assert text.count("schedule(dynamic, chunk)") == 1
        after = text.split("schedule(dynamic, chunk)\n")[1].lstrip()
        assert after.startswith(f"for (int64_t {counter} =")
        assert text.split("#pragma omp simd")[1].split("\n")[1].lstrip().startswith(f"for (int64_t {innermost} =")
        assert "reduction(+ : sum)" in text or op is Op.SPMM


def test_a_fault_of_a_nest_is_seen(tmp_path: Path) -> None:
    """A column beyond B: the sanitizer ends the child, and the report names the line."""
    nest = nest_of(Op.SPMM, CSR)
    compile_nests([nest], tmp_path / "nests")
    matrix = random_csr(3, 9, [2, 1, 3])
    problem = Problem(Op.SPMM, matrix, 8)
    short = [np.zeros((matrix.indices.max(), 8), np.float32)]
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        run_nests(tmp_path / "nests", [(0, nest, dict(CSR), problem, short)])
