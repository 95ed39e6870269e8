"""Sorting as a function of the generator core: short lists of workspaces by insertion, others by a heap."""

from __future__ import annotations

from collections.abc import Callable

from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import both, lt, maximum, select
from trnqc.sparse.lower.state import ONE, ZERO

# Longest list that is sorted by insertion.
SHORT = 64


def sort_list(by_key: bool) -> st.Function:
    """Return the function that sorts list[0 .. n) by the numbers themselves, or by ``key[number]``."""
    items, keys, n = Array("list", "i64"), Array("key", "i64"), Var("n", "i64")
    b = Builder()

    def key(item: Value) -> Value:
        return keys[item] if by_key else item

    # A number is read before the statement that stores it: lanes that are threads wait for each other between the two.
    _insert(b, items, key, select(lt(SHORT, n), ZERO, n))
    start, end = b.declare(Var("start", "i64"), n // 2), b.declare(Var("end", "i64"), select(lt(SHORT, n), n, ZERO))
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
    name, title = f"sort_list{'_by_key' * by_key}", "the list in order"
    return b.function(name, (items, *((keys,) if by_key else ()), n), title=title)


def _insert(b: Builder, items: Array, key: Callable[[Value], Value], n: Value) -> None:
    """Sort items[0 .. n): each number moves down past those that are larger."""
    with b.loop("next", n, begin=1) as following:
        moved, place = b.let(Var("moved", "i64"), items[following]), b.declare(Var("place", "i64"), following)
        before = items[maximum(place - 1, ZERO)]
        with b.loop_while(both(lt(ZERO, place), lt(key(moved), key(before)))):
            larger = b.let(Var("above", "i64"), before)
            b.store(items[place], larger)
            b.assign(place, place - 1)
        b.store(items[place], moved)
