"""The walk-throughs for contributors: code that they show works with today's tree."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from compilers import needs_compilers
from problems import random_csr, run_checked
from scripts_by_name import load_script

from spmark.impls.core.problem import DType, Op, Problem
from spmark.impls.kernels.shared_rows import ZERO_ROWS
from spmark.impls.runtime.device import find
from spmark.report.analysis.cases import derive
from spmark.report.records import current, load_records

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]


def blocks(page: str, language: str = "python") -> list[str]:
    """Give a walk-through's blocks of code."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / f"docs/howto/contribute-{page}.md").read_text(), re.DOTALL)


def test_the_kernel_gives_right_results_on_the_host(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir()
    shutil.copy(ROOT / "examples/mykernel/spmm_naive.cu", folder / "spmm.cu")
    (tmp_path / "elementwise.py").write_text(blocks("kernel")[0])
    made = load_script("elementwise", tmp_path).Elementwise(threads=128)
    problem = Problem(Op.SPMM, random_csr(25, 97, [0, 1, 5, 97, 0, 3] * 4 + [2]), 13, DType.FLOAT16)
    run_checked(made.build(problem, find("host-simt")), problem)


def test_the_line_to_change_is_in_the_kernel() -> None:
    (line,) = blocks("change", "cpp")
    assert line in (ROOT / "impls/rowsplit/kernels/spmm.cu").read_text().replace("\n  ", "\n")


@needs_compilers
def test_what_an_instance_takes_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("spmark.impls.table.create", lambda _: SimpleNamespace(kernels=(ZERO_ROWS,)))
    exec(blocks("change")[0], {})
    lines = [line.rsplit(" ", 3) for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == [instance.expression for instance in ZERO_ROWS.instances()]
    assert all(int(registers) > 0 and int(spilled) == 0 for _, registers, spilled, _ in lines)


def test_the_figure_draws_published_records() -> None:
    records = current(load_records([ROOT / "report/reference/h200/liteform_dense_pieces"]))
    module: dict[str, Any] = {}
    exec(blocks("figure")[1], module)
    derived = derive(records, "cusparse_best")
    plot = module["padding"](derived, "cusparse_best")
    assert f"{len(plot.data)} cases" in plot.caption
    assert plot.data["label"].nunique() > 1
    assert (plot.data["padding"] >= 0).all()
