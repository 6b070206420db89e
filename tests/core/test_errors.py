from __future__ import annotations

import pickle

from spmark.impls.core.errors import BuildError, CompileError


def test_compile_error_survives_the_way_back_from_a_worker() -> None:
    error = CompileError("spmm.cu", "spmm_csr<float, 4>", "spmm.cu(3): error: no\n\n")
    back = pickle.loads(pickle.dumps(error))
    assert isinstance(back, BuildError)
    assert (back.source, back.instance, back.log) == ("spmm.cu", "spmm_csr<float, 4>", "spmm.cu(3): error: no\n\n")
    assert str(back) == "spmm.cu: spmm_csr<float, 4> does not compile\nspmm.cu(3): error: no"
