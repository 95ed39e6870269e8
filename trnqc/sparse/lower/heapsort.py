"""Heapsort as a function of the generator core, which sorts the lists of workspaces."""

from __future__ import annotations

from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import lt
from trnqc.sparse.lower.state import ONE, ZERO


def heapsort(by_key: bool) -> st.Function:
    """Return the function that sorts list[0 .. n) by the numbers themselves, or by ``key[number]``."""
    items, keys, n = Array("list", "i64"), Array("key", "i64"), Var("n", "i64")
    b = Builder()

    def key(item: Value) -> Value:
        return keys[item] if by_key else item

    # A number is read before the statement that stores it: lanes that are threads wait for each other between the two.
    start, end = b.declare(Var("start", "i64"), n // 2), b.declare(Var("end", "i64"), n)
    with b.loop_while(lt(ONE, end)):
        moved = b.declare(Var("held", "i64"), ZERO)
        # First the heap is built from its last parent on. Then its largest number is moved behind it repeatedly.
        with b.when(lt(ZERO, start)):
            b.assign(start, start - 1)
            b.assign(moved, items[start])
        with b.otherwise():
            b.assign(end, end - 1)
            b.assign(moved, items[end])
            largest = b.let(Var("largest", "i64"), items[0])
            b.store(items[end], largest)
        top, child = b.declare(Var("top", "i64"), start), b.declare(Var("child", "i64"), start * 2 + 1)
        with b.loop_while(lt(child, end)):
            with b.when(lt(child + 1, end)), b.when(lt(key(items[child]), key(items[child + 1]))):
                b.assign(child, child + 1)
            with b.when(lt(key(moved), key(items[child]))):
                larger = b.let(Var("larger", "i64"), items[child])
                b.store(items[top], larger)
                b.assign(top, child)
                b.assign(child, child * 2 + 1)
            with b.otherwise():
                b.assign(child, end)
        b.store(items[top], moved)
    name, title = f"sort_list{'_by_key' * by_key}", "the list in order, through a heap"
    return b.function(name, (items, *((keys,) if by_key else ()), n), title=title)
