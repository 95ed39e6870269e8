"""Kernels of nki-library at small sizes, where the library's own tests have sizes of large models only."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from scripts.conformance.cases import Case
from scripts.conformance.examples import BF16, normal, simulate

CASES: list[Case] = []


def case(kernel: str, shapes: str, *targets: str, **tolerances) -> Callable[[Any], Any]:
    def register(run):
        CASES.extend(Case("library", kernel, shapes, target, run, **tolerances) for target in targets)
        return run

    return register


def library(root: Path, name: str) -> ModuleType:
    if str(root / "src") not in sys.path:
        sys.path.insert(0, str(root / "src"))
    return importlib.import_module(f"nkilib_src.nkilib.{name}")


def launched(kernel: Any, cores: int) -> Any:
    return kernel[cores] if cores > 1 else kernel


def _cross_entropy(positions: int, vocabulary: int, batch: int, chunk: int, dtype: str, cores: int, backward: bool):
    def run(root: Path):
        import nki.language as nl
        import torch

        module = library(root, "experimental.loss.cross_entropy")
        reference = library(root, "experimental.loss.cross_entropy_torch")
        logits = normal(positions, vocabulary, dtype=np.float32 if dtype == "float32" else BF16)
        targets = np.random.default_rng(3).integers(0, vocabulary, positions).astype(np.int32)
        wide, classes = torch.from_numpy(logits.astype(np.float32)), torch.from_numpy(targets).long()
        options = {"positions_per_batch": batch, "chunk_size": chunk, "dtype": getattr(nl, dtype)}
        if not backward:
            got = simulate(launched(module.cross_entropy_forward, cores), logits, targets, **options)
            return got, list(reference.cross_entropy_forward_torch_ref(wide, classes))
        lse = torch.logsumexp(wide, dim=1).numpy().astype(logits.dtype)
        kernel = launched(module.cross_entropy_backward, cores)
        got = simulate(kernel, logits, targets, lse, inplace=False, **options)
        return got, [reference.cross_entropy_backward_torch_ref(wide, classes)]

    return run


for _shape, _dtype, _tolerance in (
    ((16, 2048, 8, 2048), "float32", 1e-5),
    ((64, 5003, 32, 2048), "float32", 1e-5),
    ((32, 4096, 16, 2048), "bfloat16", 2e-2),
):
    for _cores in (1, 2):
        _label = f"{'x'.join(map(str, _shape[:2]))} chunk {_shape[3]} {_dtype}, {_cores} cores"
        case("cross_entropy_forward", _label, "trn2", rtol=_tolerance)(_cross_entropy(*_shape, _dtype, _cores, False))
        case("cross_entropy_backward", _label, "trn2", rtol=_tolerance)(_cross_entropy(*_shape, _dtype, _cores, True))
