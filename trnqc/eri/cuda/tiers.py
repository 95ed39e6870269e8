"""The tiers of kernels for GPUs, by where the targets [e0|f0] are summed, which decides about registers and spills.

registers  targets and all that follows in registers: for few targets and live values
shared     targets in the shared memory of small blocks: if four warps fit on a multiprocessor
memory     targets in global memory, with a fence after every addition so that nvcc keeps the schedule
split      the same as two programs, with the targets of a launch in memory between them: each needs fewer registers
columns    as memory, with loops over the recurrence's columns in memory: for classes too large for straight-line code

The rules are counts: a double takes two of at most 255 registers, and coefficients and addresses take some forty.
They were found with ptxas on sm_80 and sm_90 (profiles/counted/eri_cuda_registers.json); no kernel was timed on a GPU
for them. If the compiler gives up on a tier, spills or leaves few warps, others are tried (forms.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from trnqc.eri.classes import QuartetClass
from trnqc.eri.kernels.parameters import target_count
from trnqc.eri.kernels.recurrence import recurrence
from trnqc.eri.kernels.variants import Variant
from trnqc.gen.liveness import peak_live
from trnqc.gen.schedule import best_of
from trnqc.jit.nvcc import ABSURD_SPILL

# Doubles, targets and live values, that fit into the registers of a thread beside coefficients and addresses.
REGISTER_VALUES = 105
# Bytes of shared memory that a block may have without an attribute set on its kernel, less 256 for the counters of the
# screening.
SHARED_BYTES = 48 * 1024 - 256
# Threads of a block with targets in shared memory.
SHARED_LANES = 32
# Threads of other blocks.
LANES = 128
# Elements of the tile of J and K of such a block (tile.py). Three blocks, which its registers allow for at most, leave
# half of the L1 cache of sm_80.
TILE = 2048
# The same of a block of one warp, of which registers allow for eight at least.
NARROW_TILE = 1024
# Bytes of shared memory of a multiprocessor of sm_80, those that the system reserves for a block, and blocks of a warp
# whose registers it holds: by these, the tile beside targets in shared memory costs no resident block.
MULTIPROCESSOR_SHARED, RESERVED_SHARED, MOST_WARPS = 164 * 1024, 1024, 8
# The smallest tile: K of a shell with two p shells takes 18 elements.
SMALLEST_TILE = 64
# Nodes of the graph of a class whose forms compile in seconds, so that all are tried where the first ones spill.
QUICK = 1500
# The names of tiers.
NAMES = ("registers", "shared", "memory", "split", "columns")
# Resident warps of a multiprocessor with which no other form is tried. Of fewer than six, more than half of its four
# schedulers have one warp only and wait for each access to memory.
ENOUGH_WARPS = 6
# The rule of the recurrence with the fewest live values.
RULE = "interleaved"
# Random draws among equally good orders, by the nodes of a graph: each takes seconds for a large one. Graphs beyond the
# last have no straight-line code.
DRAWS = ((1000, 16), (4000, 8))


@dataclass(frozen=True)
class Tier:
    """A form of a kernel for GPUs.

    Parameters
    ----------
    name, variant
        Where targets are summed, in a word, and as a variant of the kernel.
    lanes
        Threads of a block.
    form
        The form of the recurrence: one of `trnqc.eri.kernels.variants.FORMS`.
    accumulate
        How it adds to memory: with a "fence" after each addition, or by "atomic" additions.
    min_blocks
        Blocks of a multiprocessor that the compiler is told to allow for; 0 leaves it the choice.
    tile
        Elements of the tile in which the block sums J and K (tile.py); 0 adds each quartet's share to memory.
    split
        Whether the targets have a program of their own (targets.py).
    """

    name: str
    variant: Variant
    lanes: int = LANES
    form: str = "straight"
    accumulate: str = "fence"
    min_blocks: int = 0
    tile: int = 0
    split: bool = False


def nodes(cls: QuartetClass) -> int:
    """Return the nodes of the recurrence's graph."""
    return len(recurrence(*cls.shells, rule=RULE).graph)


@cache
def live(shells: tuple[int, int, int, int], draws: int) -> int:
    """Return the values that live at once in the order of a kernel."""
    graph = recurrence(*shells, rule=RULE).graph
    return peak_live(graph, best_of(graph, "target", draws))


def tile_beside(targets: int) -> int:
    """Return the elements of a tile that fits beside so many bytes of targets, or 0 if there is no room for one."""
    blocks = min(MOST_WARPS, MULTIPROCESSOR_SHARED // (targets + RESERVED_SHARED))
    room = min(SHARED_BYTES, MULTIPROCESSOR_SHARED // blocks - RESERVED_SHARED) - targets
    return room // 8 if room >= 8 * SMALLEST_TILE else 0


def candidates(cls: QuartetClass) -> Iterator[Tier]:
    """Yield the tiers of a class in the order in which they are tried."""
    h, size = target_count(cls), nodes(cls)
    draws = next((n for most, n in DRAWS if size < most), 0)
    loops = Variant(peeled=False, unrolled=False)
    # One piece of code for all primitives, with the fewest live values.
    straight = replace(loops, rule=RULE, method="target", draws=draws)
    lanes, wide = LANES, TILE
    if draws and not cls.general:
        if h < REGISTER_VALUES and h + live(cls.shells, draws) <= REGISTER_VALUES:
            # Told of one block, the compiler takes up to 255 registers; left alone it takes fewer and spills.
            yield Tier("registers", replace(straight, space="local"), min_blocks=1, tile=TILE)
        if h * 8 * SHARED_LANES <= SHARED_BYTES:
            tile = min(TILE, tile_beside(h * 8 * SHARED_LANES))
            yield Tier("shared", replace(straight, space="shared"), SHARED_LANES, tile=tile)
            # Larger blocks than these would have more lanes without a quartet.
            lanes, wide = SHARED_LANES, NARROW_TILE
    if draws:
        yield Tier("memory", straight, lanes, tile=wide)
        yield Tier("memory", straight, lanes, accumulate="atomic", tile=wide)
        if not cls.general:
            yield Tier("split", straight, lanes, tile=wide, split=True)
    yield Tier("columns", loops, form="columns", tile=TILE)


def traffic(cls: QuartetClass, tier: Tier) -> int:
    """Return the bytes that a thread writes to memory and reads again for a quartet because of its tier.

    They are the targets between two programs, and the nodes of the recurrence in columns.
    """
    if tier.form == "columns":
        return 16 * nodes(cls)
    return 16 * target_count(cls) if tier.split else 0


def absurd(stack: int) -> bool:
    """Return whether so many bytes of a thread beside its registers mean that the compiler gave up."""
    return stack > ABSURD_SPILL
