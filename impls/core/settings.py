"""Numbers that the environment sets."""

from __future__ import annotations

import math
import os

from spmark.impls.core.errors import SpmarkError

_MOST = 1 << 30


def positive_number(variable: str, default: float, unit: str, error: type[SpmarkError]) -> float:
    """Read a positive number from the environment.

    Parameters
    ----------
    variable : str
    default : float
        Where the variable is missing or empty.
    unit : str
        Named in the message.
    error : type
        Of the exception.

    Raises
    ------
    SpmarkError
        Of the type ``error``: the variable holds something else.
    """
    text = os.environ.get(variable) or str(default)
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < _MOST:
        raise error(f"{variable}: expected a positive number of {unit}, found {text!r}")
    return number
