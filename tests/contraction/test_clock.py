"""Planning time grows slowly with the size of the product, and every stage keeps the time limit."""

from __future__ import annotations

import re
import time
import warnings
from contextlib import nullcontext

import numpy as np
import opt_einsum
import pytest

import trnqc
from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.memory.fusion_graph import FusedTree, sliced
from trnqc.contraction.memory.locality import _cost, blocked, body_of, inner_lengths, loads
from trnqc.contraction.memory.loop_nest import nest_of
from trnqc.contraction.memory.tiles import even_sizes
from trnqc.contraction.order import operations
from trnqc.contraction.time_limit import out_of_time, planning
from trnqc.errors import InputError, MemoryLimit, SlowPlanWarning

# What the searches may take beyond their limit on a busy machine: building, lowering and one table of tiles.
SLACK = 1.5


def chain(operands: int, extent: int = 10, batch: int = 0):
    labels = [opt_einsum.get_symbol(k) for k in range(operands + 2)]
    first = labels.pop() if batch else ""
    terms = [first + labels[k] + labels[k + 1] for k in range(operands)]
    shape = (batch, extent, extent) if batch else (extent, extent)
    return f"{','.join(terms)}->{first}{labels[0]}{labels[operands]}", [shape] * operands


def lattice(rows: int, columns: int, extent: int):
    """A tensor at each place of a lattice, one index for each pair of neighbours."""
    names: dict[tuple[tuple[int, int], ...], str] = {}
    terms = []
    for i in range(rows):
        for j in range(columns):
            ends = [((i - 1, j), (i, j)), ((i, j - 1), (i, j)), ((i, j), (i + 1, j)), ((i, j), (i, j + 1))]
            inside = [end for end in ends if all(0 <= x < rows and 0 <= y < columns for x, y in end)]
            terms.append("".join(names.setdefault(end, opt_einsum.get_symbol(len(names))) for end in inside))
    return ",".join(terms) + "->", [(extent,) * len(term) for term in terms]


def norm_of_mps(sites: int, extent: int = 8):
    """Bras over kets: 2 tensors a site."""
    symbols = iter(opt_einsum.get_symbol(k) for k in range(3 * sites))
    site = [next(symbols) for _ in range(sites)]
    rows = [[next(symbols) for _ in range(sites - 1)] for _ in range(2)]
    terms = ["".join((*bonds[k - 1 : k], site[k], *bonds[k : k + 1])) for bonds in rows for k in range(sites)]
    return ",".join(terms) + "->", [tuple(2 if x in site else extent for x in term) for term in terms]


def seconds(call):
    start = time.thread_time()
    result = call()
    return result, time.thread_time() - start


def planned(case, **options):
    text, shapes = case
    return einsum_plan(text, *shapes, **options)


def test_each_part_of_a_tree_is_weighed_once(monkeypatch):
    """Twice the operands take twice the looks at what a part holds, not a power of two times as many."""
    looks = {}
    plain = operations._Builder._held

    def held(self, part):
        looks[operand_count] += 1
        return plain(self, part)

    monkeypatch.setattr(operations._Builder, "_held", held)
    for operand_count in (20, 40):
        looks[operand_count] = 0
        planned(chain(operand_count, extent=9))
    assert looks[20] < looks[40] < 3 * looks[20]


LARGE = {
    "chain": chain(30),
    "batched chain": chain(30, batch=4),
    "mps": norm_of_mps(16),
    "lattice 2": lattice(6, 6, 2),
    "lattice 4": lattice(6, 6, 4),
}


@pytest.mark.parametrize("case", LARGE.values(), ids=LARGE)
def test_large_networks_are_searched_to_the_end_within_the_default(case):
    plan, taken = seconds(lambda: planned(case))
    assert not plan.omitted
    assert taken < 2 + SLACK


def test_deep_trees_need_no_recursion():
    plan = planned(chain(400, extent=3), time_limit=0.1)
    assert plan.multiply_adds == 399 * 27


@pytest.mark.parametrize("limit", [0, 0.05, 0.5])
@pytest.mark.parametrize(
    ("case", "memory", "slow"),
    [
        (chain(12, batch=20), 20_000, False),
        (lattice(3, 4, 3), 216, True),
        (lattice(5, 5, 3), None, False),
        (lattice(6, 6, 4), 20_000, True),
    ],
    ids=["batched chain", "lattice in memory", "lattice", "large lattice in memory"],
)
def test_planning_ends_within_its_limit_and_says_what_it_left_out(case, memory, slow, limit):
    with pytest.warns(SlowPlanWarning) if slow else nullcontext():
        plan, taken = seconds(lambda: planned(case, memory_limit=memory, time_limit=limit, max_slowdown=None))
    assert taken < limit + SLACK
    printed = str(plan)
    if plan.omitted:
        assert f"stopped at the time limit of {limit:g} s" in printed
        assert all(words in printed for words in plan.omitted)
    if limit == 0:
        assert plan.omitted
    if memory:
        assert plan.peak * 8 <= memory
    assert plan.to_dict()["not_searched"] == list(plan.omitted)


