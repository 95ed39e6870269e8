"""Calls of the CUDA driver by convolutions of PyTorch tensors, recorded without a GPU.

    python -m scripts.device.recorded_calls [--out profiles/counted/recorded_calls.json]

A recording driver stands in for the GPU (`scripts.device.recording_driver`). The table counts calls after a first one,
which compiles: of a convolution and its gradients, while a CUDA graph captures them, and again for edges that were
sorted before. A call of the name "torch" is an operator of PyTorch on its current stream.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path

import torch

from scripts.device.recorded_torch import captured, torch_on
from scripts.device.recording_driver import Call, RecordingDriver
from trnqc.cg import TensorProductConv, TPProblem

ROOT = Path(__file__).resolve().parents[2]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "profiles" / "counted" / "recorded_calls.json")
    out = parser.parse_args().out
    recorded = {f"convolution, {kind}": calls for kind, calls in convolution().items()}
    for title, calls in recorded.items():
        print(title)
        for name, number in calls.items():
            print(f"  {number:4d}  {name}")
    record = {"command": "python -m scripts.device.recorded_calls", "calls": recorded}
    out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
