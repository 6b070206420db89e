"""Helper processes: their answers, their absence on one core, and the message when one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from spmark.impls.core.errors import SpmarkError
from spmark.suite.cli import helpers as module
from spmark.suite.cli.helpers import helpers


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(module, "allowed_cores", lambda: [0, 1])


def test_helpers_are_other_processes(two_cores):
    with helpers() as pool:
        assert pool is not None
        assert list(pool.map(abs, (-1, 2, -3))) == [1, 2, 3]
        assert pool.submit(os.getpid).result() != os.getpid()
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


@pytest.mark.parametrize("at_once", [True, False])
def test_the_process_that_imports_for_all_starts_when_it_is_told(at_once):
    script = (
        "from multiprocessing import forkserver\n"
        "from spmark.suite.cli import helpers as module\n"
        "module.allowed_cores = lambda: [0, 1]\n"
        f"with module.helpers('json', at_once={at_once}):\n"
        "    print(forkserver._forkserver._forkserver_pid is not None)\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == f"{at_once}\n"


def test_a_killed_helper_is_one_message(two_cores):
    with pytest.raises(SpmarkError, match="a helper process was ended from outside"), helpers() as pool:
        pool.submit(os._exit, 1).result()
