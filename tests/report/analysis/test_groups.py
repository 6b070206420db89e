"""Which matrices have a place of their own, and which layers stand together."""

from __future__ import annotations

import pandas as pd
import pytest

from spmark.report.analysis.cases import MOST_GROUPS, group_of, groups_of


def frame_of(names):
    return pd.DataFrame({"matrix": names, "nnz": [float(i) for i in range(len(names))]})


@pytest.mark.parametrize(
    ("matrix", "group"),
    [
        ("dnn_layers/bert_768x768@0.9", "dnn_layers 90 %"),
        ("dnn_layers/bert_768x768@0.95 #ab12cd", "dnn_layers 95 %"),
        ("pruned_bert/768x768_block1@0.94", "pruned_bert 94 %"),
        ("pruned_bert/768x768_block32@0.93_half_empty", "pruned_bert half empty 93 %"),
        ("mirror/rn50__mag__0.98__bottleneck_1_block_group4_1_1", "dlmc 98 %"),
        ("mirror/tf__l0__0.9__body_encoder_layer_0_ffn_conv1", "dlmc 90 %"),
        ("mirror/a__b__0.9__c", "mirror/a__b__0.9__c"),
        ("dlmc/rn50/magnitude_pruning/0.98/bottleneck_1_block_group4_1_1", "dlmc 98 %"),
        ("suitesparse/a/0.9/c", "suitesparse/a/0.9/c"),
        ("ogb/ogbn-arxiv", "ogb/ogbn-arxiv"),
        ("ogb/ogbn-arxiv@AT", "ogb/ogbn-arxiv@AT"),
        ("patterns/similar_1024_r0.3_2to1", "patterns/similar_1024_r0.3_2to1"),
    ],
)
def test_layers_are_pooled_by_source_and_sparsity(matrix, group):
    assert group_of(matrix) == group


def test_few_matrices_have_their_own_places():
    frame = frame_of([f"dnn_layers/l{i}@0.9" for i in range(MOST_GROUPS)])
    groups, order = groups_of(frame)
    assert list(groups) == order == list(frame["matrix"])


def test_pools_stand_behind_single_matrices_by_sparsity():
    layers = [f"dnn_layers/l{i}@{s}" for i in range(6) for s in ("0.98", "0.7", "0.9")]
    groups, order = groups_of(frame_of([*layers, "ogb/arxiv"]))
    assert order == ["ogb/arxiv", "dnn_layers 70 %", "dnn_layers 90 %", "dnn_layers 98 %"]
    assert groups.value_counts()["dnn_layers 70 %"] == 6
