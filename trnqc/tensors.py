"""Contractions of arrays with the work planned, on the library of the arrays or on one of our backends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trnqc import backends, contraction
from trnqc.arrays import is_traced_by_dynamo
from trnqc.backends.base import check_precision
from trnqc.contraction.api import Optimize
from trnqc.contraction.plan import Machine
from trnqc.contraction.time_limit import TIME_LIMIT
from trnqc.errors import InputError
from trnqc.types import PairEnergies


def einsum(
    subscripts: Any,
    *operands: Any,
    backend: str | None = None,
    precision: str = "fp64",
    memory_limit: int | None = None,
    check_finite: bool = True,
    out: Any = None,
    symmetries: Mapping[int, str | Sequence[str]] | None = None,
    time_limit: float | None = TIME_LIMIT,
    optimize: Optimize = True,
    **unknown: Any,
) -> Any:
    """NumPy's einsum with the work planned: einsum("acik,befl,dfjk,cdel->abij", A, B, C, D).

    operands: arrays of one library (NumPy, PyTorch). backend: None multiplies matrices with that library; a name (cpu,
    simulator, neuron) takes NumPy arrays and multiplies them there in `precision` (trnqc.types.PRECISIONS).
    memory_limit: bytes for temporaries. check_finite: refuse operands with nan or inf, or without their symmetry. The
    result may be a view with transposed axes. symmetries: of operands by number, {2: "efij = feji"}; what they save is
    not computed (contraction.einsum). Operands may be h5py datasets, and out a dataset, the path of a new HDF5 file or
    a NumPy array (trnqc.contraction.run.stored). time_limit: seconds of the processor for planning, then the best plan
    so far runs; None for no limit. optimize: a path or a planner of opt_einsum is followed, anything else stands for
    our order. Raises ExpressionError (subscripts, extents), InputError (operands), MemoryLimit, BackendUnavailable,
    UnsupportedPrecision.
    """
    gemm = None
    if is_traced_by_dynamo() and backend is None and out is None:
        from trnqc.torch_ops import traced  # PyTorch is imported already

        options = {"memory_limit": memory_limit, "check_finite": check_finite, "symmetries": symmetries}
        run = traced.einsum if memory_limit is None and not symmetries else traced.einsum_in_loops
        return run(subscripts, operands, options)
    if backend is not None:
        arrays = operands if isinstance(subscripts, str) else (subscripts, *operands)[::2]
        gemm = _machine(backend, precision, arrays).gemm
    return contraction.einsum(
        subscripts,
        *operands,
        memory_limit=memory_limit,
        gemm=gemm,
        check_finite=check_finite,
        out=out,
        symmetries=symmetries,
        time_limit=time_limit,
        optimize=optimize,
        **unknown,
    )


def einsum_plan(
    expression: Any,
    *operands: Any,
    outputs: Sequence[str] = (),
    memory_limit: int | None = None,
    grid: Sequence[int] = (),
    backend: str | None = None,
    precision: str = "fp64",
    symmetries: Mapping[int, str | Sequence[str]] | None = None,
    time_limit: float | None = TIME_LIMIT,
) -> contraction.Plan:
    """`contraction.einsum_plan` for a machine: the plan's `run` multiplies matrices on `backend` in `precision`.

    Pair energies that the plan recognises (contraction.pair_energy) are computed by one fused kernel of the backend; of
    the CPU where none is named and it can be compiled. Errors: BackendUnavailable, UnsupportedPrecision besides those
    of contraction.einsum_plan.
    """
    plan = contraction.einsum_plan(
        expression,
        *operands,
        outputs=outputs,
        memory_limit=memory_limit,
        grid=grid,
        symmetries=symmetries,
        time_limit=time_limit,
    )
    if backend is not None:
        given = operands[0].values() if operands and isinstance(operands[0], Mapping) else operands
        return replace(plan, machine=_machine(backend, precision, [x for x in given if not isinstance(x, tuple)]))
    if plan.pairs and not backends.get("cpu").status().reason:
        kernel = _machine("cpu", "fp64", ())
        return replace(plan, machine=replace(plan.machine, pairs=kernel.pairs, kernel=kernel.kernel))
    return plan


def _machine(name: str, precision: str, operands: Iterable[Any]) -> Machine:
    backend = backends.get(name)
    check_precision(backend, precision)
    plain = np.ndarray | np.generic | list | tuple | int | float
    if foreign := [x for x in operands if not isinstance(x, plain) and not callable(x)]:
        raise InputError(f"backend {name!r} takes NumPy arrays; found {type(foreign[0]).__name__}")

    def pairs(B: np.ndarray, eps_occ: np.ndarray, eps_vir: np.ndarray, memory: int | None) -> PairEnergies:
        return backend.mp2_pairs(B, eps_occ, eps_vir, precision=precision, max_memory=memory)

    def gemm(a_t: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a_t.dtype.kind not in "fiu" or b.dtype.kind not in "fiu":
            raise InputError(f"backend {name!r} multiplies real numbers; found {a_t.dtype} and {b.dtype}")
        return backend.batched_contraction(a_t, b, precision=precision)

    return Machine(f"backend {name} in {precision}", gemm, pairs, f"backend {name} in {precision}")
