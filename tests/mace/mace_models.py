"""Models of mace-torch with random weights and the hyperparameters of the published families."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch

# Blocks of the first and of the following layers, and further arguments, by family. Sizes are small.
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "MP-0": ("Residual", "Residual", {}),
    "scalars": ("Residual", "Residual", {"hidden_irreps": "8x0e"}),
    "OFF23": ("", "Residual", {}),
    "MPA-0": ("Density", "DensityResidual", {"distance_transform": "Agnesi", "pair_repulsion": True}),
    "soft": ("", "Residual", {"distance_transform": "Soft", "radial_type": "gaussian", "correlation": 2}),
    "three layers": ("Residual", "Residual", {"num_interactions": 3, "correlation": [3, 2, 1]}),
    "one layer": ("Residual", "Residual", {"num_interactions": 1}),
    "no scale": ("", "Residual", {"kind": "MACE"}),
    "heads": ("", "Residual", {"heads": ["a", "b"]}),
    "dipoles": ("", "Residual", {"kind": "EnergyDipolesMACE", "MLP_irreps": "6x0e+5x1o"}),
    "MH-1": (
        "ResidualNonLinear",
        "ResidualNonLinear",
        {
            "heads": ["a", "b"],
            "apply_cutoff": False,
            "edge_irreps": "4x0e+4x1o",
            "use_agnostic_product": True,
            "use_last_readout_only": True,
            "use_edge_irreps_first": True,
        },
    ),
}


def random_model(family: str, numbers: tuple[int, ...] = (1, 6, 8), dtype: Any = torch.float64, **changed: Any) -> Any:
    """A model of a family, with weights and buffers that are not at their defaults."""
    modules = importlib.import_module("mace.modules")  # before e3nn, whose old release needs a variable that mace sets
    o3 = importlib.import_module("e3nn.o3")
    first, other, special = FAMILIES[family]
    special = special | changed
    heads = special.get("heads", ["Default"])
    for name in ("hidden_irreps", "edge_irreps", "MLP_irreps"):
        if name in special:
            special[name] = o3.Irreps(special[name])
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    arguments = {
        "r_max": 4.0,
        "num_bessel": 6,
        "num_polynomial_cutoff": 5,
        "max_ell": 2,
        "interaction_cls_first": modules.interaction_classes[f"RealAgnostic{first}InteractionBlock"],
        "interaction_cls": modules.interaction_classes[f"RealAgnostic{other}InteractionBlock"],
        "num_interactions": 2,
        "num_elements": len(numbers),
        "hidden_irreps": o3.Irreps("8x0e+8x1o"),
        "MLP_irreps": o3.Irreps("6x0e"),
        "gate": torch.nn.functional.silu,
        "atomic_energies": rng.normal(size=(len(heads), len(numbers)))
        if len(heads) > 1
        else rng.normal(size=len(numbers)),
        "avg_num_neighbors": 9.0,
        "atomic_numbers": list(numbers),
        "correlation": 3,
        "radial_type": "bessel",
        "radial_MLP": [16, 16],
    }
    scaled = {
        "atomic_inter_scale": list(rng.normal(1, 0.1, len(heads))) if len(heads) > 1 else 1.3,
        "atomic_inter_shift": list(rng.normal(size=len(heads))) if len(heads) > 1 else 0.2,
    }
    kind = special.pop("kind", "ScaleShiftMACE")
    arguments |= scaled if kind == "ScaleShiftMACE" else {}
    if kind == "EnergyDipolesMACE":
        del arguments["radial_type"]
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return getattr(modules, kind)(**(arguments | special))
    finally:
        torch.set_default_dtype(before)
