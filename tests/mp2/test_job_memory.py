"""Memory of the factor step."""

from __future__ import annotations

import math

import pytest

from trnqc.errors import MemoryLimit
from trnqc.mp2.factors.memory import FactorMemory, FactorPlan

SIZES = FactorMemory(nao=100, nocc=20, nvir=80, naux=500, threads=2)


def test_blocks_shrink_with_the_limit_and_keep_to_it():
    plans = [SIZES.plan(SIZES.fixed + k * SIZES.column, smallest=7) for k in (7, 10.5, 40, 1e6)]
    assert plans == [FactorPlan(width, False) for width in (7, 10, 40, 63)]
    assert SIZES.plan(math.inf, smallest=7) == FactorPlan(63, False)


def test_what_does_not_fit_goes_to_disk():
    assert SIZES.plan(SIZES.in_memory(7) - 1, smallest=7).on_disk
    assert SIZES.plan(SIZES.in_memory(7), smallest=7, beside=SIZES.in_memory(7) - SIZES.factors + 1).on_disk
    assert SIZES.plan(math.inf, smallest=7, on_disk=True) == FactorPlan(63, True)
    for limit in (7e6, 8e6, 1e8):
        plan = SIZES.plan(limit, smallest=7, on_disk=True)
        assert plan.on_disk and 7 <= plan.width <= 63
        assert SIZES.on_disk(plan.width) <= limit
    assert SIZES.on_disk(7) < SIZES.in_memory(7)


def test_too_little_memory_gives_the_least_that_will_do():
    with pytest.raises(MemoryLimit, match=r"need at least [\d.]+ MB.*limit is 3 MB.*raise the limit") as caught:
        SIZES.plan(3e6, smallest=7)
    least = 1e6 * float(str(caught.value).split("at least ")[1].split(" MB")[0])
    assert SIZES.on_disk(7) == pytest.approx(least, rel=1e-2)
    assert SIZES.plan(SIZES.on_disk(7), smallest=7).on_disk
    with pytest.raises(MemoryLimit):
        SIZES.plan(SIZES.on_disk(7) - 1, smallest=7)
