"""The types of errors, and what messages share: each says what was expected, what was found and where.

Messages that refuse a value have a hint where a name is misspelt, and say how to install what is missing.

The suite turns these into rows of the records (`spmark.records.schema.Status`) or into exit codes; nothing else
catches them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import Field
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from inspect import formatannotation
from numbers import Integral, Real
from typing import Any


class SpmarkError(Exception):
    """Base of every error that spmark raises on purpose."""


class MatrixError(SpmarkError, ValueError):
    """A sparse matrix is not a canonical CSR (shape, order, range or values are off)."""


class ProblemError(SpmarkError, ValueError):
    """An operator, a width, a dtype or their combination cannot be computed."""


class OperandError(SpmarkError, ValueError):
    """An operand or a result buffer has the wrong shape, dtype, layout, alignment or device."""


class DatasetError(SpmarkError):
    """A matrix could not be fetched, verified, read or generated."""


class SweepError(SpmarkError, ValueError):
    """A sweep file, or an override on the command line, is wrong or incomplete."""


class RecordError(SpmarkError):
    """A record file cannot be read, written or locked."""


class DeviceError(SpmarkError):
    """A device, a driver or a device specification is missing or does not fit."""


class BuildError(SpmarkError):
    """A plan could not be built; carries the file, the template arguments and the compiler's log where it has them."""


class UnsupportedError(BuildError):
    """A library refused the problem while it was built: a row with status unsupported, not a failure of ours."""


class CompileError(BuildError):
    """A kernel did not compile.

    Parameters
    ----------
    source : str
        The file that was compiled.
    instance : str
        The kernel with its template arguments, as the compiler was asked for it.
    log : str
        The compiler's messages.
    """

    def __init__(self, source: str, instance: str, log: str) -> None:
        self.source, self.instance, self.log = source, instance, log
        super().__init__(f"{source}: {instance} does not compile\n{log.strip()}")


class KernelFault(SpmarkError, RuntimeError):
    """A kernel did something illegal while it ran (out-of-bounds access, missed barrier, sticky CUDA error)."""


_LONGEST = 100
"""Letters that are compared: the time grows with their square, and every known name is shorter."""
_TYPES: Mapping[str, tuple[type, str]] = {
    "None": (type(None), "null"),
    "bool": (bool, "true or false"),
    "int": (Integral, "an integer, written in digits"),
    "float": (Real, "a number, written in digits"),
    "str": (str, "a text"),
}
"""What an annotation asks of a value, by its words. The abstract types take NumPy's numbers, too."""


def near(found: str, known: Iterable[str]) -> str:
    """Give the hint `` (did you mean ...?)`` where a known name is spelt much like ``found``, else an empty string.

    Few misspell the first letter, and names with other digits mean other things: a GPU is no CPU, an A100 no H200.
    """
    found = found[:_LONGEST]
    alike = [name for name in known if _not_misspelt(name) == _not_misspelt(found)]
    matches = get_close_matches(found, alike, 1)
    return f" (did you mean {matches[0]}?)" if matches else ""


def _not_misspelt(name: str) -> tuple[str, list[str]]:
    return name[:1].casefold(), sorted(filter(str.isdigit, name))


def none_of(what: str, found: object, known: Iterable[object]) -> str:
    """Give the message that refuses ``found``: ``expected a source out of snap, ogb, found 'snp' (did you ...?)``.

    Parameters
    ----------
    what : str
        What the known values are, after the word "expected".
    found : object
        The refused value; only a text gets a hint.
    known : iterable of str or numbers
    """
    names = [str(one) for one in known]
    hint = near(found, names) if isinstance(found, str) else ""
    return f"expected {what} out of {', '.join(names)}, found {found!r}{hint}"


def check_choices(config: object, **known: Iterable[object]) -> None:
    """Refuse a config in which a tunable has a value outside of those known for its name.

    Raises
    ------
    ValueError
        Names the tunable, its known values and the value that was found.
    """
    for name, values in known.items():
        legal, value = list(values), getattr(config, name)
        if value not in legal:
            raise ValueError(none_of(name, value, legal))


def check_type(tunable: Field[Any], value: object) -> None:
    """Refuse a value of another type than the field of a tunable is annotated with.

    Only unions of bool, int, float, str and None are checked: what other annotations mean, their class knows.

    Raises
    ------
    TypeError
        Names the tunable and what its value must be.
    """
    annotation = tunable.type if isinstance(tunable.type, str) else formatannotation(tunable.type)
    words = [word.strip() for word in annotation.split("|")]
    if not all(word in _TYPES for word in words):
        return
    # Python counts True among the integers; YAML takes 1e9 for a text.
    fits = isinstance(value, tuple(_TYPES[word][0] for word in words))
    if not fits or (isinstance(value, bool) and "bool" not in words):
        raise TypeError(f"{tunable.name} must be {' or '.join(_TYPES[word][1] for word in words)}")


def how_to_install(*extras: str) -> str:
    """Give the command that adds one of ``extras``.

    No package registry has spmark: a command that named the package would install what a stranger published.
    """
    return " or ".join(f"pip install -e '.[{extra}]'" for extra in extras) + " in a checkout"


def not_installed(modules: Iterable[str], extra: str) -> str | None:
    """Say which of some modules are not installed, and how to install them; None where all are. Imports nothing."""
    lacking = [module for module in modules if find_spec(module) is None]
    told = f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed"
    return f"{told}: {how_to_install(extra)}" if lacking else None


def needed(module: str, library: str, extra: str) -> Any:
    """Import a module of a library that an extra brings.

    Raises
    ------
    UnsupportedError
        The library is not installed; says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UnsupportedError(f"expected {library}, found none ({error}): {how_to_install(extra)}") from error


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
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode()
        for letter in text
    )
