"""CPU time of the fully connected products of published models, in turns with e3nn; one thread.

e3nn's times differ between processes by factors, so its smallest stands against our median.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import torch

from scripts.cg.batch import cpu, of_e3nn, of_ours
from scripts.measuring import in_turns
from scripts.workloads.tensor_products import configuration


def case(label: str, dtype: str = "float32", batch: int = 1000, rounds: int = 10) -> dict[str, Any]:
    """Milliseconds of every direction, e3nn's smallest and our median, and their ratio."""
    torch.set_num_threads(1)
    problem = configuration(label)
    theirs, ours = of_e3nn(problem, batch, dtype), of_ours(problem, batch, dtype)
    contestants = {f"e3nn {name}": cpu(work) for name, work in theirs.items()}
    contestants |= {f"trnqc {name}": cpu(work) for name, work in ours.items()}
    seconds = in_turns(rounds, contestants)
    smallest = {name: 1e3 * min(seconds[f"e3nn {name}"]) for name in theirs}
    own = {name: 1e3 * median(seconds[f"trnqc {name}"]) for name in ours}
    speedup = {name: smallest[name.partition(",")[0]] / milliseconds for name, milliseconds in own.items()}
    return {
        "case": label,
        "dtype": dtype,
        "batch": batch,
        "rounds": rounds,
        "e3nn milliseconds, smallest": smallest,
        "trnqc milliseconds, median": own,
        "speedup": speedup,
    }
