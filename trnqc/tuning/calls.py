"""One launch of a kernel as data: what to call, with which arguments, and what must come out.

`example_call` makes the workload that is timed, from shapes alone or filled with numbers; `gate_call` makes a small
one of the same constants, whose result is compared with the kernel's NumPy reference before any time is believed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from nki_kernels import mp2_plan
from nki_kernels.batched_contraction import batched_contraction, reference_batched_contraction
from nki_kernels.gemm import gemm, reference_gemm
from nki_kernels.mp2_energy import mp2_energy, reference_mp2_energy
from trnqc.sim.launch.launch import Spec
from trnqc.tuning.kernels import PARTS, P, Values, mp2_tiles

GATE = 1e-4  # allowed error over the largest entry: a sound kernel is within 1e-5, a wrong one off by order 1

_KERNELS: dict[str, tuple[Any, Callable]] = {
    "mp2_energy": (mp2_energy, reference_mp2_energy),
    "gemm": (gemm, reference_gemm),
    "batched_contraction": (batched_contraction, reference_batched_contraction),
}
Fill = Callable[[tuple[int, ...], Any], Any]


@dataclass(frozen=True, eq=False)
class Call:
    """A launch: kernel(*args, **constants); reference of the same signature; needed flop and bytes of operands once."""

    name: str
    kernel: Any
    reference: Callable
    args: tuple
    constants: dict[str, int]
    flops: float

    def error(self, out: np.ndarray) -> float:
        """Largest deviation from the reference over the largest entry; infinite for a wrong shape or a NaN."""
        wanted = self.reference(*self.args, **self.constants)
        if out.shape != wanted.shape:
            return float("inf")
        owned = ~np.isnan(wanted)
        gap = np.abs(out[owned].astype(np.float64) - wanted[owned])
        return float(gap.max() / np.abs(wanted[owned]).max()) if np.isfinite(gap).all() else float("inf")


def example_call(
    name: str, shape: Values, precision: str, constants: Values, cores: int = 1, fill: Fill = Spec
) -> Call:
    """The workload of `kernels.Tunable.workload`; fill(shape, dtype) makes its floating-point operands."""
    if name == "mp2_energy":
        pairs = mp2_plan.star_pairs(shape["nocc"], constants["group"])
        return _mp2_call(shape, precision, constants, pairs, cores, fill)
    return _product_call(name, shape, precision, constants, fill)


def gate_call(name: str, shape: Values, precision: str, constants: Values, cores: int = 1, seed: int = 0) -> Call:
    """The same constants on numbers: a group of pairs, a single and a diagonal one; of products blocks and edges."""
    fill = random_fill(seed)
    if name == "mp2_energy":
        i = constants["group"] + 1
        pairs = np.stack([np.full(i + 1, i), np.arange(i + 1)], axis=1)
        return _mp2_call(shape, precision, constants, pairs, cores, fill)
    small = dict(shape)
    rows = constants["rows"]
    small["M"] = _gated(shape["M"], rows if rows > 512 else 2 * rows)
    small["N"] = shape["N"] if constants["hold"] else _gated(shape["N"], constants["cols"])
    if "Z" in small:
        small["Z"] = _gated(shape["Z"], 2 * constants["batch"])
    return _product_call(name, small, precision, constants, fill)


def _gated(extent: int, step: int) -> int:
    """A full step and the remainder, or all where that is less."""
    return min(extent, step + extent % step)


def random_fill(seed: int) -> Fill:
    """Normal numbers, rounded to the dtype; the same for the same seed."""
    rng = np.random.default_rng(seed)
    return lambda shape, dtype: rng.standard_normal(shape, np.float32).astype(dtype)


def _dtype(precision: str) -> Any:
    return np.dtype(np.float32 if precision == "fp32" else ml_dtypes.bfloat16)


def _product_call(name: str, shape: Values, precision: str, constants: Values, fill: Fill) -> Call:
    """Parts of a split are filled alike: for the machine they are two operands of the same kind."""
    outer = (PARTS[precision], shape["Z"]) if "Z" in shape else (PARTS[precision],)
    K, M, N = shape["K"], shape["M"], shape["N"]
    args = (fill((*outer, K, M), _dtype(precision)), fill((*outer, K, N), _dtype(precision)))
    kernel, reference = _KERNELS[name]
    return Call(name, kernel, reference, args, dict(constants), 2.0 * shape.get("Z", 1) * M * N * K)


def _mp2_call(shape: Values, precision: str, constants: Values, pairs: np.ndarray, cores: int, fill: Fill) -> Call:
    tiles = mp2_tiles(shape, constants)
    nocc, nvir, naux = int(pairs.max()) + 1, shape["nvir"], shape["naux"]
    eps_occ, eps_vir = -np.linspace(2.0, 0.5, nocc), np.linspace(0.1, 3.0, nvir)
    work = mp2_plan.work_list(pairs, eps_occ, tiles, cores)
    ev_row, ev_col = mp2_plan.pack_virtuals(eps_vir, tiles)
    bt = fill((PARTS[precision], nocc * tiles.nblk, P, tiles.nk, tiles.block), _dtype(precision))
    if isinstance(bt, np.ndarray):  # padding is zero in packed factors; the kernel never reads it, the reference does
        bt[:, :, naux - P * (tiles.nk - 1) :, -1] = 0
        bt[:, tiles.nblk - 1 :: tiles.nblk, ..., nvir - tiles.block * (tiles.nblk - 1) :] = 0
    args = (bt, ev_row, ev_col, work.e_pair, work.rows, work.bounds)
    fixed = {"nvir": nvir, "naux": naux, "kchunk": tiles.kchunk}
    off = int((pairs[:, 0] != pairs[:, 1]).sum())
    flops = naux * (2.0 * nvir * nvir * off + nvir * (nvir + 1.0) * (len(pairs) - off))
    return Call("mp2_energy", mp2_energy, reference_mp2_energy, args, fixed, flops)