def test_a_plan_that_was_cut_off_computes_the_same():
    text, shapes = lattice(2, 4, 3)
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    expected = np.einsum(text, *arrays, optimize=True)
    for memory in (None, 600):
        plan = einsum_plan(text, *arrays, memory_limit=memory, time_limit=0)
        assert plan.omitted
        np.testing.assert_allclose(plan.run(*arrays), expected, rtol=1e-10)


def test_programs_keep_the_limit_too():
    names = "abcdefgh"
    runs = zip(names, names[1:], names[2:], names[3:])
    terms = " + ".join(f"A[{x},{y}] * A[{y},{z}] * B[{z},{w}]" for x, y, z, w in runs)
    text = f"space o = 7\nindex {' '.join(names)} : o\ntensor A[o,o]\ntensor B[o,o]\nE = {terms}"
    arrays = {name: np.random.default_rng(1).standard_normal((7, 7)) for name in "AB"}
    whole, cut = (einsum_plan(text, arrays, time_limit=limit) for limit in (None, 0))
    assert not whole.omitted and "products that terms share" in cut.omitted
    assert cut.run(arrays) == pytest.approx(whole.run(arrays), rel=1e-12)
    assert cut.multiply_adds >= whole.multiply_adds


def test_the_clock():
    assert not out_of_time("anything")
    with planning(0) as clock:
        assert out_of_time("one") and out_of_time("one") and out_of_time("two")
    assert clock.omitted == ("one", "two") and not out_of_time("three")
    with planning(None) as clock:
        assert not out_of_time("one") and not clock.omitted
    with pytest.raises(InputError, match="time_limit is a number of seconds"):
        planned(chain(3), time_limit=-1)
    with pytest.raises(InputError, match="found 'soon'"):
        trnqc.einsum("ab,bc", np.ones((2, 2)), np.ones((2, 2)), time_limit="soon")


def test_one_loop_around_everything_is_a_nest():
    """What a search that had no time falls back on: any index may be cut, for any tree."""
    for case in (chain(6), lattice(3, 3, 2), norm_of_mps(4)):
        (tree,) = planned(case).trees
        fusion = sliced(tree)
        held = {label for node in tree.temporaries for label in node.indices}
        assert held <= {label for labels in fusion.fused.values() for label in labels}
        assert nest_of(fusion).arena <= len(tree.nodes)


# Plans that print at once.


