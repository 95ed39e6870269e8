"""CPU time of a batch of tensor products stored in half precision, beside e3nn's and beside ours in float32."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from scripts.cg.batch import DIRECTIONS, cpu, of_e3nn, operands
from scripts.measuring import in_turns
from scripts.workloads.tensor_products import configuration
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.problem.text import text_of
from trnqc.cg.torch.operators import BATCH


def of_operators(problem: TPProblem, batch: int, dtype: str) -> dict[str, Callable[[], Any]]:
    """Each direction by our operator, with fresh outputs."""
    first, second = operands(problem, batch, dtype), operands(problem, batch, dtype, 1)[:3]
    held = [*first, *second]
    arguments = {"forward": held[:3], "backward": held[:4], "double_backward": held}
    return {
        name: lambda name=name: BATCH.operators[name](*arguments[name], text_of(problem))  # type: ignore[misc]
        for name in DIRECTIONS
    }


def case(label: str, dtype: str, batch: int = 1000, rounds: int = 10) -> dict[str, Any]:
    """Median milliseconds of one thread, and the speed relative to e3nn in the same type and to ours in float32."""
    torch.set_num_threads(1)
    problem = configuration(label)
    parties = {
        f"e3nn {dtype}": of_e3nn(problem, batch, dtype),
        f"trnqc {dtype}": of_operators(problem, batch, dtype),
        "trnqc float32": of_operators(problem, batch, "float32"),
    }
    contestants = {f"{party} {name}": cpu(work[name]) for party, work in parties.items() for name in DIRECTIONS}
    took = {name: median(seconds) for name, seconds in in_turns(rounds, contestants).items()}
    record: dict[str, Any] = {"case": label, "dtype": dtype, "layout": "mul_ir", "batch": batch, "rounds": rounds}
    record["milliseconds"] = {name: 1e3 * seconds for name, seconds in took.items()}
    record["speedup"] = {
        f"{name} over {other}": took[f"{party} {name}"] / took[f"trnqc {dtype} {name}"]
        for party, other in ((f"e3nn {dtype}", "e3nn"), ("trnqc float32", "float32"))
        for name in DIRECTIONS
    }
    return record
