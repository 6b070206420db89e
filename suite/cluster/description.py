"""The YAML file of ``--cluster``: jobs of Slurm, or hosts by SSH.

The models are closed: what a file says becomes a line of a job or an argument of a worker, so that every text has a
pattern without spaces, and no key takes a command. What else a site needs stands in Dask's own configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from spmark.impls.core.errors import SweepError
from spmark.impls.core.plainyaml import parse_yaml
from spmark.impls.core.untrusted import Frozen, reading

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:@/-]*$", max_length=200)]
PathText = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./~-]+$", max_length=1000)]
Directive = Annotated[str, Field(pattern=r"^--[a-z][a-z-]*(=[A-Za-z0-9_.:,@/-]+)?$", max_length=200)]


class Certificates(Frozen):
    """Files in PEM that every machine of the cluster reads at the same path."""

    ca: PathText
    """Of the authority that signed the certificates of scheduler, workers and clients."""
    cert: PathText
    key: PathText


class _Described(Frozen):
    certificates: Certificates
    interface: Word | None = None
    """Network interface of scheduler and workers, such as ib0."""
    python: PathText | None = None
    """Python of the workers; by default the path of the one that runs here."""


class Slurm(_Described):
    """Jobs of Slurm, one for each GPU."""

    kind: Literal["slurm"]
    gpus: int = Field(ge=1, le=10_000)
    """Number of jobs."""
    cores: int = Field(ge=1)
    """Of a job."""
    memory: Word
    """Of a job, such as 64GB."""
    walltime: Word
    queue: Word | None = None
    account: Word | None = None
    directives: tuple[Directive, ...] = ("--gres=gpu:1",)
    """Further options of sbatch."""
    logs: PathText | None = None
    """Folder of what jobs write."""


class Host(Frozen):
    """A machine and its GPUs."""

    host: Word
    gpus: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    """As ``nvidia-smi`` counts them there."""


class Ssh(_Described):
    """Machines that are reached by SSH, with the keys and the known hosts of the person."""

    kind: Literal["ssh"]
    hosts: tuple[Host, ...] = Field(min_length=1)
    user: Word | None = None
    port: int = Field(22, ge=1, le=65535)


Description = Annotated[Slurm | Ssh, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[Slurm | Ssh] = TypeAdapter(Description)


def read_description(path: Path) -> Slurm | Ssh:
    """Read the description of a cluster.

    Raises
    ------
    SweepError
        The file cannot be read, or a key or a value is none of a cluster; names the key.
    """
    with reading(path, "the description of a cluster", SweepError):
        data = parse_yaml(path.read_bytes(), str(path), SweepError)
        try:
            return _ADAPTER.validate_python(data, strict=False)
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            raise SweepError(f"{path}: expected the description of a cluster, found {told}") from error
