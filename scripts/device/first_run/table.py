"""The steps of the first hour in their order: correctness, the same under compute-sanitizer, then benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from scripts.device.first_run import checks, stored, timings
from scripts.device.first_run.inventory import STORED, TORCH_CUDA

# Kinds of steps.
CHECK, TIMING = "correctness", "benchmark"
# Programs take about so many times as long under memcheck (NVIDIA's documentation names 5 to 10 for whole programs).
SANITIZED = 6


@dataclass(frozen=True)
class Step:
    """A part of the run, which is a process of its own.

    Parameters
    ----------
    name, kind : str
        Its name, and "correctness" or "benchmark".
    needs : tuple of str
        What it cannot run without: "gpu", or names of `inventory.PACKAGES` and
        `inventory.TOOLS`, or `inventory.STORED` or `TORCH_CUDA`.
    seconds : float
        The estimated time, compilation included. A step may take three times as long before it is ended.
    work : callable
        Of a check, work(simulate) returns errors by case; of a benchmark, work(simulate, record) writes a file.
    beside : tuple of str
        Packages that it runs without, at the price of a figure.
    sanitized : bool
        Whether it runs under compute-sanitizer.
    """

    name: str
    kind: str
    needs: tuple[str, ...]
    seconds: float
    work: Callable[..., Any]
    beside: tuple[str, ...] = ()
    sanitized: bool = False

    @property
    def file(self) -> str:
        """The name of its files, without a suffix."""
        return "".join(c if c.isalnum() else "-" for c in self.name)

    def run(self, simulate: bool, record: Path) -> dict[str, float]:
        """Do its work. Returns the errors of a check, and nothing of a benchmark."""
        return dict(self.work(simulate)) if self.kind == CHECK else self.work(simulate, record) or {}


_GPU, _INTEGRALS = ("gpu", "cuda-core"), ("gpu", "cuda-core", "pyscf", "gcc")
_PRODUCTS = ("cuequivariance", "openequivariance", "e3nn")
# What is measured, and of what kernels can be compiled before: molecules, and tensor products.
MOLECULES = {"water20/cc-pvdz": 60, "aspirin/cc-pvdz": 60, "aspirin/cc-pvtz": 150}
PROBLEMS = {"mace-large": 40, "nequip-revmd17-toluene": 40}
# Angular momenta of the shells beside s shells that are checked, with a name, and precisions of MP2.
MOMENTA = {1: "s p", 2: "d", 3: "f"}
PRECISIONS = checks.PRECISIONS
CHECKS = (
    Step("jit", CHECK, _GPU, 10, checks.jit),
    Step("cg", CHECK, (*_GPU, "torch"), 40, checks.tensor_products),
    Step("mp2", CHECK, (*_GPU, "nvmath-python", "gcc"), 20, checks.mp2),
    *(
        Step(f"eri {name}", CHECK, _INTEGRALS, 10 + 10 * l, partial(checks.integrals, (0, l)))
        for l, name in MOMENTA.items()
    ),
    Step("eri d, stored", CHECK, (*_GPU, STORED), 20, stored.check),
)


def _sanitized(step: Step) -> Step:
    needs = (*step.needs, "compute-sanitizer")
    return replace(
        step, name=f"{step.name}, memcheck", needs=needs, seconds=SANITIZED * step.seconds / 2, sanitized=True
    )


def _molecule(case: str, seconds: float) -> Step:
    return Step(
        f"J, K and SCF of {case}", TIMING, _INTEGRALS, seconds, partial(timings.integrals, case), ("gpu4pyscf",)
    )


def _tensors(part: str, case: str, seconds: float) -> Step:
    work = partial(timings.tensor_products, part, case)
    return Step(f"{part} of {case}", TIMING, (*_GPU, TORCH_CUDA), seconds, work, _PRODUCTS)


TIMINGS = (
    Step("MP2 medium", TIMING, (*_GPU, "nvmath-python", "gcc"), 40, timings.mp2),
    *(_molecule(case, seconds) for case, seconds in list(MOLECULES.items())[:2]),
    *(_tensors(part, case, seconds) for case, seconds in PROBLEMS.items() for part in ("products", "convolutions")),
    *(_molecule(case, seconds) for case, seconds in list(MOLECULES.items())[2:]),
)
STEPS = (*CHECKS, *map(_sanitized, CHECKS), *TIMINGS)
