"""CPU time of energies and forces of a MACE model with random weights, with and without our layers, in turns.

8 cells^3 carbon atoms in the diamond structure. One thread. With `training` the time is that of a step of training: the
gradients, with respect to all weights, of a loss of the energy and the forces. The allocator is glibc's default, or one
that gives no memory back, on both sides. mace-torch pins an e3nn of its own, so it may live in another environment.
"""

from __future__ import annotations

import copy
import json
import sys
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from scripts.measuring import clocked, in_turns, process

if TYPE_CHECKING:
    from torch import Tensor

# glibc: blocks of any size from the heap, which is never trimmed.
TUNED = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592"}
HIDDEN = "128x0e+128x1o+128x2e"


def case(python: str, dtype: str, rounds: int = 5, *, tuned: bool = False, **choices: Any) -> dict[str, Any]:
    """One row of the record, measured by the environment of an interpreter; `choices` are those of `measure`."""
    arguments = json.dumps({"dtype": dtype, "rounds": rounds, **choices})
    environment = {"OMP_NUM_THREADS": "1"} | (TUNED if tuned else {})
    row: dict[str, Any] = process("scripts.cg.mace", arguments, python=python, environment=environment)
    named = {"case": row["case"] + ", tuned allocator", "allocator": TUNED} if tuned else {"allocator": "default"}
    return row | named


def measure(dtype: str, rounds: int, hidden: str = HIDDEN, cells: int = 2, training: bool = False) -> dict[str, Any]:
    """Medians of CPU milliseconds, their ratio, and how far the results are apart."""
    import torch

    from examples.data.atomistic_models import diamond, mace_batch, mace_model
    from trnqc.cg import accelerate

    torch.set_num_threads(1)
    kind, atoms = getattr(torch, dtype), diamond(cells)
    theirs, graph = mace_model(hidden, kind), mace_batch(atoms, kind)
    ours = copy.deepcopy(theirs)
    accelerate(ours)
    work, name = (gradients, "training step") if training else (energy_and_forces, "energy and forces")
    models = {"e3nn": theirs, "trnqc": ours}
    samples = in_turns(rounds, {key: clocked(partial(work, model, graph)) for key, model in models.items()})
    spent = {key: 1e3 * median(cpu for _, cpu in times) for key, times in samples.items()}
    results = zip(work(ours, graph).items(), work(theirs, graph).values())
    return {
        "case": f"MACE {hidden}, training" if training else f"MACE {hidden}",
        "dtype": dtype,
        "atoms": len(atoms),
        "edges": graph["edge_index"].shape[1],
        "rounds": rounds,
        "milliseconds": spent,
        "speedup": {name: spent["e3nn"] / spent["trnqc"]},
        "error": {key: float((a - b).abs().max() / b.abs().max()) for (key, a), b in results},
    }


def energy_and_forces(model: Any, graph: dict[str, Any], training: bool = False) -> dict[str, Tensor]:
    """Return the energy and the forces, which can be differentiated if `training` is True."""
    import torch

    fresh = {name: v.clone() if torch.is_tensor(v) else v for name, v in graph.items()}
    results = model(fresh, training=training, compute_force=True)
    return {"energy": results["energy"], "energy and forces": results["forces"]}


def gradients(model: Any, graph: dict[str, Any]) -> dict[str, Tensor]:
    """Return the gradients of the sum of the squared energy and the squared forces with respect to the weights."""
    import torch

    model.zero_grad()
    results = energy_and_forces(model, graph, training=True)
    loss = results["energy"].pow(2).sum() + results["energy and forces"].pow(2).sum()
    loss.backward()
    all_gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return {"training step": torch.cat(all_gradients)}


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
