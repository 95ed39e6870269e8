"""Calls of the CUDA driver by convolutions of PyTorch tensors, recorded without a GPU.

    python -m scripts.device.recorded_calls [--out FILE]

A recording driver stands in for the GPU (`scripts.device.recording_driver`). The table counts calls after a first one,
which compiles: of a convolution and its gradients, while a CUDA graph captures them, and again for edges that were
sorted before. A call of the name "torch" is an operator of PyTorch on its current stream.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

import torch

from scripts.device.recorded_torch import captured, torch_on
from scripts.device.recording_driver import Call, RecordingDriver
from scripts.registry import Benchmark, Rows, main
from trnqc.cg import TensorProductConv, TPProblem

NODES, EDGES = 20, 400
PATHS = [(0, 0, 0, "uvu", True), (0, 1, 1, "uvu", True), (1, 1, 0, "uvu", True)]


def counts(calls: list[Call]) -> dict[str, int]:
    """Return the number of calls by name, with kernels by theirs."""
    names = (f"{call.name} {call.detail}".strip() for call in calls if call.name != "Device.set_current")
    return dict(sorted(Counter(names).items()))


def convolution() -> dict[str, dict[str, int]]:
    """Return the counts of a convolution with its gradients, by kind of call."""
    driver = RecordingDriver()
    conv = TensorProductConv(TPProblem("4x0e+4x1o", "0e+1o", "4x0e+4x1o", PATHS, shared_weights=False))
    d1, d2, _ = conv.problem.dims
    own = [torch.randn(NODES, d1), torch.randn(EDGES, d2), torch.randn(EDGES, conv.problem.weight_numel)]
    rows, cols = torch.randint(NODES, (2, EDGES))
    result = {}
    with torch_on(driver) as moved:
        x, y, w, rows, cols = map(moved, (*own, rows, cols))

        def step() -> None:
            inputs = [t.requires_grad_() for t in (x, y, w)]
            torch.autograd.grad(conv(*inputs, rows, cols).sum(), inputs)

        step()
        driver.calls.clear()
        step()
        result["again"] = counts(driver.calls)
        driver.calls.clear()
        with captured(driver):
            step()
        result["captured"] = counts(driver.calls)
    return result


def calls(asked: argparse.Namespace) -> Rows:
    """The one row of the record."""
    yield {"calls": {f"convolution, {kind}": numbers for kind, numbers in convolution().items()}}


def text(row: dict[str, dict[str, dict[str, int]]]) -> str:
    """A line for each call."""
    lines = [f"{number:4d}  {kind}: {name}" for kind, found in row["calls"].items() for name, number in found.items()]
    return "\n".join(lines)


BENCHMARK = Benchmark("recorded_calls", __doc__, {"convolution": calls}, place=("", ""), line=text, folder="counted")

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
