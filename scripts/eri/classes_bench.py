"""Rates of one class in dense batches on one thread: generated kernels and libcint of PySCF's wheel.

Every bra pair is combined with every ket pair, without screening. Our integrals are written to a buffer that is reused,
libcint's to PySCF's array. Times are CPU seconds of the thread, the best of several runs of both in turns.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc import jit
from trnqc.eri.classes import BOUND, QuartetClass
from trnqc.eri.compiled.programs import lanes
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.horizontal import horizontal_function, scratch_size
from trnqc.eri.kernels.parameters import parameters, work_size
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.eri.kernels.variants import primitive_function
from trnqc.eri.shells.pairs import ShellPairs, pairs_between
from trnqc.gen import Array, Var, const
from trnqc.gen import statements as st
from trnqc.gen.cost import cost
from trnqc.gen.values import fma

LANES, ROUNDS, SECONDS = lanes(), 5, 0.1
# Number of shells for each of a, b, c and d: many for small quartets, so that the overhead of a call is small, and few
# for large ones, so that libcint's array stays in cache.
MANY, FEW = (6, 6, 8, 8), (3, 3, 4, 4)


def class_rate(cls: QuartetClass, primitives: int) -> dict[str, Any]:
    """Return 10^6 quartets/s, the ratio to libcint, flops per quartet, share of the peak, largest error, build time."""
    moles = molecules(cls, primitives)
    bra, ket = (pairs_between(*side)[0] for side in (moles[:2], moles[2:]))
    begin = time.perf_counter()
    kernel, function = driver(cls)
    build = time.perf_counter() - begin
    theirs_run = _libcint(moles, cls)
    inputs = arguments(cls, bra, ket)
    error = _error(cls, kernel, function, inputs, theirs_run(), len(bra), len(ket))
    buffer = inputs | {"out": inputs["out"][:1], "keep": 0}
    ours, theirs = in_turns(
        lambda repeats: kernel(*ordered(function, buffer | {"repeats": repeats})),
        lambda repeats: [theirs_run() for _ in range(repeats)],
    )
    quartets = len(bra) * len(ket)
    flops = flops_of(cls, primitives)
    return {
        "ours": quartets / ours / 1e6,
        "libcint": quartets / theirs / 1e6,
        "ratio": theirs / ours,
        "flops": flops,
        "peak": flops * quartets / ours / 1e9 / peak_gflops(),
        "max_error": error,
        "build_s": build,
    }


def _counts(cls: QuartetClass) -> tuple[int, int, int, int]:
    return MANY if np.prod(cls.extents) <= 100 else FEW


def molecules(cls: QuartetClass, primitives: int) -> list[gto.Mole]:
    """Return one molecule for each shell of a class."""
    return [_shells(l, n, primitives, seed, cls.cartesian) for seed, (l, n) in enumerate(zip(cls.shells, _counts(cls)))]


def flops_of(cls: QuartetClass, primitives: int) -> int:
    """Return the flops of a quartet as emitted, without prefactors and the Boys function."""
    one = cost(primitive_function(cls)).flops.at()
    return one * primitives**4 + cost(horizontal_function(*cls.shells, cls.cartesian)).flops.at()


@cache
def peak_gflops() -> float:
    """Return the GFLOP/s of one thread on this machine for fused multiply-adds of vectors in registers."""
    n, i, chains = Var("n", "i64"), Var("i", "i64"), 12  # more would not fit into the registers of AVX2
    x = Array("x", "f64", (chains,), lanes=True)
    held = [Var(f"x{c}") for c in range(chains)]
    step = [st.Assign(v, fma(v, 0.999, const(0.001))) for v in held]
    loads = [st.Declare(v, x[c]) for c, v in enumerate(held)]
    body = [*loads, st.loop(i, n, step), *(st.store(x[c], v) for c, v in enumerate(held))]
    function = st.Function("peak", (n, x), st.block(body))
    run = _compiled(function).peak
    values, passes, best = np.ones((chains, LANES)), 2_000_000, np.inf
    for _ in range(ROUNDS):
        begin = time.thread_time()
        run(passes, values)
        best = min(best, time.thread_time() - begin)
    return 2 * chains * LANES * passes / best / 1e9


def _shells(l: int, count: int, primitives: int, seed: int, cartesian: bool) -> gto.Mole:
    """Return `count` shells of one l near the origin with exponents from 0.2 to 4."""
    rng = np.random.default_rng([seed, l, primitives])
    mol = gto.Mole(verbose=0, unit="Bohr", cart=cartesian)
    mol.atom = [(f"ghost-He{n}", tuple(rng.normal(size=3))) for n in range(count)]
    exponents, weights = (
        np.exp(rng.uniform(np.log(0.2), np.log(4), (count, primitives))),
        rng.uniform(0.2, 1, primitives),
    )
    mol.basis = {f"ghost-He{n}": [[l, *map(list, zip(exponents[n], weights))]] for n in range(count)}
    return mol.build(parse_arg=False, dump_input=False)


def _libcint(moles: list[gto.Mole], cls: QuartetClass) -> Callable[[], np.ndarray]:
    """Return a call of PySCF's C loop over quartets, without its Python code, which dominates for small quartets."""
    whole = gto.conc_mol(gto.conc_mol(*moles[:2]), gto.conc_mol(*moles[2:]))
    name = f"int2e_{'cart' if cls.cartesian else 'sph'}"
    ends = np.cumsum((0, *_counts(cls)))
    slices = tuple(int(n) for pair in pairwise(ends) for n in pair)
    optimizer = gto.moleintor.make_cintopt(whole._atm, whole._bas, whole._env, name)
    atm, bas, env = (np.ascontiguousarray(x) for x in (whole._atm, whole._bas, whole._env))
    ao_loc = np.ascontiguousarray(gto.moleintor.make_loc(bas, name), dtype=np.int32)
    out = _aligned(tuple(n * f for n, f in zip(_counts(cls), cls.extents)))
    library = gto.moleintor.libcgto

    def pointer(array: np.ndarray) -> ctypes.c_void_p:
        return array.ctypes.data_as(ctypes.c_void_p)

    inputs = (
        getattr(library, name),
        library.GTOnr2e_fill_s1,
        lib.c_null_ptr(),
        pointer(out),
        ctypes.c_int(1),
        (ctypes.c_int * 8)(*slices),
        pointer(ao_loc),
        optimizer,
        pointer(atm),
        ctypes.c_int(len(atm)),
        pointer(bas),
        ctypes.c_int(len(bas)),
        pointer(env),
    )

    def run() -> np.ndarray:
        library.GTOnr2e_fill_drv(*inputs)
        return out

    return run


