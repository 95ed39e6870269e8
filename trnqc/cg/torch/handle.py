"""A problem as text, and the engine that such a text asks for.

An operator's arguments are kept in traced and exported programs, which other processes load: so a problem is passed as
its text, which is all there is to it, and not as the number of an object.
"""

from __future__ import annotations

import functools
import json
from types import SimpleNamespace
from typing import Any

from trnqc.cg.problem.problem import TPProblem, from_e3nn
from trnqc.errors import InputError, UnsupportedError

SLOTS = ("irreps_in1", "irreps_in2", "irreps_out")
OPTIONS = ("layout", "dtype", "label")


def text_of(problem: TPProblem) -> str:
    """The problem as JSON; path weights are exact."""
    paths = [[i.i_in1, i.i_in2, i.i_out, i.connection_mode, i.has_weight, i.path_weight] for i in problem.instructions]
    held: dict[str, Any] = {name: str(getattr(problem, name)) for name in SLOTS}
    held |= {"instructions": paths, "shared_weights": problem.shared_weights}
    held |= {name: getattr(problem, name) for name in OPTIONS}
    return json.dumps(held, separators=(",", ":"))


@functools.lru_cache(maxsize=1024)
def problem_of(text: str) -> TPProblem:
    """The problem that `text_of` wrote. Raises InputError for another text."""
    try:
        held = json.loads(text)
        names = ("i_in1", "i_in2", "i_out", "connection_mode", "has_weight", "path_weight")
        paths = [SimpleNamespace(**dict(zip(names, path, strict=True))) for path in held["instructions"]]
        # Path weights in the text have their normalisation, as those of an e3nn module have.
        module = SimpleNamespace(
            **{name: held[name] for name in SLOTS}, instructions=paths, shared_weights=held["shared_weights"]
        )
        return from_e3nn(module, **{name: held[name] for name in OPTIONS})
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise InputError(f"expected a tensor product as text_of writes it; found {text[:80]!r} ({error!r})") from error


@functools.lru_cache(maxsize=1024)
def weighted_part(text: str) -> str:
    """The text of the problem without its paths that have no weights, which is linear in the weights."""
    held = json.loads(text)
    held["instructions"] = [path for path in held["instructions"] if path[4]]
    return json.dumps(held, separators=(",", ":"))


@functools.lru_cache(maxsize=1024)
def cpu_engine(text: str, dtype: str, threads: int) -> Any:
    """The CPU's engine of a problem, "float32" or "float64" and a number of threads."""
    from trnqc.cg.cpu.engine import engine_for

    return engine_for(problem_of(text), dtype, threads)


@functools.lru_cache(maxsize=1024)
def cuda_engine(text: str, dtype: str, number: int, kahan: bool, atomic: bool) -> Any:
    """The engine on GPU `number`. Raises BackendUnavailable without one."""
    from trnqc.backends import devices
    from trnqc.cg.cuda.engine import CudaEngine

    return CudaEngine(problem_of(text), dtype, devices("cuda")[number], kahan=kahan, atomic=atomic)


def no_engine(device: str) -> UnsupportedError:
    """The error for operands on a device that nothing is generated for."""
    return UnsupportedError(f"tensor products run on cpu and cuda; found operands on {device}: move them first")
