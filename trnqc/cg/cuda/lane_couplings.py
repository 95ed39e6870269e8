"""The couplings of a channel of y, which the lanes compute together in shared memory, and the gradient of y.

Each lane adds its contributions to gy to sums of its own in shared memory. The sums of all lanes are added up after the
last path of a table of couplings.
"""

from __future__ import annotations

from trnqc.cg.cuda.couplings import Couplings, Form
from trnqc.cg.cuda.kernel import Edge, KernelBuilder
from trnqc.gen import Value
from trnqc.gen.build import dot
from trnqc.gen.values import cast, minimum

# Names of the arrays in shared memory for the couplings of y and ggy.
ARRAYS = {"y": "a", "ggy": "b"}


def form_couplings(k: KernelBuilder, table: Couplings, edge: Edge, v: Value) -> None:
    """Compute the couplings of channel v of y, some by each lane, and set the sums of gy to zero."""
    b, count = k.b, len(table.forms)
    size, terms = -(-count // k.lanes) * k.lanes, max(map(len, table.forms))
    zero: Form = ((0, 0.0),) * terms
    padded = [(form + zero)[:terms] for form in table.forms] + [zero] * (size - count)
    which = k.table("y_of", "i32", tuple(form[t][0] for t in range(terms) for form in padded))
    factor = k.table("c_of", k.dtype, tuple(form[t][1] for t in range(terms) for form in padded))
    b.barrier()
    for name in k.direction.reading("y"):
        base = b.let("at_y", k.row(name, edge) * k.problem.dims[1] + v * table.step)
        for r in range(size // k.lanes):
            at = k.lane + r * k.lanes
            places = [at + t * size for t in range(terms)]
            total = dot([(factor[p], k.array(name)[base + cast(which[p], "i64")]) for p in places])
            b.store(k.shared[ARRAYS[name]][at], total)
    if k.direction.gradients:
        for j in range(len(table.y)):
            b.store(k.shared["partial"][k.lane * table.pitch + j], k.zero)
    b.barrier()


def add_gy(k: KernelBuilder, table: Couplings, edge: Edge, v: Value) -> None:
    """Add the sums of all lanes to the edge's row of gy."""
    b, count = k.b, len(table.y)
    size = -(-count // k.lanes) * k.lanes
    where = k.table("y_at", "i32", table.y + table.y[-1:] * (size - count))
    base = b.let("at_gy", k.row("gy", edge) * k.problem.dims[1] + v * table.step)
    b.barrier()
    for r in range(size // k.lanes):
        at = k.lane + r * k.lanes
        total = b.declare("total", k.zero)
        with b.loop("l", k.lanes) as other:
            b.assign(total, total + k.shared["partial"][other * table.pitch + minimum(at, count - 1)])
        element = k.array("gy")[base + cast(where[at], "i64")]
        old = b.let("old", element)
        # Several lanes may have the last element. All of them read it before any of them writes.
        b.barrier()
        b.store(element, old + total)
    b.barrier()