def _aligned(shape: tuple[int, ...], fill: float = 0.0) -> np.ndarray:
    """Return an array that is aligned to cache lines."""
    size = int(np.prod(shape))
    raw = np.empty(size + 8)
    begin = -(raw.ctypes.data // 8) % 8
    array = raw[begin : begin + size].reshape(shape)
    array[...] = fill
    return array


def arguments(cls: QuartetClass, bra: ShellPairs, ket: ShellPairs) -> dict[str, Any]:
    """Return the arguments of `driver` by name."""
    vectors = len(ket) // LANES
    na, nb, nc, nd = cls.extents
    size = work_size(cls, 1, 1) + scratch_size(*cls.shells, cls.cartesian)
    rows = _aligned((vectors, *ket.records.shape[1:], LANES))
    rows[...] = ket.records.reshape(vectors, LANES, *ket.records.shape[1:]).transpose(0, 2, 3, 1)
    centres = _aligned((vectors, 6, LANES))
    centres[...] = ket.centre.reshape(vectors, LANES, 6).transpose(0, 2, 1)
    bounds = np.concatenate([rows[:, :, BOUND].max(axis=-1), np.zeros((vectors, 1))], axis=1)
    return {
        "n_pairs": len(bra),
        "n_vectors": vectors,
        "repeats": 1,
        "keep": 1,
        "n_bra": bra.records.shape[1],
        "bra": bra.records,
        "bra_centre": bra.centre,
        "n_ket": ket.records.shape[1],
        "ket": rows,
        "ket_centre": centres,
        "ket_bound": bounds,
        "n_ab": 1,
        "n_cd": 1,
        "cutoff": 0.0,
        "omega": 0.3,
        "boys": _table(cls.order),
        "work": _aligned((size, LANES), np.nan),
        "out": _aligned((len(bra) * vectors, na * nb * nc * nd, LANES), np.nan),
    }


def _table(order: int) -> np.ndarray:
    table = _aligned(boys.table(order).shape)
    table[...] = boys.table(order)
    return table


@cache
def driver(cls: QuartetClass) -> tuple[Callable[..., None], st.Function]:
    """Return the kernel in loops over bra pairs and vectors of ket pairs, and its compiled form."""
    kernel, p = quartet_function(cls), parameters(cls)
    n_pairs, n_vectors, repeats, keep = (Var(n, "i64") for n in ("n_pairs", "n_vectors", "repeats", "keep"))
    b, v, r = Var("b", "i64"), Var("v", "i64"), Var("r", "i64")

    def many(array: Array) -> Array:
        return Array(array.name, array.dtype, (None, *array.shape), array.space, array.lanes)

    row = {name: many(getattr(p, name)) for name in ("bra", "bra_centre", "ket", "ket_centre", "ket_bound")}
    size = int(np.prod(cls.extents))
    row["out"] = Array("out", "f64", (None, size), lanes=True)
    here = {
        "bra": row["bra"][b, 0, 0],
        "bra_centre": row["bra_centre"][b, 0],
        "ket": row["ket"][v, 0, 0],
        "ket_centre": row["ket_centre"][v, 0],
        "ket_bound": row["ket_bound"][v, 0],
        "out": row["out"][(b * n_vectors + v) * keep, 0],
    }
    passed = tuple(st.view(here[n]) if n in here else parameter for n, parameter in vars(p).items())
    body = st.loop(r, repeats, st.loop(b, n_pairs, st.loop(v, n_vectors, st.Call(kernel, passed))))
    params = (n_pairs, n_vectors, repeats, keep, *(row.get(n, parameter) for n, parameter in vars(p).items()))
    function = st.Function("batch", params, st.block(body))
    return _compiled(function).batch, function


def _compiled(function: st.Function) -> jit.Library:
    return jit.library(jit.Recipe.of(function, name="eri-bench"), LANES)


def ordered(function: st.Function, values: dict[str, Any]) -> list[Any]:
    return [values[st.name_of(p)] for p in function.params]


def _error(
    cls: QuartetClass,
    kernel: Callable[..., None],
    function: st.Function,
    inputs: dict[str, Any],
    theirs: np.ndarray,
    n_bra: int,
    n_ket: int,
) -> float:
    kernel(*ordered(function, inputs))
    (a, b, c, d), (na, nb, nc, nd) = _counts(cls), cls.extents
    ours = inputs["out"].reshape(n_bra, n_ket // LANES, na * nb * nc * nd, LANES).transpose(0, 1, 3, 2)
    ours = ours.reshape(a, b, c, d, na, nb, nc, nd).transpose(0, 4, 1, 5, 2, 6, 3, 7)
    return float(np.abs(ours.reshape(theirs.shape) - theirs).max())


def in_turns(*contestants: Callable[[int], Any]) -> list[float]:
    """Return the best CPU seconds of one run of each, from repeats that take about SECONDS."""
    best = [np.inf] * len(contestants)
    repeats = [1] * len(contestants)
    with lib.with_omp_threads(1):
        for turn in range(-3, ROUNDS):
            for n, run in enumerate(contestants):
                begin = time.thread_time()
                run(repeats[n])
                spent = (time.thread_time() - begin) / repeats[n]
                best[n] = min(best[n], spent) if turn >= 0 else best[n]
                repeats[n] = max(1, int(SECONDS / max(spent, 1e-7))) if turn < 0 else repeats[n]
    return best
