"""scripts/sanitize.py: which problems the tools see; the plain kernels run here on the host."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from scripts_by_name import load_script

from spmark.impls.core.problem import DType, Op
from spmark.impls.core.relational import RelationalOp
from spmark.impls.kernels.plain import PlainPlan
from spmark.impls.runtime.device import find


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("sanitize")


def test_every_operator_and_type_is_seen(script: ModuleType) -> None:
    tiny, plain = script.tiny_problems("direct"), script.tiny_problems("plain")
    assert {(one.op, one.scaled, one.dtype) for one in tiny} == {
        (op, scaled, dtype) for op, scaled in ((Op.SPMM, False), (Op.SDDMM, False), (Op.SDDMM, True)) for dtype in DType
    }
    assert {one.dtype for one in plain} == {np.dtype(np.float64)}
    assert len(plain) * len(DType) == len(tiny)


def test_the_plain_kernels_are_among_the_names(script: ModuleType) -> None:
    assert script.names_for_gpus()[-1] == "plain"
    assert {"direct", "sparsetir"} <= set(script.names_for_gpus())


def test_the_plain_kernels_are_checked(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = script.tiny_problems("plain")[::3]
    assert script.check_plain(find("host-simt"), problems) == len(problems) == 6
    run = PlainPlan.run

    def wrong(self: PlainPlan, operands: list[np.ndarray], out: np.ndarray) -> None:
        run(self, operands, out)
        out[0] += 1

    monkeypatch.setattr(PlainPlan, "run", wrong)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        script.check_plain(find("host-simt"), problems[:1])


def test_rgms_is_seen(script: ModuleType) -> None:
    assert "rgms_hyb" in script.names_for_gpus()
    assert {(one.op, one.dtype) for one in script.tiny_problems("rgms_hyb")} == {(RelationalOp.RGMS, d) for d in DType}
