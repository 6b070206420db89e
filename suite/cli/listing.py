"""``spmark list``: implementations, data sets, sweeps and devices, each as rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from spmark.impls.core.errors import DatasetError, DeviceError, SweepError
from spmark.impls.core.offers import IMPLEMENTATION_GROUP, SOURCE_GROUP, offers
from spmark.impls.table import IMPLEMENTATIONS
from spmark.suite.cli.cards import ImplementationCard, read_card
from spmark.suite.cli.console import answer, console, say, table

Rows = list[dict[str, Any]]
_SHOWN_NAMES = 6


def listing(what: str, as_json: bool) -> None:
    """List all of ``what``: implementations, datasets, sweeps or devices."""
    rows = _LISTS[what]()
    screen = console(as_json)
    if as_json:
        answer(rows)
    elif what == "datasets":
        _show_sources(rows, screen)
    else:
        joined = [
            {key: _joined(value) if isinstance(value, list) else value for key, value in row.items()} for row in rows
        ]
        screen.print(table("", joined, plain=True))


def implementations() -> Rows:
    """Give every implementation with what it computes and where it runs; ``doctor`` tells what is usable here.

    What an installed distribution offers is not imported, so that its operators and devices are not known.
    """
    own = [{"name": name, **asdict(read_card(name))} for name in IMPLEMENTATIONS]
    cards = {
        name: ImplementationCard([], [], _offered_by(IMPLEMENTATION_GROUP, name))
        for name in offers(IMPLEMENTATION_GROUP)
    }
    return own + [{"name": name, **asdict(card)} for name, card in cards.items()]


def datasets() -> Rows:
    """Give every source with what it holds, its licence and its citation."""
    from spmark.datasets.cache import Cache
    from spmark.datasets.sources.table import SOURCES, find_source

    cache = Cache.default()
    rows: Rows = []
    for name in SOURCES:
        source = find_source(name)
        try:
            names = list(source.names(cache))
        except DatasetError as error:
            names = [f"({error})"]
        row = {
            "source": name,
            "title": source.title,
            "names": names,
            "licence": source.licence,
            "citation": source.citation,
            "url": source.url,
        }
        rows.append(row)
    blank = {"names": [], "licence": "not known", "citation": "", "url": ""}
    return rows + [{"source": name, "title": _offered_by(SOURCE_GROUP, name), **blank} for name in offers(SOURCE_GROUP)]


def _offered_by(group: str, name: str) -> str:
    """Say who offers a name."""
    return "offered by " + " and ".join(f"{offer.owner} ({offer.entry})" for offer in offers(group)[name])


def _show_sources(rows: Rows, screen: Console) -> None:
    """Write a paragraph for each source: citations are too long for a table."""
    for row in rows:
        say(screen, f"[bold]{escape(row['source'])}[/bold]: {escape(row['title'])}; licence: {escape(row['licence'])}")
        for text in (_joined(row["names"], _SHOWN_NAMES), row["citation"], row["url"]):
            if text:
                say(screen, f"    {escape(text)}")


def sweeps() -> Rows:
    """Give every packaged sweep with its size."""
    from spmark.datasets.sweep.model import Sweep
    from spmark.datasets.sweep.reading import packaged_sweeps

    rows: Rows = []
    for name, path in packaged_sweeps().items():
        try:
            sweep = Sweep.load(path)
        except (SweepError, DatasetError) as error:
            rows.append({"name": name, "title": f"({error})", "ops": [], "matrices": None, "implementations": None})
            continue
        row = {
            "name": name,
            "title": sweep.title,
            "ops": list(sweep.ops),
            "matrices": len(sweep.matrices),
            "implementations": len(sweep.implementations),
        }
        rows.append(row)
    return rows


def devices() -> Rows:
    """Give every kind of device: its name here, or why this machine has none."""
    from spmark.impls.runtime.device import NAMES, find

    rows: Rows = []
    for name in NAMES:
        try:
            spec = find(name)
        except DeviceError as error:
            rows.append({"device": name, "name": "", "arch": "", "memory (GB)": None, "state": str(error)})
            continue
        memory = round(spec.memory_bytes / 1e9, 1)
        rows.append({"device": name, "name": spec.name, "arch": spec.arch, "memory (GB)": memory, "state": "usable"})
    return rows


def _joined(words: Sequence[Any], most: int | None = None) -> str:
    more = len(words) - most if most is not None else 0
    return ", ".join(str(word) for word in words[:most]) + (f" and {more} more" if more > 0 else "")


_LISTS: dict[str, Callable[[], Rows]] = {
    "implementations": implementations,
    "datasets": datasets,
    "sweeps": sweeps,
    "devices": devices,
}
