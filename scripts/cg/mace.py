"""CPU time of energies and forces of a MACE model with random weights, with and without our layers, in turns.

    python -m scripts.cg.mace [--dtype float32] [--hidden 128x0e+128x1o+128x2e] [--cells 2] [--rounds 5] [--tuned]
        [--training] [--python /path/to/an/environment/with/mace-torch/bin/python]

8 cells^3 carbon atoms in the diamond structure. One thread. With --training the time is that of a step of training: the
gradients, with respect to all weights, of a loss of the energy and the forces. The allocator is glibc's default, or one
that gives no memory back with --tuned, on both sides. mace-torch pins an e3nn of its own, so it may live in another
environment; without --python that is what MACE_PYTHON names, or this one.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from scripts import ROOT
from scripts.measuring import clocked, in_turns

if TYPE_CHECKING:
    from torch import Tensor

# glibc: blocks of any size from the heap, which is never trimmed.
TUNED = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592"}
HIDDEN = "128x0e+128x1o+128x2e"


def case(
    dtype: str,
    rounds: int = 5,
    *,
    hidden: str = HIDDEN,
    cells: int = 2,
    tuned: bool = False,
    training: bool = False,
    python: str = "",
) -> dict[str, Any]:
    """One row of the record, measured by the environment that `python` belongs to, in a process of its own."""
    python = python or os.environ.get("MACE_PYTHON", sys.executable)
    command = [python, "-m", "scripts.cg.mace", "--here", "--dtype", dtype, "--hidden", hidden]
    command += ["--cells", str(cells), "--rounds", str(rounds), *["--training"] * training]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | (TUNED if tuned else {})
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise SystemExit(f"expected the python of an environment with mace-torch, found {python}: {error}") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{python} cannot measure MACE; it needs mace-torch:\n{error.stderr[-1000:]}") from error
    row = json.loads(done.stdout.splitlines()[-1])
    return row | (
        {"case": row["case"] + ", tuned allocator", "allocator": TUNED} if tuned else {"allocator": "default"}
    )


def measure(dtype: str, hidden: str, cells: int, rounds: int, training: bool) -> dict[str, Any]:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--hidden", default=HIDDEN)
    parser.add_argument("--cells", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--python", default="")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        record = measure(asked.dtype, asked.hidden, asked.cells, asked.rounds, asked.training)
    else:
        names = ("hidden", "cells", "tuned", "training", "python")
        record = case(asked.dtype, asked.rounds, **{name: getattr(asked, name) for name in names})
    print(json.dumps(record))


if __name__ == "__main__":
    main()
