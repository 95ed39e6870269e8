"""CPU time of energies and forces of a MACE model with random weights, with and without our convolutions, in turns.

    python -m scripts.cg.mace [--dtype float32] [--hidden 128x0e+128x1o+128x2e] [--cells 2] [--rounds 5] [--tuned]
        [--python /path/to/an/environment/with/mace-torch/bin/python]

8 cells^3 carbon atoms in the diamond structure. One thread. The allocator is glibc's default, or with --tuned one that
gives no memory back, on both sides. mace-torch pins an e3nn of its own, so it may live in another environment; without
--python that is what MACE_PYTHON names, or this one.
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
from typing import Any

from scripts import ROOT
from scripts.measuring import clocked, in_turns

# glibc: blocks of any size from the heap, which is never trimmed.
TUNED = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592"}
HIDDEN = "128x0e+128x1o+128x2e"


def case(
    dtype: str, rounds: int = 5, *, hidden: str = HIDDEN, cells: int = 2, tuned: bool = False, python: str = ""
) -> dict[str, Any]:
    """One row of the record, measured by the environment that `python` belongs to, in a process of its own."""
    python = python or os.environ.get("MACE_PYTHON", sys.executable)
    command = [python, "-m", "scripts.cg.mace", "--here", "--dtype", dtype, "--hidden", hidden]
    command += ["--cells", str(cells), "--rounds", str(rounds)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | (TUNED if tuned else {})
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    except FileNotFoundError as error:
        raise SystemExit(f"expected the python of an environment with mace-torch, found {python}: {error}") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{python} cannot measure MACE; it needs mace-torch:\n{error.stderr[-1000:]}") from error
    allocator = {"case": f"MACE {hidden}, tuned allocator", "allocator": TUNED} if tuned else {"allocator": "default"}
    return json.loads(done.stdout.splitlines()[-1]) | allocator


def measure(dtype: str, hidden: str, cells: int, rounds: int) -> dict[str, Any]:
    """Medians of CPU milliseconds, their ratio, and how far energies and forces are apart."""
    import torch

    from examples.data.atomistic_models import diamond, mace_batch, mace_model
    from trnqc.cg import accelerate

    torch.set_num_threads(1)
    kind, atoms = getattr(torch, dtype), diamond(cells)
    theirs, graph = mace_model(hidden, kind), mace_batch(atoms, kind)
    ours = copy.deepcopy(theirs)
    accelerate(ours)

    def energy_and_forces(model: Any) -> dict[str, Any]:
        fresh = {name: v.clone() if torch.is_tensor(v) else v for name, v in graph.items()}
        return model(fresh, compute_force=True)

    models = {"e3nn": theirs, "trnqc": ours}
    contestants = {name: clocked(partial(energy_and_forces, model)) for name, model in models.items()}
    samples = in_turns(rounds, contestants)
    spent = {name: 1e3 * median(cpu for _, cpu in times) for name, times in samples.items()}
    a, b = energy_and_forces(theirs), energy_and_forces(ours)
    return {
        "case": f"MACE {hidden}",
        "dtype": dtype,
        "atoms": len(atoms),
        "edges": graph["edge_index"].shape[1],
        "rounds": rounds,
        "milliseconds": spent,
        "speedup": {"energy and forces": spent["e3nn"] / spent["trnqc"]},
        "error": {
            "energy and forces": float((a["forces"] - b["forces"]).abs().max() / a["forces"].abs().max()),
            "energy": float((a["energy"] - b["energy"]).abs().max() / a["energy"].abs().max()),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--hidden", default=HIDDEN)
    parser.add_argument("--cells", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--python", default="")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        record = measure(asked.dtype, asked.hidden, asked.cells, asked.rounds)
    else:
        record = case(
            asked.dtype, asked.rounds, hidden=asked.hidden, cells=asked.cells, tuned=asked.tuned, python=asked.python
        )
    print(json.dumps(record))


if __name__ == "__main__":
    main()
