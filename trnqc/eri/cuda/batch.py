"""The programs of a class for a GPU: one queues the quartets that matter, the other adds them to J and K.

pairs (tables of the molecule, in the memory of the device) -> screen.py: queues of ket pairs, one for each row
queues -> gather, kernel (tiers.py), digestion (jk/batch.py) -> sums in global memory

A row is a bra pair with a range of ket pairs. A group of the second program is a worker with buffers of its own, which
takes every n-th row, so that the memory for buffers depends on the number of workers. The programs are separate because
the registers of the second one limit how many of its threads run at once.
"""

from __future__ import annotations

from trnqc.eri.cuda.screen import ALL_NUMBERS, COUNTS, ROW, row_pair
from trnqc.eri.cuda.tiers import Tier
from trnqc.eri.jk.batch import NUMBERS, WRITTEN, Batch, G, digested, settings
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


def work_parameters(batch: Batch) -> tuple[Value | Array, ...]:
    """Return the parameters of the program.

    - rows, n_workers: numbers of rows and of workers of the launch.
    - ROW, queue_step, counts, numbers [tasks, NUMBERS]: as for `screen.screen`.
    - the sizes of a worker's buffers (OWN), then the arrays of `batch`.
    """
    sizes = tuple(Var(name, "i64") for name in OWN.values())
    arrays = (batch.arrays | {"numbers": ALL_NUMBERS}).values()
    return (_ROWS, _WORKERS, *ROW.values(), _QUEUE_STEP, *sizes, COUNTS, *arrays)


def work(batch: Batch, tier: Tier) -> st.Function:
    """Build the program; its groups are the workers."""
    worker, row, begin, end = (Var(name, "i64") for name in ("worker", "row", "begin", "end"))
    arrays = batch.arrays
    kernel = quartet_function(batch.cls, tier.form, tier.variant)
    body = st.block(settings(batch), digested(batch, kernel, begin, end))
    part = st.Function(f"part_{batch.name}", (G, begin, end, *arrays.values()), body)
    own = {name: st.View(arrays[name], worker * Var(size, "i64")) for name, size in OWN.items()}
    own |= {name: st.View(arrays[name], row * _QUEUE_STEP) for name in ("queue", "weight")}
    own["numbers"] = st.View(ALL_NUMBERS, ROW["task"] * len(NUMBERS))
    call = st.call(part, pair=row_pair(row), begin=const(0, "i64"), end=COUNTS[row], **(arrays | own))
    loop = st.While(lt(row, _ROWS), st.block(call, st.Assign(row, row + _WORKERS)))
    body = st.block(st.Declare(row, worker), loop)
    title = f"({batch.cls.digits}) into J and K, targets in {tier.name}"
    return st.Function(work_name(batch, tier), work_parameters(batch), body, group=worker, title=title)


def work_name(batch: Batch, tier: Tier) -> str:
    """Return the name of the program."""
    return f"work_{batch.name}_{tier.name}"


def work_recipe(batch: Batch, tier: Tier) -> Recipe:
    """Return the recipe of the program."""
    name = work_name(batch, tier)
    signature = Signature.declared(name, work_parameters(batch), WRITTEN_THERE)
    return Recipe(name, (signature,), lambda: (work(batch, tier),), __name__, variant=str(tier))
