"""CUDA text on the CPU: what it computes, and everything that it has to find wrong."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest

from trnqc.errors import CompilerError, InputError, SimulationError
from trnqc.gen import Array, Var, const, run
from trnqc.gen import statements as st
from trnqc.gen.values import cast, lane
from trnqc.jit import Recipe, Signature, emulator
from trnqc.jit.simulated_device import SimulatedDevice

GROUP, COUNT, PLACE = Var("group", "i64"), Var("count", "i64"), Var("place", "i64")
X, OUT = Array("x", "f64", (None,), lanes=True), Array("out", "f64", (None,))
NEAR = Array("near", "f64", (64,), "shared")
NUMBER = cast(lane(), "f64")


def kernel(*body: st.Statement) -> st.Function:
    return st.Function("tried", (COUNT, PLACE, X, OUT), st.block(*body), group=GROUP)


def neighbours(*before_reading: st.Statement) -> st.Function:
    """Each lane adds the number of the next one; one sum for all groups, and one by lanes."""
    return kernel(
        st.DeclareArray(NEAR),
        st.store(NEAR[lane()], X[GROUP]),
        *before_reading,
        st.accumulate(OUT[0], NEAR[(lane() + 1) % COUNT] * NUMBER),
        st.accumulate(OUT[1], NEAR[(lane() + 1) % COUNT]),
        st.store(OUT[2 + GROUP * COUNT + lane()], NEAR[(lane() + 1) % COUNT]),
    )


def inputs(lanes: int, groups: int, place: int = 0) -> dict:
    x = np.random.default_rng(0).normal(size=(groups, lanes))
    return {"count": lanes, "place": place, "x": x, "out": np.zeros(2 + groups * lanes)}


def on_device(function: st.Function, lanes: int = 4, groups: int = 2, text: str = "", place: int = 0, **more):
    device, given = SimulatedDevice(**more), inputs(lanes, groups, place)
    built = device.build(Recipe.of(function), lanes)
    if text:
        changed = emulator.build(replace(Recipe.of(function), text=text), lanes)
        built = type(built)(changed.signature, lanes, changed)
    there = {name: device.upload(a) if isinstance(a, np.ndarray) else a for name, a in given.items()}
    device.launch(built, groups, there)
    return device.download(there["out"])


@pytest.mark.parametrize("order", emulator.ORDERS)
@pytest.mark.parametrize("lanes", [1, 4, 32, 64])
def test_threads_do_what_the_interpreter_says(lanes, order):
    """Lanes of whole warps meet in shuffles, others add atomically."""
    function, expected = neighbours(st.Barrier()), inputs(lanes, 3)
    run(function, expected, lanes=lanes, groups=(0, 3))
    for checked in (False, True):
        found = on_device(function, lanes, 3, order=order, checked=checked)
        np.testing.assert_allclose(found, expected["out"], rtol=1e-13, atol=1e-13)


def test_orders_are_different():
    """An order shows in what lanes leave behind that all write to one element, which only an unchecked build allows."""
    last = kernel(st.store(OUT[0 * lane()], NUMBER), st.store(OUT[1 + 0 * lane()], cast(GROUP, "f64")))
    left = {order: tuple(on_device(last, 8, 5, order=order, checked=False)[:2]) for order in emulator.ORDERS}
    assert left["ascending"] == (7, 4) and left["descending"] == (0, 0)
    assert left["random"] == tuple(on_device(last, 8, 5, order="random", checked=False)[:2])
    with pytest.raises(InputError, match="ascending, descending, random; found 'sideways'"):
        SimulatedDevice(order="sideways")


def race(*body: st.Statement) -> st.Function:
    return kernel(st.DeclareArray(NEAR), *body)


SLOT = GROUP * COUNT + 2
WRONG = {
    "read before a barrier": (neighbours(), "read of what another thread writes"),
    "written before a barrier": (
        race(
            st.store(NEAR[lane()], NUMBER),
            st.Barrier(),
            st.store(OUT[SLOT + lane()], NEAR[(lane() + 1) % COUNT]),
            st.store(NEAR[lane()], NUMBER * 2.0),
        ),
        "write of what another thread reads",
    ),
    "two numbers in one place": (
        race(st.store(NEAR[lane() // 2], NUMBER), st.Barrier(), st.store(OUT[SLOT + lane()], NEAR[lane() // 2])),
        "two threads write different numbers",
    ),
    "two groups in one place": (kernel(st.store(OUT[0], cast(GROUP, "f64"))), "two threads write different numbers"),
    "read of another group": (
        kernel(st.store(OUT[SLOT + lane()], OUT[(SLOT + lane() + COUNT) % (COUNT * 2 + 2)])),
        "(read of what another thread writes|write of what another thread reads)",
    ),
    "sum beside a store": (
        kernel(st.accumulate(OUT[0 * lane()], NUMBER), st.store(OUT[0 * lane() + PLACE], NUMBER)),
        "an atomic addition and a plain write",
    ),
    "sum beside a read": (
        kernel(st.accumulate(OUT[0 * lane()], NUMBER), st.store(OUT[SLOT + lane()], OUT[0])),
        "(atomic addition to what another thread reads|read of what another thread writes)",
    ),
}


@pytest.mark.parametrize("order", emulator.ORDERS)
@pytest.mark.parametrize("case", WRONG)
def test_races_are_found_in_every_order(case, order):
    function, words = WRONG[case]
    with pytest.raises(SimulationError, match=rf"kernel tried is wrong: .*{words}.*, in line \d+: .*\[.*\]"):
        on_device(function, order=order)


def test_lanes_may_write_the_same_number():
    assert on_device(kernel(st.store(OUT[0], const(3.0))))[0] == 3


@pytest.mark.parametrize("place", [-1, 10, 10**6])
def test_access_outside_of_arrays(place):
    """The last element of `out` is element 9; the memory behind it belongs to somebody else."""
    with pytest.raises(SimulationError, match=r"write of 8 bytes outside of all arrays, in line \d+: out\[place\] = 1"):
        on_device(kernel(st.store(OUT[PLACE], const(1.0))), place=place)
    with pytest.raises(SimulationError, match="read of 8 bytes outside of all arrays"):
        on_device(kernel(st.store(OUT[0], OUT[PLACE])), place=place)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize("space", ["local", "shared"])
def test_index_outside_of_a_declared_array(space, checked):
    own = Array("own", "f64", (5,), space, lanes=space == "local")
    at = PLACE if space == "local" else PLACE + lane() * 0
    function = kernel(st.DeclareArray(own), st.store(own[at], const(0.0)), st.store(OUT[SLOT + lane()], own[PLACE]))
    with pytest.raises(SimulationError, match=r"index 5 outside of a declared array, in line \d+: own\["):
        on_device(function, place=5, checked=checked)


def test_the_next_launch_begins_anew():
    """A launch that is given up between barriers leaves nothing behind."""
    with pytest.raises(SimulationError):
        on_device(kernel(st.Barrier(), st.store(OUT[PLACE], const(1.0))), place=-1)
    test_threads_do_what_the_interpreter_says(4, "ascending")


def test_nobody_has_written_new_memory():
    own = Array("own", "f64", (2,))
    for array in (NEAR, Array("own", "f64", (2,), "local", lanes=True)):
        at = lane() if array is NEAR else const(1, "i64")
        body = [st.DeclareArray(array), st.store(OUT[SLOT + lane()], array[at])]
        found = on_device(kernel(*body))[2:]
        assert (np.isnan(found) | (abs(found) > 1e300)).all(), own


DIVERGING = {
    "barrier": ("    __syncthreads();", "    if (lane) __syncthreads();", "barrier that a part of the block does not"),
    "two barriers": (
        "    __syncthreads();",
        "    if (lane) { __syncthreads(); } else { out[0] += 0; __syncthreads(); }",
        "wait at different barriers",
    ),
    "shuffle": (
        "{ const double sum_ = warp_sum_f64(near[((long long)lane + 1) % count]);",
        "if (lane > 3) { const double sum_ = warp_sum_f64(near[((long long)lane + 1) % count]);",
        "shuffle that a part of the warp does not",
    ),
}


@pytest.mark.parametrize("case", DIVERGING)
def test_a_part_of_the_threads(case):
    """Our generator refuses such programs, so that the text is changed behind it."""
    old, new, words = DIVERGING[case]
    function = kernel(st.Barrier(), st.store(OUT[SLOT + lane()], NUMBER))
    if case == "shuffle":
        function = neighbours(st.Barrier())
    text = emulator.build(Recipe.of(function), 32).text()
    assert text.count(old) == 1
    with pytest.raises(SimulationError, match=words):
        on_device(function, 32, 1, text.replace(old, new))


def test_limits_of_every_gpu():
    function = neighbours(st.Barrier())
    with pytest.raises(SimulationError, match="at most 1024 threads, found 2048"):
        emulator.build(Recipe.of(function), 2048)
    large = Array("large", "f64", (6145,), "shared")
    body = st.DeclareArray(large), st.store(large[lane()], NUMBER), st.store(OUT[SLOT + lane()], large[lane() + 1])
    with pytest.raises(SimulationError, match="49152 bytes of shared memory, found 49160"):
        emulator.build(Recipe.of(kernel(*body)), 4)
    built = emulator.build(Recipe.of(function), 4)
    with pytest.raises(SimulationError, match="at most 2147483647 blocks, found 2147483648"):
        emulator.run(built, 2**31, [], ())


def test_without_a_compiler_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(CompilerError, match=r"no C\+\+ compiler: install one"):
        SimulatedDevice().build(Recipe.of(neighbours()), 4)


def test_text_that_is_no_cuda_is_refused_with_its_line():
    signature = Signature.of(neighbours())
    recipe = Recipe("tried", (signature,), text="no kernel")
    with pytest.raises(CompilerError, match=r"tried\.cu:1"):
        emulator.build(recipe, 4)
