"""Pseudo-random numbers from XORWOW generators in the lanes of the VectorE and of GpSimd.

The state of a generator has six 32-bit words, five of the shift register and one counter. A lane has one generator on
GpSimd and four on the VectorE, which are used in turn. The vendor documents the size of the state, but neither the
order of its words nor the seeding from one word. Equal seeds therefore give equal sequences in the simulator, but not
necessarily those of the hardware.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.instructions.checks import ON_CHIP, SBUF
from trnqc.sim.machine import machine
from trnqc.sim.machine.enums import engine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.targets import PARTITIONS
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import rows, store, widen

WORDS = 6  # 32-bit words of the state of a generator
STREAMS = {"vector": 4, "gpsimd": 1}  # generators in a lane
INTEGERS = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint8, dtypes.uint16, dtypes.uint32)
RAND2_OUTPUTS = (
    *INTEGERS,
    dtypes.float8_e4m3,
    dtypes.float8_e5m2,
    dtypes.float16,
    dtypes.bfloat16,
    dtypes.float32,
    dtypes.tfloat32,
)
COUNTER_STEP = np.uint32(362437)  # increment of the counter (Marsaglia, J. Stat. Softw. 8 (2003) 14)
DEFAULT_SEED = 0x5EED  # seed of kernels that set none; an arbitrary constant


def _states(run: Run, unit: str) -> np.ndarray:
    """Return the states [128, generators, 6] of an engine, which start from a constant seed."""
    key = f"random {unit}"
    if key not in run.lanes:
        run.lanes[key] = _expand(DEFAULT_SEED, STREAMS[unit])
    return run.lanes[key]


def _expand(seed: int, streams: int) -> np.ndarray:
    """Expand one word to independent states by the splitmix64 sequence."""
    count = PARTITIONS * streams * WORDS
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z >> np.uint64(32)).astype(np.uint32).reshape(PARTITIONS, streams, WORDS)


def _draw(run: Run, unit: str, lanes: slice, count: int) -> np.ndarray:
    """Draw ``count`` 32-bit words in each lane and advance the states (Marsaglia, J. Stat. Softw. 8 (2003) 14)."""
    state = _states(run, unit)[lanes]
    words = np.empty((state.shape[0], -(-count // state.shape[1]), state.shape[1]), np.uint32)
    x, y, z, w, v, d = (state[..., n].copy() for n in range(WORDS))
    with np.errstate(over="ignore"):
        for n in range(words.shape[1]):
            t = x ^ (x >> np.uint32(2))
            x, y, z, w = y, z, w, v
            v = (v ^ (v << np.uint32(4))) ^ (t ^ (t << np.uint32(1)))
            d = d + COUNTER_STEP
            words[:, n] = v + d
    for n, value in enumerate((x, y, z, w, v, d)):
        state[..., n] = value
    return words.reshape(state.shape[0], -1)[:, :count]


def _lanes(t: NkiTensor) -> slice:
    """Partitions of a tile, as the lanes of an engine."""
    return slice(t.start_partition, t.start_partition + t.shape[0])


def _engine(run: Run, op: str, chosen: Any, vector_from: int, gpsimd_from: int) -> str:
    """Return the name of the engine, VectorE or GpSimd, after checking that the target has the instruction on it.

    ``vector_from`` and ``gpsimd_from`` are the first generations that do.
    """
    checks.engine_choice(op, chosen, (engine.vector, engine.gpsimd))
    if chosen is engine.unknown:
        raise NkiValidationError(f"{op} engine must be vector or gpsimd, got unknown")
    checks.needs_generation(
        run, f"{op} on the {chosen.name} engine", vector_from if chosen is engine.vector else gpsimd_from
    )
    return chosen.name


def rng(dst: NkiTensor, engine: engine = engine.vector, name: str | None = None) -> None:
    """Fill an integer tile with random bits on ``engine``: the low bits of one 32-bit word for each element."""
    run = machine.current()
    unit = _engine(run, "rng", engine, 2, 3)
    checks.tile("rng", "dst", dst, ON_CHIP if unit == "vector" else SBUF)
    checks.one_of("rng", "dst", dst, INTEGERS)
    if run.issue("rng", unit, (dst,), (), name):
        words = _draw(run, unit, _lanes(dst), dst.size // dst.shape[0])
        unsigned = np.dtype(f"uint{8 * dst.dtype.itemsize}")
        dst.array()[...] = words.astype(unsigned).view(dst.dtype.numpy).reshape(dst.shape)


def dropout(dst: NkiTensor, data: NkiTensor, prob: float | NkiTensor, name: str | None = None) -> None:
    """Copy data to dst with each element set to 0 with probability ``prob``, on the VectorE.

    Parameters
    ----------
    dst, data : NkiTensor
        Tiles with equal dtypes, partitions and elements per partition.
    prob : float or NkiTensor
        Constant in [0, 1], or (P, 1) tile of a floating-point dtype (fp32 if data are integers).
    """
    run = machine.current()
    checks.tile("dropout", "dst", dst)
    checks.tile("dropout", "data", data)
    checks.same_tiles("dropout", "data", data, dst=dst)
    if dst.dtype is not data.dtype:
        raise NkiValidationError(f"dropout dst and data must have the same dtype, got {dst.dtype} and {data.dtype}")
    vectors = checks.scalar("dropout", "prob", prob, data, dtypes.float32 if data.dtype.is_int else None)
    if vectors and vectors[0].dtype.kind != "float":
        raise NkiValidationError(f"dropout prob must be of a floating-point dtype, got {vectors[0].dtype}")
    if not vectors and not 0.0 <= float(prob) <= 1.0:  # type: ignore[arg-type]
        raise NkiValidationError(f"dropout prob must be within [0, 1], got {prob!r}")
    if run.issue("dropout", "vector", (dst,), (data, *vectors), name):
        uniform = _draw(run, "vector", _lanes(data), data.size // data.shape[0]) * 2.0**-32
        limit = widen(rows(vectors[0])).astype(np.float64) if vectors else float(prob)  # type: ignore[arg-type]
        source = rows(data)
        dst.array()[...] = np.where(uniform < limit, np.zeros((), source.dtype), source).reshape(dst.shape)


def set_rng_seed(src_seeds: NkiTensor, name: str | None = None) -> None:
    """Seed the generators of the VectorE with ``src_seeds``, a (1, 1) tile of a 32-bit dtype."""
    run = machine.current()
    checks.tile("set_rng_seed", "src_seeds", src_seeds)
    if src_seeds.size != 1 or src_seeds.dtype.itemsize != 4:
        raise NkiValidationError(
            f"set_rng_seed src_seeds must be a (1, 1) tile of a 32-bit dtype, got {src_seeds.shape} {src_seeds.dtype}"
        )
    if run.issue("set_rng_seed", "vector", (), (src_seeds,), name):
        word = src_seeds.array().reshape(1).copy().view(np.uint32)
        run.lanes["random vector"] = _expand(int(word[0]), STREAMS["vector"])


def rand_set_state(src_seeds: NkiTensor, engine: engine = engine.gpsimd, name: str | None = None) -> None:
    """Set the states of the generators.

    ``src_seeds`` is a uint32 SBUF tile with one partition for each lane: [P, 6] on GpSimd (trn2 or later), [P, 24] on
    the VectorE (trn3).
    """
    run = machine.current()
    unit = _engine(run, "rand_set_state", engine, 4, 3)
    _check_state("rand_set_state", "src_seeds", src_seeds, unit, False)
    if run.issue("rand_set_state", unit, (), (src_seeds,), name):
        _states(run, unit)[_lanes(src_seeds)] = src_seeds.array().reshape(-1, STREAMS[unit], WORDS)


def rand_get_state(dst: NkiTensor, engine: engine = engine.gpsimd, name: str | None = None) -> None:
    """Copy the states of the generators to dst.

    ``dst`` is a uint32 tile with one partition for each lane: [P, 6] on GpSimd (trn2 or later), [P, 24] on the VectorE
    (trn3).
    """
    run = machine.current()
    unit = _engine(run, "rand_get_state", engine, 4, 3)
    _check_state("rand_get_state", "dst", dst, unit, run.target.generation >= 4 and unit == "vector")
    if run.issue("rand_get_state", unit, (dst,), (), name):
        dst.array()[...] = _states(run, unit)[_lanes(dst)].reshape(dst.shape)


def _check_state(op: str, role: str, t: NkiTensor, unit: str, psum: bool) -> None:
    checks.tile(op, role, t, ON_CHIP if psum else SBUF)
    checks.one_of(op, role, t, (dtypes.uint32,))
    words = STREAMS[unit] * WORDS
    if t.ndim != 2 or t.shape[1] != words:
        raise NkiValidationError(f"{op} {role} must be [P, {words}] on the {unit} engine, got {t.shape}")


def rand2(dst: NkiTensor, min: float | NkiTensor, max: float | NkiTensor, name: str | None = None) -> None:
    """Fill a tile with uniform random numbers within [min, max] on the VectorE (trn3).

    Parameters
    ----------
    dst : NkiTensor
        The tile; numbers are drawn in fp32 and cast to its dtype.
    min, max : float or NkiTensor
        Constants or (P, 1) fp32 tiles, with min below max.
    """
    run = machine.current()
    checks.needs_generation(run, "rand2", 4)
    checks.tile("rand2", "dst", dst)
    checks.one_of("rand2", "dst", dst, RAND2_OUTPUTS)
    vectors = checks.scalar("rand2", "min", min, dst) + checks.scalar("rand2", "max", max, dst)
    if not vectors and not min < max:  # type: ignore[operator]
        raise NkiValidationError(f"rand2 min must be below max, got {min!r} and {max!r}")
    if run.issue("rand2", "vector", (dst,), vectors, name):
        low = widen(rows(min)) if isinstance(min, NkiTensor) else np.float32(min)
        high = widen(rows(max)) if isinstance(max, NkiTensor) else np.float32(max)
        if vectors and not (low < high).all():
            raise NkiValidationError("rand2 min must be below max in every partition")
        unit = _draw(run, "vector", _lanes(dst), dst.size // dst.shape[0]).astype(np.float64) * 2.0**-32
        store(dst.array(), (low + unit * (high - low)).astype(np.float32), dst.dtype)
