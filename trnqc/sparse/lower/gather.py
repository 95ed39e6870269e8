"""A kernel that copies the parts of an array, between which there are gaps, to an array without gaps."""

from __future__ import annotations

from trnqc.gen import Array, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import lane, lt

# Where each part begins in the array with gaps and in the one without; the second also has the end of the last part.
FROM, TO = Array("from", "i64"), Array("to", "i64")


def gather(dtype: str, lanes: int) -> st.Function:
    """Return the kernel for an array `source` of a type, whose groups are the parts, copied to `target` by lanes."""
    source, target = Array("source", dtype), Array("target", dtype)
    part = Var("part", "i64")
    b = Builder()
    old, new = b.let("old", FROM[part]), b.let("new", TO[part])
    count = b.let("count", TO[part + 1] - new)
    with b.loop("e", count, step=lanes) as e:
        place = b.let("place", e + lane())
        b.store(target[new + place], source[old + place], where=lt(place, count))
    return b.function(f"gather_{dtype}", (source, target, FROM, TO), group=part)
