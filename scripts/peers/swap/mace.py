"""A pytest plugin that puts `trnqc.mace.Calculator` in the place of mace-torch's calculator, for its tests.

Models of dipoles without energies and of polarizabilities, which ours does not have, keep mace-torch's calculator.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import mace.calculators
import mace.calculators.foundations_models
import mace.calculators.mace
import torch

import trnqc.mace

THEIRS = mace.calculators.mace.MACECalculator
OURS = ("MACE", "EnergyDipoleMACE")
HOMES = (mace.calculators, mace.calculators.mace, mace.calculators.foundations_models)

_counts = {"calculators": 0}


class Swapped(trnqc.mace.Calculator):
    """Our calculator with the arguments and attributes of mace-torch's that the tests use."""

    def __new__(cls, *args: Any, model_type: str = "MACE", **options: Any) -> Any:
        return super().__new__(cls) if model_type in OURS else THEIRS(*args, model_type=model_type, **options)

    def __init__(
        self,
        model_paths: Any = None,
        *,
        models: Any = None,
        head: str | None = None,
        default_dtype: str = "",
        model_type: str = "MACE",
        **_: Any,
    ) -> None:
        given = models if model_paths is None else model_paths
        self.models = _loaded(given) if model_paths is not None else list(given if _several(given) else [given])
        dtype = default_dtype or str(next(self.models[0].parameters()).dtype).removeprefix("torch.")
        super().__init__(self.models, head, dtype=dtype)
        self.model_type = model_type
        _counts["calculators"] += 1
        # The recorder shows the counts beside the outcomes: a file in which nothing is swapped tests nothing.
        os.environ["PEERS_SWAPPED"] = json.dumps(_counts)

    def _atoms_to_batch(self, atoms: Any) -> Any:
        """The batch of mace-torch, from which a test reads the energies of isolated atoms."""
        return THEIRS(models=self.models, default_dtype=self.evaluator.dtype)._atoms_to_batch(atoms)


def _several(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _loaded(paths: Any) -> list[Any]:
    """The modules of some files, which the tests read from a calculator."""
    several: Sequence[Any] = paths if _several(paths) else [paths]
    return [torch.load(path, map_location="cpu", weights_only=False) for path in several]


def pytest_configure() -> None:
    for home in HOMES:
        home.MACECalculator = Swapped
