from __future__ import annotations

import builtins
from importlib.util import find_spec
from typing import Any

import pytest
from problems import problems

from spmark.impls.core import errors
from spmark.impls.core.errors import BuildError
from spmark.impls.dgl import plan as module
from spmark.impls.dgl.plan import Dgl
from spmark.impls.runtime.device import find
from spmark.impls.runtime.withtorch import load_torch

UNSCALED = problems()["spmm-hub-J32-float32"]


@pytest.fixture(autouse=True)
def forget() -> Any:
    module.missing.cache_clear()
    yield
    module.missing.cache_clear()


def test_absence_is_a_reason_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda name: None if name == "dgl" else object())
    reason = Dgl().unsupported(UNSCALED, find("cpu"))
    assert reason == "dgl is not installed: pip install -e '.[dgl]' in a checkout, with Python 3.11"
    with pytest.raises(BuildError, match="dgl: dgl is not installed"):
        Dgl().build(UNSCALED, find("cpu"))


def test_an_import_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def broken(name: str, *args: Any, **keywords: Any) -> Any:
        if name in ("torch", "dgl"):
            raise OSError("libdgl.so: undefined symbol\nmore of it")
        return real(name, *args, **keywords)

    monkeypatch.setattr(errors, "find_spec", lambda name: object())
    monkeypatch.setattr(builtins, "__import__", broken)
    reason = Dgl().unsupported(UNSCALED, find("cpu"))
    assert reason == "dgl does not import: OSError: libdgl.so: undefined symbol"


def test_what_dgl_cannot_do_is_said_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "missing", lambda kind: pytest.fail("imported"))
    scaled = problems()["sddmm_scaled-hub-J32-float32"]
    assert Dgl().unsupported(scaled, find("cpu")) == "DGL's u_dot_v does not multiply by A"
    assert Dgl().unsupported(problems()["spmm-hub-J32-float16"], find("cpu")) == "DGL has no float16 on the CPU"
    monkeypatch.undo()


@pytest.mark.skipif(find_spec("dgl") is None, reason="dgl is not installed")
def test_gives_what_the_public_operators_give() -> None:
    dgl, torch = module.load_dgl(), load_torch()
    for name in ("spmm-hub-J32-float32", "sddmm-hub-J32-float32"):
        problem = problems()[name]
        matrix = problem.matrix
        edges = torch.tensor(matrix.indices), torch.tensor(matrix.rows_of_entries())
        graph = dgl.heterograph({("c", "a", "r"): edges}, {"c": matrix.num_cols, "r": matrix.num_rows})
        operands = [torch.rand(shape, generator=torch.Generator().manual_seed(1)) for shape in problem.operand_shapes]
        if len(operands) == 1:
            expected = dgl.ops.u_mul_e_sum(graph, operands[0], torch.tensor(problem.values)[:, None])
        else:
            expected = dgl.ops.u_dot_v(graph, operands[1], operands[0])[:, 0]
        out = torch.full(problem.out_shape, float("nan")).numpy()
        Dgl().build(problem, find("cpu")).run([operand.numpy() for operand in operands], out)
        torch.testing.assert_close(torch.from_numpy(out), expected, rtol=0, atol=0)
