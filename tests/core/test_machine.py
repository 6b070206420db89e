"""Numbers that the environment sets: the default where nothing is said, and an error for what is no positive number."""

from __future__ import annotations

import pytest

from spmark.impls.core.errors import BuildError, DatasetError, SpmarkError
from spmark.impls.core.machine import positive_number


@pytest.mark.parametrize(("text", "number"), [(None, 2.5), ("", 2.5), ("3", 3), (" 0.5 ", 0.5), ("1e3", 1000)])
def test_a_number_is_read(text: str | None, number: float, monkeypatch: pytest.MonkeyPatch) -> None:
    if text is None:
        monkeypatch.delenv("SPMARK_SOMETHING", raising=False)
    else:
        monkeypatch.setenv("SPMARK_SOMETHING", text)
    assert positive_number("SPMARK_SOMETHING", 2.5, "GiB", BuildError) == number


@pytest.mark.parametrize("error", [BuildError, DatasetError])
@pytest.mark.parametrize("text", ["x", "0", "-3", "nan", "inf", "1e10"])
def test_anything_else_is_an_error(text: str, error: type[SpmarkError], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPMARK_SOMETHING", text)
    with pytest.raises(error, match=f"SPMARK_SOMETHING: expected a positive number of MiB, found '{text}'"):
        positive_number("SPMARK_SOMETHING", 2.5, "MiB", error)
