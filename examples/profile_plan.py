"""Build one plan and run it a few times under a profiler.

Compiling, uploading and making random operands come before the runs. Nothing is timed or checked
here: `spmark run` does both. CONTRIBUTING.md has the command line for ncu.

    python examples/profile_plan.py rowsplit patterns/logsparse_4096 --width 128
"""

from __future__ import annotations

import argparse
import sys

from spmark.datasets.cache import Cache
from spmark.datasets.load import load_matrix
from spmark.datasets.sweep.model import MatrixSpec
from spmark.datasets.sweep.reading import parse_matrix
from spmark.impls.core.operators import random_operands
from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.runtime.device import find
from spmark.impls.runtime.lab import open_lab
from spmark.impls.table import create, name_of


def main() -> None:
    """Run the plan that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("implementation", help="a name, or a class in a file such as ./mine.py:MyKernel")
    parser.add_argument("matrix", help="source/name, or a file")
    parser.add_argument("--op", type=Op, choices=list(Op), default=Op.SPMM)
    parser.add_argument("--width", type=int, default=128, help="J")
    parser.add_argument("--dtype", type=DType, choices=list(DType), default=DType.FLOAT32)
    parser.add_argument("--device", default="cuda", help="cuda, cpu or host-simt")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()

    spec = MatrixSpec.model_validate(parse_matrix(args.matrix))
    problem = Problem(args.op, load_matrix(spec, Cache.default(), 0).csr, args.width, args.dtype)
    device = find(args.device)
    plan = create(name_of(args.implementation)).build(problem, device)

    lab = open_lab(device)
    operands = [lab.empty(shape, problem.dtype.numpy) for shape in problem.operand_shapes]
    for source, operand in zip(random_operands(problem, 0), operands, strict=True):
        lab.draw(source, operand)
    out = lab.empty(problem.out_shape, problem.dtype.numpy)
    for _ in range(args.runs):
        plan.run(operands, out)
    lab.synchronize()
    sys.stdout.write(f"{args.implementation} on {spec.id}: {args.runs} runs of {dict(plan.config)}\n")


if __name__ == "__main__":
    main()
