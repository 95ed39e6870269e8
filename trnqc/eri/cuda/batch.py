"""The programs of a class for a GPU: one queues the quartets that matter, the other adds them to J and K.

pairs (tables of the molecule, in the memory of the device) -> screen.py: queues of ket pairs, one for each row
queues -> gather, kernel (tiers.py), digestion (jk/batch.py) -> sums in global memory

In the tier "split" a program between the two computes the first half of the kernel (targets.py).

A row is a bra pair with a range of ket pairs. A group of the second program is a worker with buffers of its own, which
takes every n-th row, so that the memory for buffers depends on the number of workers. The programs are separate because
the registers of the second one limit how many of its threads run at once.
"""

from __future__ import annotations

from trnqc.eri.cuda import targets, tile
from trnqc.eri.cuda.digest import END, FIRST, J_STEP, WORKER, digestion, row_begin, row_end
from trnqc.eri.cuda.screen import ALL_NUMBERS, COUNTS, ROW, row_pair
from trnqc.eri.cuda.tiers import Tier
from trnqc.eri.jk.batch import NUMBERS, WRITTEN, Batch, G, computed, settings, vectors
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import lt
from trnqc.jit import Recipe, Signature

# The buffers of a worker, and the parameters with the elements of each for one lane.
OWN = {"lanes_ket": "ket_step", "lanes_centre": "centre_step", "work": "work_step", "out": "out_step", "j_ab": "j_step"}
# The arrays that the program writes: it only reads queues.
WRITTEN_THERE = tuple(name for name in WRITTEN if name not in ("queue", "weight"))

_ROWS, _WORKERS, _QUEUE_STEP = Var("rows", "i64"), Var("n_workers", "i64"), Var("queue_step", "i64")


def work_parameters(batch: Batch, tier: Tier) -> tuple[Value | Array, ...]:
    """Return the parameters of the program.

    - rows, n_workers: numbers of rows and of workers of the launch.
    - ROW, queue_step, counts, numbers [tasks, NUMBERS]: as for `screen.screen`.
    - the sizes of a worker's buffers (OWN), then the arrays of `batch`.
    - tile.LAUNCHED, if the tier has a tile; targets.ROW_VECTORS and TARGETS, if it is split.
    """
    sizes = tuple(Var(name, "i64") for name in OWN.values())
    arrays = (batch.arrays | {"numbers": ALL_NUMBERS}).values()
    own: tuple[Value | Array, ...] = tile.LAUNCHED if tier.tile else ()
    own += (targets.ROW_VECTORS, targets.TARGETS) if tier.split else ()
    return (_ROWS, _WORKERS, *ROW.values(), _QUEUE_STEP, *sizes, COUNTS, *arrays, *own)


def work(batch: Batch, tier: Tier) -> st.Function:
    """Build the program; its groups are the workers."""
    worker, row, begin = Var("worker", "i64"), Var("row", "i64"), Var("begin", "i64")
    arrays, sums = batch.arrays, tile.TileSums(batch, tier.tile)
    steps = vectors([*_integrals(batch, tier), *digestion(batch, sums)], begin, END, FIRST)
    body = st.block(settings(batch), row_begin(batch, sums), steps, row_end(batch, sums))
    more = (*sums.parameters, *([targets.TARGETS] * tier.split))
    part = st.Function(f"part_{batch.name}", (G, begin, END, WORKER, J_STEP, *arrays.values(), *more), body)
    own: dict[str, Value | Array | st.View]
    own = {name: st.View(arrays[name], worker * Var(size, "i64")) for name, size in OWN.items()}
    own |= {name: st.View(arrays[name], row * _QUEUE_STEP) for name in ("queue", "weight")}
    own |= {"j_ab": arrays["j_ab"], "worker": worker, "j_step": J_STEP}
    own |= {st.name_of(p): p for p in sums.parameters}
    if tier.split:
        own[targets.TARGETS.name] = targets.vector(batch, targets.TARGETS, row * targets.ROW_VECTORS)
    own["numbers"] = st.View(ALL_NUMBERS, ROW["task"] * len(NUMBERS))
    call = st.call(part, pair=row_pair(row), begin=const(0, "i64"), end=COUNTS[row], **(arrays | own))
    loop = st.While(lt(row, _ROWS), st.block(call, st.Assign(row, row + _WORKERS)))
    opening, closing = _around(batch, sums) if tier.tile else ([], [])
    body = st.block(opening, st.Declare(row, worker), loop, closing)
    title = f"({batch.cls.digits}) into J and K, targets in {tier.name}{', sums in a tile' if tier.tile else ''}"
    return st.Function(work_name(batch, tier), work_parameters(batch, tier), body, group=worker, title=title)


def _integrals(batch: Batch, tier: Tier) -> list[st.Statement]:
    """Compute the integrals of one vector of ket pairs, from position FIRST of the queue on."""
    if tier.split:
        return targets.integrals(batch, tier, FIRST)
    return computed(batch, quartet_function(batch.cls, tier.form, tier.variant), FIRST)


def _around(batch: Batch, sums: tile.TileSums) -> tuple[list[st.Statement], list[st.Statement]]:
    """Return what a worker does before its first row and after its last one."""
    task, own = ROW["task"], (ALL_NUMBERS, sums.tile)
    clear = st.block(tile.numbers_of(ALL_NUMBERS, task, *tile.LANES), sums.zeroed())
    opening = st.Function(f"clear_{batch.name}", (task, *own), clear)
    rest = st.block(tile.numbers_of(ALL_NUMBERS, task, *tile.KET_NUMBERS), sums.ket())
    params: tuple[Value | Array, ...] = (task, ROW["ket_begin"], *tile.PLACES.values(), *own, batch.arrays["vj"])
    closing = st.Function(f"rest_{batch.name}", params, rest)
    last: list[st.Statement] = [st.Call(closing, closing.params)] if batch.with_j else []
    return [st.DeclareArray(sums.tile), st.Call(opening, opening.params)], last


def work_name(batch: Batch, tier: Tier) -> str:
    """Return the name of the program."""
    return f"work_{batch.name}_{'tile_' if tier.tile else ''}{tier.name}"


def work_recipe(batch: Batch, tier: Tier) -> Recipe:
    """Return the recipe of the program."""
    name = work_name(batch, tier)
    signature = Signature.declared(name, work_parameters(batch, tier), WRITTEN_THERE)
    return Recipe(name, (signature,), lambda: (work(batch, tier),), __name__, variant=str(tier))
