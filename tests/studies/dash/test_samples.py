"""Samples: what belongs together, and a digest that sees every change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dash_fakes import CPU, CPU_OWN, CPU_SPACE, TILES, common_cpu, problem_of, samples_of

from spmark.impls.core.errors import DatasetError
from spmark.studies.dash.samples import MatrixSamples, SampleSet

pytestmark = pytest.mark.full

CONFIGS = list(CPU_SPACE.configs())[:3]
COMMON = [common_cpu(config) for config in CONFIGS]
OWN = CPU_OWN.vectors(CONFIGS)


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ([1.0, 2.0], "expected as many mapped configs, own parameters and times, found 3, 3 and 2"),
        ([1.0, 0.0, 1.0], "expected times above 0 s, found 0.0 of config 1"),
        ([1.0, 1.0, np.nan], "expected times above 0 s, found nan of config 2"),
    ],
)
def test_what_does_not_belong_together_is_refused(seconds, message):
    with pytest.raises(DatasetError, match=message):
        MatrixSamples.of("made/1", problem_of(1), COMMON, OWN, np.array(seconds))


def test_the_digest_sees_every_change():
    samples = samples_of(CPU, [1, 2])
    one, other = samples.matrices
    changed = [
        SampleSet(TILES, samples.matrices),
        SampleSet(CPU, (other, one)),
        SampleSet(CPU, (one, replace(other, matrix="renamed"))),
        *(
            SampleSet(CPU, (one, replace(other, **{name: getattr(other, name) + 1})))
            for name in ("common", "own", "seconds", "sizes")
        ),
        SampleSet(CPU, (one, replace(other, sites=replace(other.sites, rows=other.sites.rows + 1)))),
    ]
    digests = {samples.digest, *(one.digest for one in changed)}
    assert len(digests) == len(changed) + 1
    assert samples_of(CPU, [1, 2]).digest == samples.digest
