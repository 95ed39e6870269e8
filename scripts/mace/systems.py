"""Crystals and MACE models with random weights for `bench_mace`."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Lattice constant of cubic SrTiO3 in Angstrom.
LATTICE = 3.905
# Atomic numbers of the model with five elements: those of the crystal, Ca and Zr.
FIVE = [8, 20, 22, 38, 40]


@dataclass(frozen=True)
class System:
    """A crystal of SrTiO3 and a model.

    Parameters
    ----------
    name : str
    cells : int
        The crystal has 5 cells^3 atoms.
    changed : dict
        Arguments of the model that differ from those of `model`. Interaction blocks are names without "RealAgnostic".
    unsupported : tuple of str
        Contestants that cannot evaluate the model.
    """

    name: str
    cells: int = 3
    changed: dict[str, Any] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()


SYSTEMS = (
    System("128x0e+128x1o"),
    System("128x0e+128x1o, 1080 atoms", cells=6),
    # symmetrix-xl 0.1.1 reads models of correlation 3 only.
    System("correlation 2", changed={"correlation": 2}, unsupported=("symmetrix",)),
    System("64x0e+64x1o+64x2e", changed={"hidden_irreps": "64x0e+64x1o+64x2e"}),
    System("five elements", changed={"atomic_numbers": FIVE}),
    System("128x0e", changed={"hidden_irreps": "128x0e"}),
    System("128x0e+128x1o+128x2e", changed={"hidden_irreps": "128x0e+128x1o+128x2e"}),
    System("blocks of OFF23", changed={"interaction_cls_first": "InteractionBlock", "r_max": 5.0}),
    System(
        "blocks of MPA-0",
        changed={
            "interaction_cls_first": "DensityInteractionBlock",
            "interaction_cls": "DensityResidualInteractionBlock",
            "distance_transform": "Agnesi",
            "pair_repulsion": True,
        },
    ),
    System(
        "blocks of MH-1",
        changed={
            "interaction_cls_first": "ResidualNonLinearInteractionBlock",
            "interaction_cls": "ResidualNonLinearInteractionBlock",
            "edge_irreps": "128x0e+128x1o",
            "apply_cutoff": False,
            "use_agnostic_product": True,
            "use_last_readout_only": True,
            "use_edge_irreps_first": True,
        },
    ),
)
# Numbers of the systems of the part `variants`, and of those with the sizes and blocks of published families.
VARIANTS, FAMILIES = range(2, 6), (0, *range(5, 10))


def crystal(cells: int) -> Any:
    """SrTiO3 with 5 cells^3 atoms, each moved by normal deviates of 0.05 Angstrom."""
    from ase.spacegroup import crystal

    basis = [(0, 0, 0), (0.5, 0.5, 0.5), (0.5, 0.5, 0)]
    cell = [LATTICE] * 3 + [90] * 3
    atoms = crystal(symbols=["Sr", "Ti", "O"], basis=basis, spacegroup=221, cellpar=cell).repeat(cells)
    atoms.rattle(0.05, seed=1)
    return atoms


def model(dtype: str, changed: dict[str, Any]) -> Any:
    """ScaleShiftMACE with two residual interactions, correlation 3, harmonics up to l = 3, a cutoff of 6 Angstrom."""
    import torch
    from mace import modules  # before e3nn, whose old release needs a variable that mace sets

    o3 = importlib.import_module("e3nn.o3")
    torch.set_default_dtype(getattr(torch, dtype))
    torch.manual_seed(0)
    arguments: dict[str, Any] = {
        "r_max": 6.0,
        "num_bessel": 10,
        "num_polynomial_cutoff": 5,
        "max_ell": 3,
        "interaction_cls": "ResidualInteractionBlock",
        "interaction_cls_first": "ResidualInteractionBlock",
        "num_interactions": 2,
        "hidden_irreps": "128x0e+128x1o",
        "MLP_irreps": o3.Irreps("16x0e"),
        "gate": torch.nn.functional.silu,
        "avg_num_neighbors": 60.0,
        "atomic_numbers": [8, 22, 38],
        "correlation": 3,
        "radial_type": "bessel",
        "atomic_inter_scale": 1.0,
        "atomic_inter_shift": 0.0,
    }
    arguments |= changed
    for name in ("hidden_irreps", "edge_irreps"):
        if name in arguments:
            arguments[name] = o3.Irreps(arguments[name])
    for name in ("interaction_cls", "interaction_cls_first"):
        arguments[name] = modules.interaction_classes[f"RealAgnostic{arguments[name]}"]
    count = len(arguments["atomic_numbers"])
    return modules.ScaleShiftMACE(num_elements=count, atomic_energies=np.zeros(count), **arguments)
