"""What a conformance case is, and how its result is judged."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One published kernel at one shape on one generation.

    ``run(root)`` returns (results, expected), two sequences of arrays of the same length. ``refused`` is set where the
    kernel breaks a rule of the machine and the simulator is right to say so: text that must occur in the error.
    ``refused_07`` is the same where only NKI 0.7 refuses the kernel. ``rules`` is the value of TRNQC_SIM_RULES.
    """

    source: str
    kernel: str
    shapes: str
    target: str
    run: Callable[[Path], tuple[Sequence[Any], Sequence[Any]]]
    rtol: float = 1e-5
    atol: float = 1e-6
    refused: str = ""
    refused_07: str = ""
    rules: str = "strict"

    def refusal(self, version: str) -> str:
        """Text that must occur in the error in this version of NKI, or "" if the kernel must run."""
        return self.refused or (self.refused_07 if version == "0.7" else "")

    @property
    def key(self) -> str:
        return f"{self.source}:{self.kernel}[{self.shapes}]@{self.target}"


@dataclass(frozen=True)
class Verdict:
    """Largest error, relative to the largest expected value of its output, and whether all are within tolerance."""

    passed: bool
    error: float
    why: str = ""


def judge(results: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float) -> Verdict:
    """Compare outputs with |got - want| <= atol + rtol max|want|, NaN only where NaN is expected."""
    if len(results) != len(expected):
        return Verdict(False, np.inf, f"{len(expected)} outputs expected, {len(results)} found")
    worst, passed, why = 0.0, True, ""
    for n, (got, want) in enumerate(zip(results, expected, strict=True)):
        got, want = as_float(got), as_float(want)
        if got.shape != want.shape:
            return Verdict(False, np.inf, f"output {n}: shape {want.shape} expected, {got.shape} found")
        missing = np.isnan(got) & ~np.isnan(want)
        if missing.any():
            return Verdict(False, np.inf, f"output {n}: {missing.mean():.1%} of the elements are NaN (never written?)")
        with np.errstate(invalid="ignore"):
            gap = np.where(got == want, 0.0, np.abs(got - want))
        largest = np.nanmax(gap, initial=0.0)
        scale = np.nanmax(np.abs(want[np.isfinite(want)]), initial=0.0)
        worst = max(worst, largest / scale if scale else largest)
        if not largest <= atol + rtol * scale:
            passed, why = False, f"output {n}: largest error {largest:.3g} where the largest value is {scale:.3g}"
    return Verdict(passed, float(worst), why)


def as_float(array: object) -> np.ndarray:
    """A NumPy array or torch tensor of any dtype as float64."""
    if hasattr(array, "detach"):
        array = array.detach().double().numpy()
    return np.asarray(array).astype(np.float64)


def load(path: Path, beside: bool = False) -> ModuleType:
    """Import the file at ``path``; with ``beside`` its folder is searched for imports as well."""
    if beside and str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
