"""How to install an extra, for messages."""

from __future__ import annotations


def how_to_install(*extras: str) -> str:
    """Give the command that adds one of ``extras``.

    No package registry has spmark: a command that named the package would install what a stranger published.
    """
    return " or ".join(f"pip install -e '.[{extra}]'" for extra in extras) + " in a checkout"
