"""The tiers of kernels for GPUs, by where the targets [e0|f0] are summed, which decides about registers and spills.

registers  targets and all that follows in registers: for few targets and live values
shared     targets in the shared memory of small blocks: if four warps fit on a multiprocessor
memory     targets in global memory, with a fence after every addition so that nvcc keeps the schedule
columns    the same with loops over the recurrence's columns in memory: for classes too large for straight-line code

The rules are counts: a double takes two of at most 255 registers, and coefficients and addresses take some forty.
They were found with ptxas on sm_80 and sm_90 (profiles/counted/eri_cuda_registers.json); no kernel was timed on a GPU
for them. If the compiler gives up on a tier or spills, the next one is tried (forms.py).
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
# Nodes of the graph of a class whose forms compile in seconds, so that all are tried where the first ones spill.
QUICK = 1500
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
    """

    name: str
    variant: Variant
    lanes: int = LANES
    form: str = "straight"
    accumulate: str = "fence"
    min_blocks: int = 0


def nodes(cls: QuartetClass) -> int:
    """Return the nodes of the recurrence's graph."""
    return len(recurrence(*cls.shells, rule=RULE).graph)


@cache
def live(shells: tuple[int, int, int, int], draws: int) -> int:
    """Return the values that live at once in the order of a kernel."""
    graph = recurrence(*shells, rule=RULE).graph
    return peak_live(graph, best_of(graph, "target", draws))


def candidates(cls: QuartetClass) -> Iterator[Tier]:
    """Yield the tiers of a class in the order in which they are tried."""
    h, size = target_count(cls), nodes(cls)
    draws = next((n for most, n in DRAWS if size < most), 0)
    loops = Variant(peeled=False, unrolled=False)
    # One piece of code for all primitives, with the fewest live values.
    straight = replace(loops, rule=RULE, method="target", draws=draws)
    if draws and not cls.general:
        if h < REGISTER_VALUES and h + live(cls.shells, draws) <= REGISTER_VALUES:
            # Told of one block, the compiler takes up to 255 registers; left alone it takes fewer and spills.
            yield Tier("registers", replace(straight, space="local"), min_blocks=1)
        if h * 8 * SHARED_LANES <= SHARED_BYTES:
            yield Tier("shared", replace(straight, space="shared"), SHARED_LANES)
    if draws:
        yield Tier("memory", straight)
        yield Tier("memory", straight, accumulate="atomic")
    yield Tier("columns", loops, form="columns")


def absurd(stack: int) -> bool:
    """Return whether so many bytes of a thread beside its registers mean that the compiler gave up."""
    return stack > ABSURD_SPILL
