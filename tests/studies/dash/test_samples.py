"""Samples: what belongs together, and a digest that sees every change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dash_fakes import CPU, TILES, samples_of
from pydantic import ValidationError

from spmark.studies.collected import SampledConfig
from spmark.studies.dash.samples import SampleSet

pytestmark = pytest.mark.full


@pytest.mark.parametrize("time_us", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_none_can_take_is_refused(time_us: float) -> None:
    with pytest.raises(ValidationError, match=r"chosen_by_us"):
        SampledConfig.of({}, (time_us, 1.0))


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
