"""Clusters to run on: workers on this machine's GPUs, a scheduler that a person started, jobs of Slurm, hosts by SSH.

Every connection is encrypted, and each side shows a certificate of the cluster: whoever can reach a worker could else
run code there, on one machine all its users.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spmark.impls.core.errors import DeviceError, SweepError, how_to_install
from spmark.impls.runtime.device import visible_gpus
from spmark.suite.cluster.description import Slurm, Ssh, read_description
from spmark.suite.cluster.gather import Cluster
from spmark.suite.run.share import SHARE

PRELOADS = ("spmark.suite.cluster.work",)
"""What each worker of our own imports first; it takes its share of the cores then."""
_log = logging.getLogger(__name__)
_ROLES = ("scheduler", "worker", "client")
_QUIET = {"DASK_LOGGING__DISTRIBUTED": "error"}
_NO_DASHBOARD = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
_SETTINGS: dict[str, Any] = {
    # Dask's pages of a cluster ask nobody for a certificate.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Its profiler looks at the thread of a task a hundred times a second, on the cores that the child measures with.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "2s",
    # It would ask NVML for the GPU of each worker, and end where the worker of a CPU has a number that no GPU has.
    "distributed.diagnostics.nvml": False,
}


@contextmanager
def opened(
    device: str,
    *,
    gpus: str | None = None,
    scheduler: str | None = None,
    file: Path | None = None,
    sparse_library: str = "",
) -> Iterator[Cluster | None]:
    """Give the cluster that the command line asks for, once a worker is there; None where it asks for none.

    Parameters
    ----------
    device : str
        What each worker measures on.
    gpus : str, optional
        As `chosen_gpus` takes it.
    scheduler : str, optional
        Address of a scheduler; its certificates stand in Dask's own configuration.
    file : Path, optional
        Describes jobs of Slurm, or hosts.
    sparse_library : str
        As `spmark.suite.environment.collect` takes it, on each worker.

    Raises
    ------
    SweepError
        More than one is asked for, or one of them is wrong.
    DeviceError
        Dask is not installed, or no worker can be had.
    """
    asked = {"--gpus": gpus, "--scheduler": scheduler, "--cluster": file}
    if len(given := [name for name, value in asked.items() if value is not None]) > 1:
        raise SweepError(f"expected one of {', '.join(asked)}, found {' and '.join(given)}")
    if gpus is not None:
        clients = on_this_machine(chosen_gpus(gpus, device))
    elif scheduler is not None:
        clients = at_scheduler(scheduler)
    elif file is not None:
        clients = described(read_description(file))
    else:
        yield None
        return
    with clients as client:
        if not client.nthreads():
            _log.warning("no worker is there yet: waiting for the first")
        client.wait_for_workers(1)
        yield Cluster(client, device, sparse_library)


def chosen_gpus(gpus: str, device: str) -> list[str]:
    """Give the GPUs that ``--gpus`` asks for, as ``CUDA_VISIBLE_DEVICES`` names them.

    Parameters
    ----------
    gpus : str
        ``all``, or numbers with commas between them, counted as ``nvidia-smi`` counts, or within
        ``CUDA_VISIBLE_DEVICES`` where it is set. On a CPU there is a worker for each number.
    device : str

    Raises
    ------
    SweepError
        The text is something else, or names a GPU twice.
    DeviceError
        A GPU is not there.
    """
    numbers = gpus.split(",")
    if gpus != "all" and (not all(map(str.isdecimal, numbers)) or len(set(numbers)) < len(numbers)):
        raise SweepError(f"--gpus: expected all, or numbers of GPUs such as 0,2, found {gpus!r}")
    if device in ("cpu", "host-simt") and gpus != "all":
        return numbers
    there = visible_gpus()
    if gpus == "all":
        return there
    if absent := [number for number in numbers if int(number) >= len(there)]:
        raise DeviceError(f"--gpus: expected GPUs out of 0 to {len(there) - 1}, found {', '.join(absent)}")
    return [there[int(number)] for number in numbers]


@contextmanager
def on_this_machine(gpus: Sequence[str]) -> Iterator[Any]:
    """Give a client of one worker for each GPU, with certificates that are made now and kept in memory."""
    dask, distributed = _libraries()
    security, loopback = distributed.Security.temporary(), {"protocol": "tls", "host": "127.0.0.1"}
    with tempfile.TemporaryDirectory(prefix="spmark-") as folder, dask.config.set(_SETTINGS):
        common = loopback | {
            "security": security,
            "nthreads": 1,
            "silence_logs": logging.ERROR,
            "memory_limit": 0,  # the children take the memory, of which each knows its share
            "preload": list(PRELOADS),
            "local_directory": folder,
        }
        workers = {
            number: {
                "cls": distributed.Nanny,
                "options": common | {"env": _QUIET | _environment_of(gpu, number, len(gpus))},
            }
            for number, gpu in enumerate(gpus)
        }
        scheduler = {
            "cls": distributed.Scheduler,
            "options": loopback | _NO_DASHBOARD | {"security": security, "port": 0},
        }
        with (
            distributed.SpecCluster(workers, scheduler, security=security, silence_logs=logging.ERROR) as cluster,
            _connected(cluster, security) as client,
        ):
            yield client


@contextmanager
def at_scheduler(address: str) -> Iterator[Any]:
    """Give a client of a scheduler that a person started, with the certificates of Dask's own configuration.

    Raises
    ------
    SweepError
        The address or the configuration is not of TLS.
    DeviceError
        The scheduler does not answer.
    """
    _, distributed = _libraries()
    security = distributed.Security()
    if not address.startswith("tls://") or security.get_connection_args("client")["ssl_context"] is None:
        raise SweepError(
            f"--scheduler: expected tls://HOST:PORT, and certificates in distributed.comm.tls of Dask's configuration, "
            f"found {address} {'without' if address.startswith('tls://') else 'and so no encryption'}"
        )
    with _connected(address, security) as client:
        yield client


@contextmanager
def described(cluster: Slurm | Ssh) -> Iterator[Any]:
    """Give a client of the workers that a file describes; the scheduler runs in this process, and ends with it."""
    dask, distributed = _libraries()
    files = cluster.certificates
    tls = {f"{role}.{what}": getattr(files, what) for role in _ROLES for what in ("cert", "key")}
    tls["ca-file"] = files.ca
    # Dask hands its configuration on to what it starts on other machines.
    encrypted = {f"distributed.comm.tls.{key}": path for key, path in tls.items()}
    encrypted |= {"distributed.comm.require-encryption": True}
    with dask.config.set(_SETTINGS | encrypted):
        security = distributed.Security()
        workers = _slurm(cluster, security) if isinstance(cluster, Slurm) else _ssh(cluster, security)
        with workers, _connected(workers, security) as client:
            yield client


def _slurm(cluster: Slurm, security: Any) -> Any:
    from dask_jobqueue import SLURMCluster

    jobs = SLURMCluster(
        cores=cluster.cores,
        memory=cluster.memory,
        walltime=cluster.walltime,
        queue=cluster.queue,
        account=cluster.account,
        interface=cluster.interface,
        python=cluster.python,
        log_directory=cluster.logs,
        job_extra_directives=list(cluster.directives),
        processes=1,
        security=security,
        worker_extra_args=["--nthreads", "1", "--memory-limit", "0", *(f"--preload={name}" for name in PRELOADS)],
        scheduler_options=_NO_DASHBOARD,
    )
    jobs.scale(jobs=cluster.gpus)
    return jobs


def _ssh(cluster: Ssh, security: Any) -> Any:
    from distributed import Scheduler, SpecCluster
    from distributed.deploy.ssh import Worker

    login: dict[str, Any] = {"port": cluster.port} | ({"username": cluster.user} if cluster.user else {})
    network: dict[str, Any] = {"protocol": "tls"} | ({"interface": cluster.interface} if cluster.interface else {})
    common = network | {"nthreads": 1, "memory_limit": 0, "preload": list(PRELOADS)}
    workers = {
        f"{one.host}-{gpu}": {
            "cls": Worker,
            "options": {
                "address": one.host,
                "connect_options": login,
                "remote_python": cluster.python,
                "kwargs": common | {"env": _environment_of(str(gpu), number, len(one.gpus))},
            },
        }
        for one in cluster.hosts
        for number, gpu in enumerate(one.gpus)
    }
    scheduler = {"cls": Scheduler, "options": network | _NO_DASHBOARD | {"security": security, "port": 0}}
    return SpecCluster(workers, scheduler, security=security, silence_logs=logging.ERROR)


@contextmanager
def _connected(scheduler: Any, security: Any) -> Iterator[Any]:
    """Give a client of a scheduler's address, or of a cluster of Dask.

    Raises
    ------
    DeviceError
        The scheduler does not answer, or does not accept the certificate.
    """
    from distributed import Client

    try:
        client = Client(scheduler, security=security, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise DeviceError(f"expected a scheduler of Dask at {scheduler}, found none: {error}") from error
    with client:
        yield client


def _environment_of(gpu: str, number: int, parts: int) -> dict[str, str]:
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpu, SHARE: f"{number}/{parts}"}


def _libraries() -> tuple[Any, Any]:
    try:
        import cryptography  # noqa: F401
        import dask
        import distributed
    except ImportError as error:
        raise DeviceError(
            f"expected Dask for more than one GPU, found none ({error}): {how_to_install('cluster')}"
        ) from error
    return dask, distributed
