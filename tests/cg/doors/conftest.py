"""Each package's model behind one face, so that all doors keep the same promises; skipped where it is not installed.

mace-torch wants another release of e3nn than nequip and sevenn, so one environment has it or them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ase")


@dataclass
class Case:
    """A model with random weights on 8 displaced carbon atoms."""

    model: Any
    call: Callable[[Any], dict[str, Any]]
    energy: str
    train: Callable[[Any], dict[str, Any]]

    def run(self, model: Any = None) -> tuple[Any, Any]:
        """Energy and forces."""
        result = self.call(model or self.model)
        return result[self.energy].detach(), result["forces"].detach()


def make(package: str, dtype: str) -> Case:
    from examples.data import atomistic_models as models

    atoms = models.diamond(1, shift=0.15)
    if package == "mace":
        model = models.mace_model("8x0e+8x1o+8x2e", getattr(torch, dtype), max_ell=2, r_max=3.0)
        batch = models.mace_batch(atoms, getattr(torch, dtype), r_max=3.0)

        def training(m: Any) -> dict[str, Any]:
            return m(copied(batch), training=True, compute_force=True)

        return Case(model, lambda m: m(copied(batch), compute_force=True), "energy", training)
    if package == "sevenn":
        if dtype != "float32":
            pytest.skip("SevenNet has constants in float32")
        model = models.sevennet_model(2, 5, r_max=3.0)
        return Case(model.eval(), lambda m: sevennet_results(m, atoms), "energy", lambda m: sevennet_results(m, atoms))
    model, batch = models.nequip_model(2, 5, dtype, r_max=3.0), models.nequip_batch(atoms, r_max=3.0)
    return Case(model.eval(), lambda m: m(copied(batch)), "total_energy", lambda m: m(copied(batch)))


def sevennet_results(model: Any, atoms: Any) -> dict[str, Any]:
    from examples.data import atomistic_models as models

    result = model(models.sevennet_graph(atoms, r_max=3.0))
    return {"energy": result["inferred_total_energy"], "forces": result["inferred_force"]}


def copied(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: v.clone() if torch.is_tensor(v) else v for name, v in batch.items()}


def installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@pytest.fixture(params=["mace", "nequip", "sevenn"])
def package(request):
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture
def case(package, dtype):
    return make(package, dtype)
