"""How many occupied orbitals are held at a time, so that perturbative triples keep a limit of memory."""

from __future__ import annotations

from trnqc.errors import InputError, MemoryLimit
from trnqc.host.memory import require_memory
from trnqc.interfaces.triples.amplitudes import tiles
from trnqc.interfaces.triples.products import slices
from trnqc.interfaces.triples.programs import PAIRS, TILE

# Bytes of the compiled programs, of Python's objects and of buffers of BLAS, which packs parts of operands.
OVERHEAD = 4 << 20


def block_size(o: int, v: int, threads: int, limit: int | None) -> int:
    """Occupied orbitals of a block: all of them, or as many as three blocks may have within `limit` bytes.

    Raises
    ------
    MemoryLimit
        If blocks of one orbital exceed the limit, or the memory of this machine.
    """
    if limit is not None and limit <= 0:
        raise InputError(f"memory_limit is a positive number of bytes, or None for no limit; found {limit}")
    if limit is None or needed(o, v, threads, o) <= limit:
        require_memory(needed(o, v, threads, o), "(T)", "pass a memory_limit, so that fewer orbitals are held at once")
        return o
    # With three blocks or more, those of i, j and k are held.
    fitting = [size for size in range(1, -(-o // 3) + 1) if needed(o, v, threads, 3 * size) <= limit]
    if not fitting:
        least = needed(o, v, threads, min(3, o))
        fewer = f" or fewer threads than {threads}" if threads > 1 else ""
        raise MemoryLimit(
            f"(T) of {o} occupied and {v} virtual orbitals needs {least} bytes, above the memory_limit of {limit}: "
            f"pass a memory_limit of {least} bytes{fewer}"
        )
    return fitting[-1]


def needed(o: int, v: int, threads: int, held: int) -> int:
    """Bytes for `held` occupied orbitals at a time."""
    side, columns = tiles(v) * TILE, tiles(o) * TILE
    whole = 2 * o**2 * side**2 + o**3 * v
    orbital = v * v * side + v * side**2 + v * v * columns
    # Integrals of one orbital as they are read, packed and unpacked.
    reading = v**3 + v * v * (v + 1) // 2
    blocks, depth = 2 * side**3, side + 2 * columns
    made, added = slices(o, v)
    thread = blocks + (added + 1 + 2 * len(PAIRS)) * side**2 + made * depth**2
    return 8 * (whole + held * orbital + reading + threads * thread) + OVERHEAD
