"""CPU time of a batch of tensor products and of its derivatives, in turns with e3nn's eager module."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from scripts.cg.peers import PEERS, Peer
from scripts.measuring import clocked, in_turns
from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import configuration
from trnqc.cg.cpu.engine import engine_for
from trnqc.cg.problem.problem import TPProblem

DIRECTIONS = ("forward", "backward", "double_backward")


# Calls a turn, so that the other contestants' data is not what a call first waits for.
IN_A_ROW = 3


def cpu(work: Callable[[], Any]) -> Callable[[], float]:
    def run() -> float:
        began = time.process_time()
        for _ in range(IN_A_ROW):
            work()
        return (time.process_time() - began) / IN_A_ROW

    return run


def e3nn_module(problem: TPProblem) -> torch.nn.Module:
    """e3nn's product of the same paths; its own normalisation is left out, since the weights hold all of it."""
    from e3nn import o3

    rules = [(i.i_in1, i.i_in2, i.i_out, i.connection_mode, i.has_weight) for i in problem.instructions]
    slots = map(str, (problem.irreps_in1, problem.irreps_in2, problem.irreps_out))
    return o3.TensorProduct(*slots, rules, internal_weights=False, shared_weights=problem.shared_weights)


def operands(problem: TPProblem, batch: int, dtype: str, seed: int = 0) -> list[torch.Tensor]:
    """x, y, w and gz."""
    make = torch.Generator().manual_seed(seed)
    weights = (problem.weight_numel,) if problem.shared_weights else (batch, problem.weight_numel)
    d1, d2, d3 = problem.dims
    shapes = ((batch, d1), (batch, d2), weights, (batch, d3))
    return [torch.randn(shape, generator=make, dtype=getattr(torch, dtype)) for shape in shapes]


def of_e3nn(problem: TPProblem, batch: int, dtype: str) -> dict[str, Callable[[], Any]]:
    """Each direction alone: what it starts from is made beforehand."""
    module = e3nn_module(problem).to(getattr(torch, dtype))
    x, y, w, gz = (t.requires_grad_() for t in operands(problem, batch, dtype))
    gg = operands(problem, batch, dtype, 1)[:3]
    z = module(x, y, w)
    first = torch.autograd.grad(z, (x, y, w), gz, create_graph=True)

    def forward() -> None:
        with torch.no_grad():
            module(x, y, w)

    return {
        "forward": forward,
        "backward": lambda: torch.autograd.grad(z, (x, y, w), gz.detach(), retain_graph=True),
        "double_backward": lambda: torch.autograd.grad(first, (x, y, w, gz), gg, retain_graph=True),
    }


def of_ours(problem: TPProblem, batch: int, dtype: str, threads: int = 1) -> dict[str, Callable[[], Any]]:
    """Outputs are reused, and made anew in the cases named so."""
    engine = engine_for(problem, dtype, threads)
    x, y, w, gz = (t.numpy() for t in operands(problem, batch, dtype))
    ggx, ggy, ggw, _ = (t.numpy() for t in operands(problem, batch, dtype, 1))
    z, *slopes = (torch.zeros(a.shape, dtype=getattr(torch, dtype)).numpy() for a in (gz, x, y, w))
    return {
        "forward": lambda: engine.forward(x, y, w, z),
        "forward, fresh output": lambda: engine.forward(x, y, w),
        "backward": lambda: engine.backward(x, y, w, gz, slopes),
        "double_backward": lambda: engine.double_backward(x, y, w, gz, ggx, ggy, ggw, [*slopes, z]),
    }


def case(label: str, dtype: str, layout: str = "mul_ir", batch: int = 1000, rounds: int = 10) -> dict[str, Any]:
    """Median milliseconds of one thread, and e3nn's over ours; e3nn's layout is mul_ir whatever ours."""
    torch.set_num_threads(1)
    problem = configuration(label, layout=layout)
    theirs, ours = of_e3nn(problem, batch, dtype), of_ours(problem, batch, dtype)
    contestants = {f"e3nn {name}": cpu(work) for name, work in theirs.items()}
    contestants |= {f"trnqc {name}": cpu(work) for name, work in ours.items()}
    seconds = in_turns(rounds, contestants)
    record: dict[str, Any] = {"case": label, "dtype": dtype, "layout": layout, "batch": batch, "rounds": rounds}
    record["milliseconds"] = {name: 1e3 * median(times) for name, times in seconds.items()}
    record["speedup"] = {
        name: median(seconds[f"e3nn {name.partition(',')[0]}"]) / median(seconds[f"trnqc {name}"]) for name in ours
    }
    return record


def beside_cuequivariance(label: str, dtype: str, batch: int = 1000, rounds: int = 10) -> dict[str, Any]:
    """As `case`, against cuEquivariance's product on a CPU, both in the layout that it prefers."""
    torch.set_num_threads(1)
    problem = configuration(label, layout="ir_mul")
    names = ("x", "y", "w", "gz", "ggx", "ggy", "ggw")
    held = dict(zip(names, [*operands(problem, batch, dtype), *operands(problem, batch, dtype, 1)[:3]]))
    peer, ours = Peer(PEERS["cuequivariance"](problem, held["x"])), of_ours(problem, batch, dtype)
    contestants = {f"cuequivariance {name}": cpu(peer.work(name, held)) for name in DIRECTIONS}
    contestants |= {f"trnqc {name}": cpu(ours[name]) for name in DIRECTIONS}
    took = {name: median(seconds) for name, seconds in in_turns(rounds, contestants).items()}
    record: dict[str, Any] = {"case": label, "dtype": dtype, "layout": "ir_mul", "batch": batch, "rounds": rounds}
    record["milliseconds"] = {name: 1e3 * seconds for name, seconds in took.items()}
    record["speedup"] = {name: took[f"cuequivariance {name}"] / took[f"trnqc {name}"] for name in DIRECTIONS}
    return record


def accuracy(label: str, dtype: str, batch: int = 20) -> dict[str, float]:
    """Largest error over the largest value of each result, against the dense reference in fp64."""
    problem = configuration(label)
    engine = engine_for(problem, dtype, 1)
    x, y, w, gz = (t.numpy() for t in operands(problem, batch, dtype))
    gg = [t.numpy() for t in operands(problem, batch, dtype, 1)[:3]]
    results = {
        "forward": ((engine.forward(x, y, w),), (oracle.forward(problem, x, y, w),)),
        "backward": (engine.backward(x, y, w, gz), oracle.backward(problem, x, y, w, gz)),
        "double_backward": (
            engine.double_backward(x, y, w, gz, gg[0], gg[1], gg[2]),
            oracle.double_backward(problem, x, y, w, gz, *gg),
        ),
    }
    return {name: max(map(oracle.error, *pair)) for name, pair in results.items()}


def threads(label: str, dtype: str, count: int, batch: int = 1000, rounds: int = 10) -> dict[str, Any]:
    """Wall seconds of one thread over those of `count`, for every direction; smallest of the rounds."""
    torch.set_num_threads(1)
    problem = configuration(label)
    contestants = {
        f"{n} {name}": clocked(work) for n in (1, count) for name, work in of_ours(problem, batch, dtype, n).items()
    }
    wall = {name: min(w for w, _ in times) for name, times in in_turns(rounds, contestants).items()}
    ratios = {name: wall[f"1 {name}"] / wall[f"{count} {name}"] for name in DIRECTIONS}
    return {"case": label, "dtype": dtype, "threads": count, "batch": batch, "rounds": rounds, "speedup": ratios}


if __name__ == "__main__":
    print(json.dumps(case(sys.argv[1], sys.argv[2])))
