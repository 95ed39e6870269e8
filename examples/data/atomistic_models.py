"""MACE, NequIP and SevenNet models with random weights and a crystal to run them on, for measurements and tests.

Each needs its package: mace-torch and the others pin different versions of e3nn and live in environments of their own.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from ase import Atoms
from ase.build import bulk


def diamond(cells: int = 2, shift: float = 0.05, seed: int = 1) -> Atoms:
    """Carbon in the diamond structure, 8 cells^3 atoms, each moved by normal deviates of `shift` Angstrom."""
    atoms = bulk("C", "diamond", a=3.567, cubic=True).repeat(cells)
    atoms.rattle(shift, seed=seed)
    return atoms


def mace_model(
    hidden: str, dtype: torch.dtype, *, max_ell: int = 3, r_max: float = 5.0, seed: int = 0, number: int = 6
) -> Any:
    """ScaleShiftMACE of one element, carbon by default: two residual interactions, correlation 3."""
    from mace import modules  # before e3nn, whose old release needs a variable that mace sets

    o3 = importlib.import_module("e3nn.o3")
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    torch.manual_seed(seed)
    block = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
    try:
        return modules.ScaleShiftMACE(
            r_max=r_max,
            num_bessel=8,
            num_polynomial_cutoff=5,
            max_ell=max_ell,
            interaction_cls=block,
            interaction_cls_first=block,
            num_interactions=2,
            num_elements=1,
            hidden_irreps=o3.Irreps(hidden),
            MLP_irreps=o3.Irreps("16x0e"),
            gate=torch.nn.functional.silu,
            atomic_energies=np.zeros(1),
            avg_num_neighbors=88.0,
            atomic_numbers=[number],
            correlation=3,
            radial_type="bessel",
            atomic_inter_scale=1.0,
            atomic_inter_shift=0.0,
        )
    finally:
        torch.set_default_dtype(before)


def mace_batch(atoms: Atoms, dtype: torch.dtype, r_max: float = 5.0, numbers: Sequence[int] = (6,)) -> dict[str, Any]:
    """What a MACE model of the elements with these atomic numbers takes: one graph."""
    from mace import data
    from mace.tools import AtomicNumberTable, torch_geometric

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        config = data.config_from_atoms(atoms)
        graph = data.AtomicData.from_config(config, z_table=AtomicNumberTable(list(numbers)), cutoff=r_max)
        loader = torch_geometric.dataloader.DataLoader([graph], batch_size=1)
        return next(iter(loader)).to_dict()
    finally:
        torch.set_default_dtype(before)


def nequip_model(l_max: int, features: int, dtype: str, *, r_max: float = 5.0, seed: int = 0) -> Any:
    """NequIP of carbon with energies and forces: three layers, both parities."""
    from nequip.model import NequIPGNNModel
    from nequip.utils.global_state import set_global_state

    set_global_state()
    return NequIPGNNModel(
        seed=seed,
        model_dtype=dtype,
        type_names=["C"],
        r_max=r_max,
        num_layers=3,
        l_max=l_max,
        parity=True,
        num_features=features,
        radial_mlp_depth=1,
        radial_mlp_width=64,
        avg_num_neighbors=88.0,
    )


def nequip_batch(atoms: Atoms, r_max: float = 5.0) -> dict[str, Any]:
    """What a NequIP model takes; positions are fp64 for models of any precision."""
    from nequip.data import AtomicDataDict, compute_neighborlist_, from_ase

    graph = compute_neighborlist_(from_ase(atoms), r_max=r_max)
    graph[AtomicDataDict.ATOM_TYPE_KEY] = torch.zeros(len(atoms), dtype=torch.int64)
    return graph


def sevennet_model(l_max: int, features: int, *, r_max: float = 5.0, seed: int = 0) -> Any:
    """SevenNet of carbon with energies and forces in float32: three layers, both parities."""
    from sevenn import _const as const
    from sevenn.model_build import build_E3_equivariant_model
    from sevenn.util import chemical_species_preprocess

    torch.manual_seed(seed)
    numbers = {
        "cutoff": r_max,
        "lmax": l_max,
        "channel": features,
        "conv_denominator": 88.0,
        "shift": 0.0,
        "scale": 1.0,
    }
    config = const.DEFAULT_E3_EQUIVARIANT_MODEL_CONFIG | numbers | chemical_species_preprocess(["C"])
    model = build_E3_equivariant_model(config)
    model.set_is_batch_data(False)
    return model


def sevennet_graph(atoms: Atoms, r_max: float = 5.0) -> Any:
    """What a SevenNet model takes."""
    from sevenn import _keys as keys
    from sevenn.atom_graph_data import AtomGraphData
    from sevenn.train.dataload import unlabeled_atoms_to_graph

    graph = AtomGraphData.from_numpy_dict(unlabeled_atoms_to_graph(atoms, r_max))
    graph[keys.EDGE_VEC].requires_grad_()
    return graph
