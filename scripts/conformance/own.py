"""Our own kernels: no findings of the lint, and the launch by which the tuner checks a kernel before it is timed."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from nki_kernels.cg.conv import cg_conv
from nki_kernels.cg.gradients import cg_gradients
from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import random_fill
from nki_kernels.precision.probe import probe
from scripts.conformance.cases import Case
from trnqc import sim

# Extents with remainders in every dimension.
SHAPES = {
    "batched_contraction": {"Z": 3, "M": 129, "N": 130, "K": 140},
    "blas_cholesky": {"n": 300},
    "blas_gemm": {"Z": 1, "M": 300, "N": 513, "K": 140},
    "blas_syrk": {"n": 300, "K": 140},
    "blas_trsm": {"n": 300, "m": 140},
    "gemm": {"M": 300, "N": 700, "K": 260},
    "mp2_energy": {"nocc": 3, "nvir": 140, "naux": 200},
    "mp2_gamma": {"nocc": 3, "nvir": 140, "naux": 200},
}


def _gate(name: str, precision: str, root: Path) -> tuple[list[Any], list[Any]]:
    kernel = kernels()[name]
    _check_language(kernel.function)
    constants = kernel.default(SHAPES[name], precision)
    launch = kernel.gate(SHAPES[name], precision, constants, 1, random_fill(0))
    got = sim.simulate(kernel.function)(*launch.args, **launch.constants)
    # The error is the descriptor's own, which leaves out what the kernel does not define.
    return [kernel.error(launch, got)], [0.0]


def _language(kernel: Any, root: Path) -> tuple[list[Any], list[Any]]:
    _check_language(kernel)
    return [0.0], [0.0]


def _check_language(kernel: Any) -> None:
    findings = sim.lint(kernel, os.environ["TRNQC_NKI"])
    if findings:
        raise AssertionError("; ".join(str(finding) for finding in findings))


CASES = [
    Case(
        "trnqc",
        name,
        f"{'x'.join(map(str, shape.values()))} {precision}",
        "trn2",
        partial(_gate, name, precision),
        0,
        tol,
    )
    for name, shape in SHAPES.items()
    for precision, tol in (("fp32", 1e-5), ("bf16x3", 1e-4))
    if precision == "fp32" or not name.startswith("blas_")
] + [
    Case("trnqc", kernel.func.__name__, "lint", "trn2", partial(_language, kernel))
    for kernel in (cg_conv, cg_gradients, probe)
]