def test_tiles_without_counting_all_turns():
    for extent in (1, 2, 7, 100, 961, 1000):
        assert even_sizes(extent) == sorted({-(-extent // turns) for turns in range(1, extent + 1)})
    assert len(even_sizes(10**8)) < 20_001


def test_loads_of_perfect_nests_are_counted_at_once():
    (tree,) = einsum_plan("ab,bc->ac", (30, 200), (200, 7)).trees
    body = body_of(nest_of(FusedTree(tree)))
    rng = np.random.default_rng(2)
    for capacity in (5000, 300):
        lengths = inner_lengths(body)
        trials = np.array([[rng.integers(1, n + 1) for n in lengths.values()] for _ in range(20)])
        turns = sum(n / trials[:, k] for k, n in enumerate(lengths.values())) / (1 + sum(lengths.values()))
        expected = [loads(blocked(body, dict(zip(lengths, row))), capacity) for row in trials.tolist()]
        np.testing.assert_allclose(_cost(body, lengths, capacity)(trials), expected + turns, rtol=1e-12)
        body = blocked(body, dict(zip(lengths, trials[0].tolist())))


@pytest.mark.parametrize("extent", [30, 3000, 10_000])
def test_printing_does_not_depend_on_extents(extent):
    plan = einsum_plan("ijab,ijab->", *[(extent, extent, 10 * extent, 10 * extent)] * 2)
    assert plan.seconds > 0
    text, taken = seconds(lambda: str(plan))
    assert "locality" in text
    assert taken < 0.5


# Words of memory limits.


def test_memory_limits_speak_bytes():
    shapes = (9, 40, 40), (9, 40, 40), (40, 40, 3)
    with pytest.raises(MemoryLimit) as caught:
        einsum_plan("Qae,Qbf,efi->abi", *shapes, memory_limit=0)
    words = str(caught.value)
    needed = int(words.rpartition("raise it to ")[2].split()[0])
    assert f"need {needed} bytes" in words and "memory_limit is 0 bytes" in words and "elements" not in words
    with pytest.warns(SlowPlanWarning):
        plan = einsum_plan("Qae,Qbf,efi->abi", *shapes, memory_limit=needed, max_slowdown=None)
        assert plan.peak * 8 <= needed
        single = [np.ones(shape, np.float32) for shape in shapes]
        plan = einsum_plan("Qae,Qbf,efi->abi", *single, memory_limit=needed // 2, max_slowdown=None)
        assert plan.peak * 4 <= needed // 2
    with pytest.raises(MemoryLimit, match=f"raise it to {needed} or more"):
        einsum_plan("Qae,Qbf,efi->abi", *shapes, memory_limit=needed - 1)


def test_a_limit_that_costs_much_time_says_so_before_the_run():
    text, shapes = "Qae,Qbf,efij->abij", [(12, 10, 10), (12, 10, 10), (10, 10, 3, 3)]
    with pytest.warns(SlowPlanWarning, match="memory limit of 300 bytes makes this contraction about .* times"):
        plan = einsum_plan(text, *shapes, memory_limit=300, max_slowdown=None)
    assert plan.slowdown > 20
    assert "limit        300 bytes: about" in str(plan)
    arrays = [np.ones(shape) for shape in shapes]
    for _ in range(2):
        with pytest.warns(SlowPlanWarning):
            few = (x[:3] if k < 2 else x for k, x in enumerate(arrays))
            trnqc.einsum(text, *few, memory_limit=300, max_slowdown=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        large = [(300, 90, 90), (300, 90, 90), (90, 90, 20, 20)]
        assert 1 <= einsum_plan(text, *large, memory_limit=90**4 * 8 // 2).slowdown < 20
        assert einsum_plan(text, *shapes).slowdown == 1


def test_a_program_speaks_bytes():
    text = "space o = 20\nindex i j k l : o\ntensor A[o,o]\nE[i,l] = A[i,j] * A[j,k] * A[k,l]"
    with pytest.raises(MemoryLimit, match=r"need \d+ bytes of memory at least; memory_limit is 0 bytes"):
        einsum_plan(parse(text), memory_limit=0)


def sufficient(error):
    """The limit that the message of the error asks for."""
    return int(re.search(r"raise memory_limit to (\d+) bytes", str(error.value))[1])


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("place", ["einsum", "plan", "program"])
def test_a_limit_that_costs_absurd_times_is_refused_unless_asked_for_twice(place, kind):
    text, shapes = "Qae,Qbf,efi->abi", [(9, 30, 30), (9, 30, 30), (30, 30, 3)]
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    program = """
        space q = 9
        space v = 30
        space o = 3
        index Q : q
        index a b e f : v
        index i : o
        tensor A[q,v,v]
        tensor B[q,v,v]
        tensor C[v,v,o]
        R[a,b,i] = A[Q,a,e] * B[Q,b,f] * C[e,f,i]
    """
    call = {
        "einsum": lambda **options: trnqc.einsum(text, *arrays, **options),
        "plan": lambda **options: einsum_plan(text, *arrays, **options),
        "program": lambda **options: einsum_plan(program, dict(zip("ABC", arrays)), **options),
    }[place]
    match = r"memory limit of 64 bytes makes this contraction about .* times slower .* max_slowdown allows 1000 times"
    with pytest.raises(MemoryLimit, match=match) as caught:
        call(memory_limit=64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(memory_limit=sufficient(caught))
    if place != "einsum":
        with pytest.warns(SlowPlanWarning):
            assert call(memory_limit=64, max_slowdown=None).slowdown > 1000
        return
    arrays[:] = [x[:, :8, :8] for x in arrays[:2]] + [arrays[2][:8, :8]]
    with pytest.warns(SlowPlanWarning):
        result = call(memory_limit=64, max_slowdown=None)
    expected = np.einsum(text, *arrays, optimize=True)
    assert abs(result - expected).max() < (1e-5 if kind == np.float32 else 1e-13) * abs(expected).max()


def test_the_bound_of_slowdowns_is_the_callers():
    shapes = [(12, 10, 10), (12, 10, 10), (10, 10, 3, 3)]
    text, options = "Qae,Qbf,efij->abij", {"memory_limit": 6000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlowPlanWarning)
        slowdown = einsum_plan(text, *shapes, **options).slowdown
        assert 1 < slowdown < 1000
        einsum_plan(text, *shapes, **options, max_slowdown=1.01 * slowdown)
        with pytest.raises(MemoryLimit, match="max_slowdown allows") as caught:
            einsum_plan(text, *shapes, **options, max_slowdown=max(1, 0.99 * slowdown))
        assert einsum_plan(text, *shapes, memory_limit=sufficient(caught)).slowdown <= slowdown
    for wrong in (0, "much"):
        with pytest.raises(InputError, match="max_slowdown is a number of at least 1, or None"):
            einsum_plan(text, *shapes, **options, max_slowdown=wrong)
