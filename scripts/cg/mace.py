"""CPU time of energies and forces of a MACE model with random weights, before and after `trnqc.cg.accelerate`."""

from __future__ import annotations

import copy
from statistics import median
from typing import Any

import torch

from scripts.cg.models import diamond, mace_batch, mace_model
from scripts.measuring import clocked, in_turns
from trnqc.cg import accelerate

HIDDEN = "128x0e+128x1o+128x2e"


def case(dtype: str, rounds: int = 5, hidden: str = HIDDEN) -> dict[str, Any]:
    """64 atoms of rattled diamond, one thread; median seconds, their ratio, and the differences of the results."""
    torch.set_num_threads(1)
    kind = getattr(torch, dtype)
    model, batch = mace_model(hidden, kind), mace_batch(diamond(), kind)
    swapped = copy.deepcopy(model)
    accelerate(swapped)
    energy, forces = run(model, batch)
    ours = run(swapped, batch)
    contestants = {"e3nn": clocked(lambda: run(model, batch)), "trnqc": clocked(lambda: run(swapped, batch))}
    seconds = {name: median(cpu for _, cpu in found) for name, found in in_turns(rounds, contestants).items()}
    return {
        "case": f"MACE {hidden}",
        "dtype": dtype,
        "edges": int(batch["edge_index"].shape[1]),
        "rounds": rounds,
        "seconds": seconds,
        "speedup": {"energy and forces": seconds["e3nn"] / seconds["trnqc"]},
        "energy, relative": float(abs(ours[0] - energy) / abs(energy)),
        "forces, of the largest": float((ours[1] - forces).abs().max() / forces.abs().max()),
    }


def run(model: torch.nn.Module, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    given = {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    found = model(given, compute_force=True)
    return found["energy"].detach(), found["forces"].detach()
