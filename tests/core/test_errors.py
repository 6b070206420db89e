from __future__ import annotations

import pickle

from spmark.impls.core import errors
from spmark.impls.core.errors import BuildError, CompileError, SpmarkError


def test_every_error_is_ours() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert len(kinds) >= 9
    assert all(issubclass(kind, SpmarkError) for kind in kinds)


def test_compile_error_survives_the_way_back_from_a_worker() -> None:
    error = CompileError("spmm.cu", "spmm_csr<float, 4>", "spmm.cu(3): error: no\n\n")
    back = pickle.loads(pickle.dumps(error))
    assert isinstance(back, BuildError)
    assert (back.source, back.instance, back.log) == ("spmm.cu", "spmm_csr<float, 4>", "spmm.cu(3): error: no\n\n")
    assert str(back) == "spmm.cu: spmm_csr<float, 4> does not compile\nspmm.cu(3): error: no"
