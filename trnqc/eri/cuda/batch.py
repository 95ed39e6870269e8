"""The driver of a class for a GPU, as two programs: one selects quartets on the host, one digests them on the device.

pairs -> queue of ket pairs in vectors, tasks (bra pair, range of the queue)     select, C on the host
tasks -> gather, kernel (tiers.py), digestion -> sums in global memory           work, on the device

The parts are those of the CPU's driver (jk/batch.py). On the device a group is a worker with buffers of its own that
takes every n-th task, so that the memory for buffers depends on the number of workers and not on that of tasks.
"""

from __future__ import annotations

from trnqc.eri.cuda.tiers import Tier
from trnqc.eri.jk.batch import NUMBERS, WRITTEN, Batch, G, digested, selected, settings
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import eq, le, lt, minimum
from trnqc.jit import Recipe, Signature

# The arrays of a CPU's driver that `select` reads and writes.
SELECTED = ("numbers", "reals", "bra_places", "bra_measures", "ket_places", "ket_measures", "dm_max", "queue", "weight")
# The state of a selection: positions of the queue in use, tasks, the next bra pair, the queue's length, and the vectors
# of a task.
USED, TASKS, NEXT, CAPACITY, VECTORS = range(5)
# The buffers of a worker, and the parameters with the elements of each for one lane.
OWN = {"lanes_ket": "ket_step", "lanes_centre": "centre_step", "work": "work_step", "out": "out_step", "j_ab": "j_step"}

_STATE, _N_SELECTED = Array("state", "i64", (5,)), Array("n_selected", "i64", (1,))
_TASKS = Array("tasks", "i64", (None, 3))


def select_name(batch: Batch) -> str:
    """Return the name of the selection."""
    return f"select_{batch.name}"


def select_parameters(batch: Batch) -> tuple[Array, ...]:
    """state, n_selected [1] (scratch), tasks [.., 3] (bra pair, begin and end in the queue), then SELECTED."""
    return (_STATE, _N_SELECTED, _TASKS, *(batch.arrays[name] for name in SELECTED))


def select_signature(batch: Batch) -> Signature:
    """Return the signature of the selection."""
    written = ("state", "n_selected", "tasks", "queue", "weight")
    return Signature.declared(select_name(batch), select_parameters(batch), written)


def select(batch: Batch) -> st.Function:
    """Build the selection; its groups are the bra pairs, in order.

    It ends before the first pair for which the queue has too little room.
    """
    used, first, last = Var("used", "i64"), Var("first", "i64"), Var("last", "i64")
    lanes, kets, n = Var("n_lanes", "i64"), Var("n_kets", "i64"), Var("n", "i64")
    a = batch.arrays
    inner = _of_pair(batch)
    arrays = {x: st.View(a[x], used) if x in ("queue", "weight") else a[x] for x in SELECTED}
    task = [
        st.Let(n, _STATE[TASKS]),
        st.store(_TASKS[n, 0], G),
        st.store(_TASKS[n, 1], first),
        st.store(_TASKS[n, 2], minimum(first + _STATE[VECTORS] * lanes, last)),
        st.store(_STATE[TASKS], n + 1),
        st.Assign(first, first + _STATE[VECTORS] * lanes),
    ]
    taken = st.block(
        st.call(inner, pair=G, n_selected=_N_SELECTED, **arrays),
        st.Let(last, used + (_N_SELECTED[0] + lanes - 1) // lanes * lanes),
        st.Declare(first, used),
        st.While(lt(first, last), st.block(task)),
        st.store(_STATE[USED], last),
        st.store(_STATE[NEXT], G + 1),
    )
    room = le(used + kets + lanes, _STATE[CAPACITY])
    body = st.block(
        st.Let(used, _STATE[USED]),
        st.Let(kets, a["numbers"][NUMBERS.index("ket_pairs")]),
        st.Let(lanes, a["numbers"][NUMBERS.index("lanes")]),
        st.If(eq(_STATE[NEXT], G), st.block(st.If(room, taken))),
    )
    title = f"({batch.cls.digits}): quartets that matter"
    return st.Function(select_name(batch), select_parameters(batch), body, group=G, title=title)


def _of_pair(batch: Batch) -> st.Function:
    count = Var("count", "i64")
    body = st.block(settings(batch), selected(batch, count), st.store(_N_SELECTED[0], count))
    arrays = tuple(batch.arrays[name] for name in SELECTED)
    return st.Function(f"select_pair_{batch.name}", (G, _N_SELECTED, *arrays), body)


def work_parameters(batch: Batch) -> tuple[Value | Array, ...]:
    """n_tasks, n_workers, sizes of a worker's buffers (OWN), tasks [n_tasks, 3], then all of `batch.arrays`."""
    scalars = tuple(Var(name, "i64") for name in ("n_tasks", "n_workers", *OWN.values()))
    return (*scalars, _TASKS, *batch.arrays.values())


def work(batch: Batch, tier: Tier) -> st.Function:
    """Build the program of the device; its groups are the workers."""
    worker, task, begin, end = (Var(name, "i64") for name in ("worker", "task", "begin", "end"))
    arrays = batch.arrays
    kernel = quartet_function(batch.cls, tier.form, tier.variant)
    body = st.block(settings(batch), digested(batch, kernel, begin, end))
    part = st.Function(f"part_{batch.name}", (G, begin, end, *arrays.values()), body)
    own = {name: st.View(arrays[name], worker * Var(size, "i64")) for name, size in OWN.items()}
    pair, first, last = (_TASKS[task, n] for n in range(3))
    call = st.call(part, pair=pair, begin=first, end=last, **(arrays | own))
    loop = st.While(lt(task, Var("n_tasks", "i64")), st.block(call, st.Assign(task, task + Var("n_workers", "i64"))))
    body = st.block(st.Declare(task, worker), loop)
    title = f"({batch.cls.digits}) into J and K, targets in {tier.name}"
    return st.Function(work_name(batch, tier), work_parameters(batch), body, group=worker, title=title)


def work_name(batch: Batch, tier: Tier) -> str:
    """Return the name of the program of the device."""
    return f"work_{batch.name}_{tier.name}"


def work_recipe(batch: Batch, tier: Tier) -> Recipe:
    """Return the recipe of the program of the device."""
    name = work_name(batch, tier)
    signature = Signature.declared(name, work_parameters(batch), WRITTEN_THERE)
    return Recipe(name, (signature,), lambda: (work(batch, tier),), __name__, variant=str(tier))


# The arrays that the device writes: it only reads the queue.
WRITTEN_THERE = tuple(name for name in WRITTEN if name not in ("queue", "weight"))
