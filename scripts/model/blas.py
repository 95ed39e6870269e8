"""Modelled times of the six functions of trnqc.blas, and the share in which the tensor engine is active.

    python -m scripts.model.blas [--sizes 1024 4096] [--targets trn1 trn2] [--precisions fp32 bf16x3] [--out FILE]

Matrices are square. `batched_gemm` multiplies 512 pairs of matrices of an eighth of the size, which have the same
number of multiplications together. `symm` is the product kernel, with the matrix that was made from one triangle before
the launch. `cholesky` is one launch for each panel, and its figures are sums over the launches. Kernels have the
constants of their defaults. "useful" is the share of the time in which the tensor engine, at its rate for the
precision, would do the multiplications of the textbook algorithm. It does not count products with zeros, or those of
Newton's method. Everything is modelled on one NeuronCore by ``trnqc.sim.timeline``; the start of a launch is not
counted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.blas_cholesky import panel_launch
from nki_kernels.descriptors.descriptor import PARTS, Launch
from nki_kernels.precision.splits import products_of
from scripts.registry import Benchmark, Row, Rows, main, several
from trnqc.sim import Spec, timeline
from trnqc.sim.timeline.costs import constants_for

PRODUCTS = ("blas_gemm", "blas_syrk")
BATCH = 8
"""The size of the matrices over that of the matrices of `batched_gemm`."""


@dataclass(frozen=True)
class Case:
    """A function of trnqc.blas, the kernel that computes it, its launches and whether c is added."""

    function: str
    kernel: str
    launches: tuple[Launch, ...]
    with_c: bool = False


def without_c(launch: Launch, place: int) -> Launch:
    """The same launch for beta = 0; argument number `place` is c."""
    one = Spec((1,) * len(launch.args[place].shape), "float32")
    args = (*launch.args[:place], one, *launch.args[place + 1 :])
    return Launch(args, {**launch.constants, "update": 0}, launch.flops)


def cases(n: int, precision: str) -> Iterator[Case]:
    """Return the launches of all functions for matrices of n rows."""
    each, small = BATCH**3, n // BATCH
    square = {"Z": 1, "M": n, "N": n, "K": n}
    for function, kernel, shape in (
        ("gemm", "blas_gemm", square),
        ("batched_gemm", "blas_gemm", {"Z": each, "M": small, "N": small, "K": small}),
        ("symm", "blas_gemm", square),
        ("syrk", "blas_syrk", {"n": n, "K": n}),
        ("trsm", "blas_trsm", {"n": n, "m": n}),
    ):
        known = kernels()[kernel]
        launch = known.example(shape, precision, known.default(shape, precision), 1, Spec)
        if kernel in PRODUCTS:
            yield Case(function, kernel, (without_c(launch, 2 if kernel == "blas_gemm" else 1),))
        yield Case(function, kernel, (launch,), kernel in PRODUCTS)
    constants = kernels()["blas_cholesky"].default({"n": n}, precision)
    panels = range(-(-n // constants["panel"]))
    rows = len(panels) * constants["panel"]
    launches = tuple(panel_launch(rows, k, precision, constants, Spec) for k in panels)
    yield Case("cholesky", "blas_cholesky", launches)


def peak(target: str, precision: str) -> float:
    """The rate of the tensor engine in a precision, flop/s."""
    constants = constants_for(target)
    passes = constants["fp32_passes"] if precision == "fp32" else len(products_of(PARTS[precision], PARTS[precision]))
    return 2.0 * 128 * 128 * constants["tensor_ghz"] * 1e9 / passes


def line(case: Case, n: int, target: str, precision: str) -> Row:
    """Return the figures of a function."""
    seconds = active = 0.0
    for launch in case.launches:
        run = timeline(kernels()[case.kernel].function, target=target)(*launch.args, **launch.constants)
        seconds += run.total_ns * 1e-9
        active += run.total_ns * 1e-9 * float(run.summary()["tensor_engine_active_time_percent"])
    useful = sum(launch.flops for launch in case.launches) / peak(target, precision)
    return {
        "function": case.function,
        "kernel": case.kernel,
        "size": n,
        "target": target,
        "precision": precision,
        "with_c": case.with_c,
        "launches": len(case.launches),
        "seconds": seconds,
        "tensor_active_percent": active / seconds,
        "useful_percent": 100 * useful / seconds,
    }


def lines(asked: argparse.Namespace) -> Rows:
    """All functions of each size, target and precision."""
    for n, target, precision in product(asked.sizes, asked.targets, asked.precisions):
        for case in cases(n, precision):
            yield line(case, n, target, precision)


def text(row: Row) -> str:
    """The figures of a function."""
    return (
        f"{row['size']} {row['target']} {row['precision']:7} {row['function'] + ' + c' * row['with_c']:17} "
        f"{row['seconds'] * 1e3:8.3f} ms  tensor {row['tensor_active_percent']:5.1f} %  "
        f"useful {row['useful_percent']:5.1f} %"
    )


BENCHMARK = Benchmark(
    "blas",
    __doc__,
    {"blas": lines},
    {
        "--sizes": several([1024, 4096]),
        "--targets": several(["trn1", "trn2"]),
        "--precisions": several(["fp32", "bf16x3"]),
    },
    place=("", "lines"),
    line=text,
    folder="modelled",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
