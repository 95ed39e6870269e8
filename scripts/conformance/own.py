"""Our own kernels: no findings of the lint, and the launch by which the tuner checks a kernel before it is timed."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import random_fill
from scripts.conformance.cases import Case
from trnqc import sim


def _gate(name: str, precision: str, root: Path) -> tuple[list[Any], list[Any]]:
    kernel = kernels()[name]
    if findings := sim.lint(kernel.function, os.environ["TRNQC_NKI"]):
        raise AssertionError("; ".join(map(str, findings)))
    constants = kernel.default(kernel.small, precision)
    launch = kernel.gate(kernel.small, precision, constants, 1, random_fill(0))
    got = sim.simulate(kernel.function)(*launch.args, **launch.constants)
    # The error is the descriptor's own, which leaves out what the kernel does not define.
    return [kernel.error(launch, got)], [0.0]


def _extents(name: str) -> str:
    return "x".join(map(str, kernels()[name].small.values()))


CASES = [
    Case("trnqc", name, f"{_extents(name)} {precision}", "trn2", partial(_gate, name, precision), 0, tol)
    for name, kernel in kernels().items()
    for precision, tol in (("fp32", 1e-5), ("bf16x3", 1e-4))
    if precision in kernel.precisions
]
