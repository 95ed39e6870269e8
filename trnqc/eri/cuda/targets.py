"""Targets [e0|f0] in memory between two programs of a class: one computes them, the other turns them into integrals.

targets.py: queues -> vertical recurrence -> targets [vector of a row, target, lane] in the memory of a launch
batch.py:   targets -> horizontal recurrence -> digestion

What only one of the two needs takes no registers in the other. A vector of ket pairs is one item of the first program,
whose groups share them whatever the rows are. A row has room for all of its ket pairs, so that the place of a vector
follows from its position, and launches do not depend on the density; what the screening leaves out is not touched.
"""

from __future__ import annotations

from trnqc.eri.cuda.screen import ALL_NUMBERS, COUNTS, ROW, row_pair
from trnqc.eri.cuda.tiers import Tier
from trnqc.eri.cuda.tile import LANES, numbers_of
from trnqc.eri.jk.batch import CENTRE, MEASURES, NUMBERS, Batch, G, N, computed, settings, vectors
from trnqc.eri.kernels.horizontal import horizontal_function
from trnqc.eri.kernels.parameters import target_count
from trnqc.eri.kernels.quartet import targets_function
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import lt, minimum
from trnqc.jit import Recipe, Signature

# The targets of a launch, and the vectors of a row that they have room for.
TARGETS, ROW_VECTORS = Array("targets", "f64", lanes=True), Var("row_vectors", "i64")
# The buffers of a group of the first program, and the parameters with the elements of each for one lane.
BUFFERS = {"lanes_ket": "ket_step", "lanes_centre": "centre_step"}
# What the first program reads of a driver's arrays. It writes its buffers and, in place of `work`, targets.
_READ = ("numbers", "reals", "bra", "bra_places", "bra_measures", "ket", "ket_measures", "ket_bounds", "boys", "lane")
_ARRAYS = (*_READ, "queue", "weight", *BUFFERS)

_ROWS, _WORKERS, _QUEUE_STEP = Var("rows", "i64"), Var("target_workers", "i64"), Var("queue_step", "i64")
_BEGIN, _END, _FIRST = Var("begin", "i64"), Var("end", "i64"), Var("first", "i64")


def parameters(batch: Batch) -> tuple[Value | Array, ...]:
    """Return the parameters of the first program.

    - rows, target_workers: numbers of rows and of groups of the launch.
    - ROW, queue_step, row_vectors, counts: as for `batch.work`.
    - the sizes of a group's buffers (BUFFERS), the arrays of `batch` that it needs, and targets.
    """
    sizes = tuple(Var(name, "i64") for name in BUFFERS.values())
    arrays = [(batch.arrays | {"numbers": ALL_NUMBERS})[name] for name in _ARRAYS]
    return (_ROWS, _WORKERS, *ROW.values(), _QUEUE_STEP, ROW_VECTORS, *sizes, COUNTS, *arrays, TARGETS)


def targets(batch: Batch, tier: Tier) -> st.Function:
    """Build the first program, whose groups take every n-th vector of all rows."""
    worker, item, row, arrays = Var("worker", "i64"), Var("item", "i64"), Var("row", "i64"), batch.arrays
    own: dict[str, Value | Array | st.View] = {name: arrays[name] for name in _ARRAYS}
    own |= {name: st.View(arrays[name], worker * Var(size, "i64")) for name, size in BUFFERS.items()}
    own |= {name: st.View(arrays[name], row * _QUEUE_STEP) for name in ("queue", "weight")}
    own |= {"numbers": st.View(ALL_NUMBERS, ROW["task"] * len(NUMBERS)), "work": vector(batch, TARGETS, item)}
    end = minimum(_BEGIN + N["lanes"], COUNTS[row])
    # Behind the end of a queue, begin is not before end, and nothing is computed.
    step = [
        st.Let(row, item // ROW_VECTORS),
        st.Let(_BEGIN, item % ROW_VECTORS * N["lanes"]),
        st.call(_vector(batch, tier), pair=row_pair(row), begin=_BEGIN, end=end, **own),
        st.Assign(item, item + _WORKERS),
    ]
    items = st.While(lt(item, _ROWS * ROW_VECTORS), st.block(step))
    body = st.block(numbers_of(ALL_NUMBERS, ROW["task"], *LANES), st.Declare(item, worker), items)
    title = f"({batch.cls.digits}): targets of the ket pairs in the queues"
    return st.Function(targets_name(batch), parameters(batch), body, group=worker, title=title)


def _vector(batch: Batch, tier: Tier) -> st.Function:
    """Return the function that computes the targets of a vector, where the kernel has its work."""
    kernel = targets_function(batch.cls, tier.form, tier.variant)
    body = st.block(settings(batch), vectors(computed(batch, kernel, _FIRST), _BEGIN, _END, _FIRST))
    arrays = tuple(batch.arrays[name] for name in (*_ARRAYS, "work"))
    return st.Function(f"vector_{batch.cls.name}", (G, _BEGIN, _END, *arrays), body)


def vector(batch: Batch, memory: Array, number: Value) -> st.View:
    """Return the targets of a vector in an array of those of several."""
    return st.View(memory, number * target_count(batch.cls))


def integrals(batch: Batch, tier: Tier, first: Value) -> list[st.Statement]:
    """Turn the targets of one vector of a row into integrals, from position `first` of the queue on."""
    a, at = batch.arrays, Var("at", "i64")
    function = horizontal_function(*batch.cls.shells, batch.cls.cartesian, unrolled=tier.variant.unrolled)
    centres = st.view(a["bra_measures"][G, CENTRE]), a["lanes_centre"]
    places = st.view(a["work"][0]), st.view(a["out"][0, 0, 0, 0])
    return [
        st.Let(at, a["queue"][first + a["lane"][0]]),
        st.GatherRows(a["lanes_centre"], a["ket_measures"], at * MEASURES + CENTRE, const(6, "i64")),
        st.Call(function, (vector(batch, TARGETS, first // N["lanes"]), *centres, *places)),
    ]


def targets_name(batch: Batch) -> str:
    """Return the name of the first program, which is the same for J and for K."""
    return f"targets_{batch.cls.name}"


def targets_recipe(batch: Batch, tier: Tier) -> Recipe:
    """Return the recipe of the first program."""
    name = targets_name(batch)
    signature = Signature.declared(name, parameters(batch), (*BUFFERS, TARGETS.name))
    return Recipe(name, (signature,), lambda: (targets(batch, tier),), __name__, variant=str(tier))
