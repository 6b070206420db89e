"""Frames of a report hold texts alike, whether PyArrow is installed or not."""

from __future__ import annotations

import pandas as pd
import pytest

from spmark.report.load.each import each
from spmark.report.load.records import load_records
from spmark.report.load.texts import python_texts

pytestmark = pytest.mark.skipif(int(pd.__version__.split(".")[0]) < 3, reason="pandas 2 keeps texts as objects")


def storage() -> str:
    return str(pd.Series(["text"]).dtype.storage)


@pytest.fixture
def with_pyarrow():
    pytest.importorskip("pyarrow")
    with pd.option_context("mode.string_storage", "pyarrow"):
        yield


def test_texts_are_pythons_own_with_pyarrow(with_pyarrow, records, write):
    assert storage() == "pyarrow"
    with python_texts():
        assert storage() == "python"
    assert storage() == "pyarrow"
    assert load_records([write(records.sweep())])["label"].dtype.storage == "python"


def test_tasks_of_helpers_keep_texts_so(with_pyarrow):
    class Here:
        def submit(self, task, *args):
            return type("Done", (), {"result": staticmethod(lambda: task(*args))})

    assert list(each([storage], [1], Here())) == ["python"]
