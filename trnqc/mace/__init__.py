"""Whole MACE models, evaluated by generated kernels without PyTorch: energies, forces and stress.

module of mace-torch -> reader -> description (model.py) -> evaluate.py: edges/, nodes/, driver/ -> energies, forces
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnqc.lazy import lazy_names

if TYPE_CHECKING:
    from trnqc.mace.calculator import Calculator
    from trnqc.mace.evaluate import Evaluator, Result
    from trnqc.mace.files import save
    from trnqc.mace.model import Model
    from trnqc.mace.prepare import prepare
    from trnqc.mace.source import description

__all__ = ["Calculator", "Evaluator", "Model", "Result", "description", "prepare", "save"]

# The calculator needs ASE, and an evaluation needs a compiler.
_HOMES = {
    "Calculator": "trnqc.mace.calculator",
    "Evaluator": "trnqc.mace.evaluate",
    "Model": "trnqc.mace.model",
    "Result": "trnqc.mace.evaluate",
    "description": "trnqc.mace.source",
    "prepare": "trnqc.mace.prepare",
    "save": "trnqc.mace.files",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
