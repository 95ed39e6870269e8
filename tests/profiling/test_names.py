"""The names under which engines and queues appear in the vendor's tools."""

from __future__ import annotations

import pytest

from trnqc.profiling.readers.lanes import engine_of, lane_name

NAMES = [
    ("Tensor", "tensor"),
    ("TensorMatrix", "tensor"),
    ("TensorMatrixE", "tensor"),
    ("Vector Engine", "vector"),
    ("VectorE", "vector"),
    ("scalar", "scalar"),
    ("GpSimd", "gpsimd"),
    ("Sync", "sync"),
    ("DMA 3", "dma3"),
    ("dma15", "dma15"),
    ("DMA engine 07", "dma7"),
    ("DMA", "dma"),
    ("qScalarSpillReload0-Q1-E64", "dma qScalarSpillReload0-Q1-E64"),
    ("qSyncIO0", "dma qSyncIO0"),
    ("CC-core 0", None),
    ("quiet thread", None),
    ("main", None),
]


@pytest.mark.parametrize(("label", "engine"), NAMES)
def test_names(label, engine):
    assert engine_of(label) == engine


@pytest.mark.parametrize("label", [label for label, _ in NAMES])
def test_our_names_stay_as_they_are(label):
    assert lane_name(lane_name(label)) == lane_name(label)


def test_something_without_a_name():
    assert lane_name("  ") == "unnamed"
