"""Messages of the program and of its helper processes, on standard error."""

from __future__ import annotations

import logging


class Printable(logging.Formatter):
    """Spells control characters: warnings quote records that others made."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a message in letters that a terminal shows."""
        from spmark.impls.core.names import printable

        return printable(super().format(record), "\n\t")


def log_to_screen(level: int) -> None:
    """Write messages and warnings of at least this level to standard error."""
    handler = logging.StreamHandler()
    handler.setLevel(level)  # a logger of a lower level may have a handler of its own
    handler.setFormatter(Printable("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.captureWarnings(True)  # libraries quote what they draw
    for noisy in ("matplotlib", "numba", "urllib3", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
