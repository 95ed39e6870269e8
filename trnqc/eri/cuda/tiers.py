"""Which form of a class's kernel a GPU runs: where its targets [e0|f0] are added up decides registers and spills.

registers  targets, recurrence and what follows in registers: for few targets and live values
shared     targets in the shared memory of small blocks: where four warps of a multiprocessor find room
memory     targets in global memory, a fence behind every addition so that nvcc keeps the schedule
columns    the same with the recurrence's columns in memory and loops over them: classes too large for straight code

The rules are counts: a double is two of at most 255 registers, of which coefficients and addresses take some forty.
They were found with ptxas on sm_80 and sm_90 (scripts/eri_ablation); no kernel was timed on a GPU for them. A form
that the compiler gives up, or that spills absurdly, is followed by the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from trnqc.eri.classes import QuartetClass
from trnqc.eri.kernels.recurrence import components, recurrence
from trnqc.eri.kernels.variants import Variant
from trnqc.gen.liveness import peak_live
from trnqc.gen.schedule import best_of
from trnqc.jit.nvcc import ABSURD_SPILL

# Targets and live values, all doubles, that fit into registers beside the rest.
REGISTER_VALUES = 105
# Bytes of shared memory that a block may ask for without more ado, and lanes of a block that is to fit four times.
SHARED_BYTES, SHARED_LANES = 48 * 1024, 32
LANES = 128
# Sides and axes interleaved: fewest live values.
RULE = "interleaved"
# Ties drawn by nodes of the graph: a draw of a large one takes seconds. Beyond the last there is no straight code.
DRAWS = ((1000, 16), (4000, 8))


@dataclass(frozen=True)
class Tier:
    """A form of a kernel: lanes of a block, how it adds to memory, and the warps that may be expected at once.

    code: of `kernel.TIERS`.
    """

    name: str
    variant: Variant
    lanes: int = LANES
    code: str = "straight"
    accumulate: str = "fence"
    min_blocks: int = 0
    warps: int = 8


def targets(cls: QuartetClass) -> int:
    """Sums [e0|f0] of a quartet of contractions."""
    la, lb, lc, ld = cls.shells
    return len(components(la, lb)) * len(components(lc, ld))


def nodes(cls: QuartetClass) -> int:
    return len(recurrence(*cls.shells, rule=RULE).graph)


@cache
def live(shells: tuple[int, int, int, int], draws: int) -> int:
    """Values that live at once in the order that a kernel takes."""
    graph = recurrence(*shells, rule=RULE).graph
    return peak_live(graph, best_of(graph, "target", draws))


def candidates(cls: QuartetClass) -> Iterator[Tier]:
    """Forms in the order in which they are to be tried."""
    h, size = targets(cls), nodes(cls)
    draws = next((n for most, n in DRAWS if size < most), 0)
    loops = Variant(peeled=False, unrolled=False)
    # One piece of code for all primitives, fewest live values, and loops where targets lie in memory.
    straight = replace(loops, rule=RULE, method="target", draws=draws)
    if draws and not cls.general:
        if h < REGISTER_VALUES and h + live(cls.shells, draws) <= REGISTER_VALUES:
            yield Tier("registers", replace(straight, space="local"))
        if h * 8 * SHARED_LANES <= SHARED_BYTES:
            yield Tier("shared", replace(straight, space="shared"), SHARED_LANES, warps=4)
    if draws:
        yield Tier("memory", straight)
        yield Tier("memory", straight, accumulate="atomic")
    yield Tier("columns", loops, code="columns")


def absurd(stack: int) -> bool:
    """Whether so many bytes beside the registers mean that the compiler gave up."""
    return stack > ABSURD_SPILL
