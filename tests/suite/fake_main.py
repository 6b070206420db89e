"""The measuring process with the bench that FAKE_BENCH names (``module:class``) in place of the suite's."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from spmark.suite.run import worker_main

if __name__ == "__main__":
    worker_main.tie(int(sys.argv[2]))
    from spmark.suite import measure

    module, _, name = os.environ.get("FAKE_BENCH", "suite_fakes:FakeBench").partition(":")
    measure.Bench = getattr(import_module(module), name)
    sys.exit(worker_main.main(int(sys.argv[1])))
