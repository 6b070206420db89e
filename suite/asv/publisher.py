"""Our part of the published site: a page of speed-ups and search times, and no script from elsewhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, ClassVar

from asv.console import log
from asv.publishing import OutputPublisher

from spmark.impls.core.errors import SpmarkError
from spmark.suite.asv.site import add_link, add_speedups, draw_lone_values, vendor


class Speedups(OutputPublisher):  # type: ignore[misc]
    """The report of all result files, beside airspeed velocity's own pages."""

    name: ClassVar[str] = "speedups"
    button_label: ClassVar[str] = "Speed-ups"
    description: ClassVar[str] = "Speed-ups over the baseline and what building costs"
    order: ClassVar[int] = 100

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
        """Write ``speedups/index.html`` and link it from the navigation."""
        html = Path(conf.html_dir)
        # asv prints the messages of all loggers without their arguments.
        logging.getLogger("spmark.report").setLevel(logging.WARNING)
        if add_speedups(Path(conf.results_dir), html):
            add_link(html, "speedups/index.html", cls.button_label)
        else:
            log.warning("no result of a sweep or of the live set: no page of speed-ups")


class Vendored(OutputPublisher):  # type: ignore[misc]
    """Scripts and styles that airspeed velocity loads from elsewhere, copied into the site."""

    name: ClassVar[str] = "vendored"
    button_label: ClassVar[str] = ""
    description: ClassVar[str] = ""
    order: ClassVar[int] = 101

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
        """Make the site open without a network, or say why it cannot."""
        try:
            vendor(Path(conf.html_dir), Path(conf.results_dir).parent / "vendor")
        except SpmarkError as error:
            log.warning(f"the site will load scripts from the network: {error}")


class LoneValues(OutputPublisher):  # type: ignore[misc]
    """Points for benchmarks that one commit alone has values of; airspeed velocity draws nothing for these."""

    name: ClassVar[str] = "lone values"
    button_label: ClassVar[str] = ""
    description: ClassVar[str] = ""
    order: ClassVar[int] = 102

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Any) -> None:
        """Change the grid's script, or say why it stays."""
        try:
            draw_lone_values(Path(conf.html_dir))
        except SpmarkError as error:
            log.warning(f"the grid leaves benchmarks of one commit empty: {error}")
