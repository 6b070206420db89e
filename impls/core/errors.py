"""The types of errors: each message says what was expected, what was found and where.

The suite turns these into rows of the records (`spmark.records.schema.Status`) or into exit codes; nothing else
catches them.
"""

from __future__ import annotations


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

    def __reduce__(self) -> tuple[type[CompileError], tuple[str, str, str]]:
        """Survive the way back from a compile worker."""
        return type(self), (self.source, self.instance, self.log)


class KernelFault(SpmarkError, RuntimeError):
    """A kernel did something illegal while it ran (out-of-bounds access, missed barrier, sticky CUDA error)."""
