"""Names that come out of files, made safe for where they go: a path, a terminal, the command line of git.

Records travel between machines, so a device, a sweep, a matrix or a commit in them may be any text.
"""

from __future__ import annotations

import hashlib
import re

_LONGEST = 80
_DIGITS = 8
_COMPONENT = re.compile(rf"[A-Za-z0-9_](?:[A-Za-z0-9._@+-]{{0,{_LONGEST - 2}}}[A-Za-z0-9_@+-])?")
_UNSAFE = re.compile(r"[^A-Za-z0-9._@+-]+")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def path_component(name: str) -> str:
    """Give the name of one file or folder for any name.

    Parameters
    ----------
    name : str
        Any text, such as the device of a record.

    Returns
    -------
    str
        ``name`` itself where it is a safe component: at most 80 ASCII letters, digits and ``._@+-`` that begin with a
        letter, a digit or ``_`` and do not end with a dot. Else its safe letters and eight digits of its SHA-256, which
        keep names apart whose safe letters are the same.
    """
    if _COMPONENT.fullmatch(name):
        return name
    readable = _UNSAFE.sub("-", name).strip("-.@+")[:_LONGEST].rstrip("-.")
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{readable}-{digest}" if readable else f"name-{digest}"


def printable(text: str, kept: str = "") -> str:
    r"""Give text that a terminal shows and does not obey.

    Parameters
    ----------
    text : str
        Any text.
    kept : str
        Control characters that stay, such as ``"\n"`` for text of several lines.

    Returns
    -------
    str
        ``text`` with its control characters, escapes, marks of writing direction and halves of surrogate pairs spelled
        as Python spells them: ``\x1b``, ``\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )


def is_commit(text: str) -> bool:
    """Tell whether text can be the hash of a commit: 7 to 64 hexadecimal digits in lower case."""
    return _COMMIT.fullmatch(text) is not None
