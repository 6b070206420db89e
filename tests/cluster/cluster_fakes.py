"""What a worker of a test's cluster imports first: the fake implementation, on a device that each worker has.

``FAKE_WORKERS`` holds what is wrong with a worker, by its number: ``other`` has another driver, ``dead`` a device that
does not compute, ``skewed`` a clock that is a day ahead, ``slow`` a device that takes ten times as long, ``apart`` a
cache that nobody else sees.
"""

from __future__ import annotations

import json
import os
import time

import suite_fakes

from spmark.suite.cluster import work
from spmark.suite.run.share import share

wrong = json.loads(os.environ.get("FAKE_WORKERS", "{}")).get(str(share()[0]))
work.find = lambda device: suite_fakes.CPU
work.calibrated = lambda spec: spec
work.collect = lambda spec, library: suite_fakes.environment(driver="1.0" if wrong == "other" else "")
suite_fakes.register()
if wrong == "dead":
    os.environ["FAKE_DEAD"] = __file__
if wrong == "skewed":
    clock = time.time
    time.time = lambda: clock() + 86400
if wrong == "apart":
    os.environ["SPMARK_CACHE"] = os.environ["FAKE_CACHE"]
if wrong == "slow":
    os.environ["FAKE_FACTOR"] = "10"
