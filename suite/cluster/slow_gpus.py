"""Finds slow GPUs of a run: each GPU measures one small case first, and one that is slower than the others is told of.

A speed-up is a ratio of one process and so of one GPU. What compares times does not know how much slower a GPU is that
is hot, throttled or damaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from spmark.impls.core.devicespec import DeviceKind, DeviceSpec
from spmark.impls.core.problem import DType, Op
from spmark.records.schema import CaseSpec, MatrixRef
from spmark.report.analysis.compare_inputs import TIME
from spmark.report.analysis.run_spread import known_spread
from spmark.suite.plan.plan import Item

_SPREADS = 3.0
"""Standard deviations between runs of one code beyond which a GPU is called slower."""
_LIMIT_S = 120.0


def probe_case(items: Sequence[Item], kind: DeviceKind) -> CaseSpec | None:
    """Give the case that each GPU measures first: a run's baseline on a graph of 2^15 rows, which is no case of it.

    None where times mean nothing.
    """
    if kind is DeviceKind.HOST_SIMT:
        return None
    case = items[0].spec
    return CaseSpec(
        op=Op.SPMM,
        matrix=MatrixRef(source="rmat", name="probe", args={"scale": 15}),
        width=128,
        dtype=DType.FLOAT32,
        implementation=case.baseline or case.implementation,
        label="probe",
        seed=0,
        time_limit_s=_LIMIT_S,
        flush=case.flush,
    )


def slower(medians_us: Mapping[str, float], device: DeviceSpec) -> dict[str, float]:
    """Give by how much GPUs are slower than the median of all, where it is more than runs of one code differ.

    Parameters
    ----------
    medians_us : mapping of str to float
        Medians of the probe by GPU.
    device : DeviceSpec
        Of each of them: `spmark.report.analysis.run_spread` knows how far its runs lie apart.

    Returns
    -------
    dict of str to float
        Relative excess by GPU; empty where there are fewer than three, of which none could be told from the others.
    """
    if len(medians_us) < 3:
        return {}
    usual_us = median(medians_us.values())
    trend, _ = known_spread(device.name).trend(TIME, device.kind)
    most = math.exp(_SPREADS * math.sqrt(trend.variance(usual_us)))
    return {gpu: us / usual_us - 1 for gpu, us in medians_us.items() if us > most * usual_us}
