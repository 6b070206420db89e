"""A measuring process that is never done being loaded and reads nothing."""

from __future__ import annotations

import time

time.sleep(1000)
