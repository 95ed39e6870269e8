"""The driver on its own: structures with copies of atoms, pairs in any order, and what can go wrong."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

pytest.importorskip("vesin", reason="needs vesin")

from tests.mace.descriptions import CASES, description
from tests.mace.test_evaluate import PERIODIC, structure
from trnqc.errors import InputError
from trnqc.mace import Evaluator
from trnqc.mace.driver.driver import Driver
from trnqc.mace.driver.steps import AtomPass
from trnqc.mace.edges.neighbours import neighbours

PAIRS = tuple[np.ndarray, np.ndarray, np.ndarray]


def evaluator(case: str = "residual", threads: int = 1) -> Evaluator:
    return Evaluator(description(**CASES[case]), "float64", threads=threads)


def driver(case: str = "residual", threads: int = 1) -> Driver:
    return evaluator(case, threads).driver(np.arange(3))


def pairs(positions: np.ndarray, cell: np.ndarray) -> PAIRS:
    """Receivers, senders and vectors of all pairs, some of which are farther apart than the cutoff."""
    found = neighbours(positions, cell, PERIODIC, 4.0, 0.7)
    return found.receivers, found.senders, found.vectors(positions)


@pytest.mark.parametrize("threads", [1, 3])
def test_pairs_may_have_any_order(threads):
    numbers, positions, cell = structure(23)
    listed = pairs(positions, cell)
    order = np.random.default_rng(8).permutation(len(listed[0]))
    one = driver(threads=threads)(numbers, *listed)
    other = driver(threads=threads)(numbers, *(part[order] for part in listed))
    for a, b in zip(one, other):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-12 * np.abs(a).max())


def test_pairs_may_have_vectors_that_are_not_exactly_opposite():
    """Weights are computed once for both edges of a pair whose vectors are, and twice otherwise."""
    numbers, positions, cell = structure(23)
    receivers, senders, vectors = pairs(positions, cell)
    rounded = vectors * np.random.default_rng(2).choice([1.0, 1.0 + 2e-16], len(vectors))[:, None]
    run = driver()
    for a, b in zip(run(numbers, receivers, senders, vectors), run(numbers, receivers, senders, rounded)):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-12 * np.abs(a).max())


@pytest.mark.parametrize(("case", "radial"), [("residual", "exact"), ("nonlinear", "exact"), ("residual", "spline")])
def test_weights_are_shared_where_both_edges_of_a_pair_have_the_same(case, radial):
    made = Evaluator(description(**CASES[case]), "float64", radial=radial).program(np.arange(3))
    assert made.paired == (case == "residual" and radial == "exact")


def test_buffers_take_the_place_of_those_that_a_pass_has_read():
    """Rows of the skip connection are read in the last pass, and their gradients are written there."""
    program = evaluator().program(np.arange(3))
    assert "h0" in program.buffers and "gs1" not in program.buffers
    names = {
        name for step in program.steps if isinstance(step, AtomPass) for part in step.steps for name in part.values
    }
    assert "gs1" not in names and {"h0", "a0", "ga0"} <= names


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", ["three layers", "density", "one layer"])
def test_copies_of_atoms_stand_for_periodic_images(case, threads):
    """Every image is a copy, as in LAMMPS: features go to copies, and gradients and forces come back from them."""
    numbers, positions, cell = structure(9)
    expected = evaluator(case)(numbers, positions, cell, PERIODIC, virials=True)
    receivers, senders, vectors = pairs(positions, cell)
    places = np.round(np.column_stack([senders, positions[receivers] - vectors - positions[senders]]), 6)
    images, copy_of = np.unique(places, axis=0, return_inverse=True)
    owners = images[:, 0].astype(np.int64)
    order = np.random.default_rng(9).permutation(len(owners))

    def exchange(reverse: bool, rows: np.ndarray, row_of: np.ndarray) -> None:
        atoms, copies = row_of[: len(numbers)][owners[order]], row_of[len(numbers) :]
        if reverse:
            np.add.at(rows, atoms, rows[copies])
        else:
            rows[copies] = rows[atoms]

    every = np.concatenate([numbers, numbers[owners[order]]])
    senders = len(numbers) + np.argsort(order)[copy_of.ravel()]
    run, virials = driver(case, threads), np.empty((len(every), 3, 3))
    listed, copied = (every, receivers, senders, vectors), {"copies": len(owners), "exchange": exchange}
    energies, forces, virial = run(*listed, **copied, virials=virials)
    for of_copies in (forces, virials):
        np.add.at(of_copies, owners[order], of_copies[len(numbers) :])
    ours = {
        "energies": energies,
        "forces": forces[: len(numbers)],
        "virial": virial,
        "virials": virials[: len(numbers)],
    }
    for name, value in ours.items():
        exact = getattr(expected, name)
        np.testing.assert_allclose(value, exact, rtol=0, atol=1e-11 * np.abs(exact).max(), err_msg=name)


def test_a_process_without_copies_or_without_atoms_exchanges_too():
    """Exchanges are collective: others may have copies of its atoms, or it has copies but no atoms."""
    numbers, positions, cell = structure()
    listed, run = pairs(positions, cell), driver()
    calls: list[tuple[bool, tuple[int, ...]]] = []

    def exchange(reverse: bool, rows: np.ndarray, row_of: np.ndarray) -> None:
        calls.append((reverse, rows.shape))

    energies, _, _ = run(numbers, *listed, exchange=exchange)
    assert [reverse for reverse, _ in calls] == [False, True]
    np.testing.assert_array_equal(energies, run(numbers, *listed)[0])
    none = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 3))
    for copies in (0, 7):
        calls.clear()
        energies, forces, virial = run(numbers[:copies], *none, copies=copies, exchange=exchange)
        assert [shape[0] for _, shape in calls] == [copies, copies]
        assert energies.size == 0 and forces.shape == (copies, 3) and not forces.any() and not virial.any()


def test_wrong_structures_are_one_error_each():
    numbers, positions, cell = structure()
    listed, run = pairs(positions, cell), driver()

    def changed(part: int, value: float, place: int = 5) -> list[np.ndarray]:
        arrays = [array.copy() for array in listed]
        arrays[part][place] = value
        return arrays

    with pytest.raises(InputError, match=r"elements 1, 6, 8; found \[26, 79\]"):
        run(np.array([8, 26, 1, 79, 1, 1, 26]), *listed)
    for value in (np.nan, np.inf):
        with pytest.raises(InputError, match="must be finite numbers; found NaN or infinity in that of atoms"):
            run(numbers, *changed(2, value))
    with pytest.raises(InputError, match="are at the same position"):
        run(numbers, *changed(2, 0.0))
    for part, value in ((0, 7), (0, -1), (1, 7), (1, -1)):
        with pytest.raises(InputError, match="pair 5: expected a receiver below 7 and a sender below 7, found"):
            run(numbers, *changed(part, value))
    with pytest.raises(InputError, match=r"virials: expected a C-ordered array of float64 \[7, 3, 3\]"):
        run(numbers, *listed, virials=np.empty((7, 9)))
    with pytest.raises(InputError, match="several layers needs the function `exchange`"):
        run(np.append(numbers, 8), *listed, copies=1)
    # The driver can be used after an error.
    assert np.isfinite(run(numbers, *listed)[0]).all()


def test_a_copy_of_a_model_without_layers_after_it_needs_no_exchange():
    numbers, positions, cell = structure()
    listed, run = pairs(positions, cell), driver("one layer")
    energies, forces, _ = run(np.append(numbers, 8), *listed, copies=1)
    np.testing.assert_array_equal(energies, run(numbers, *listed)[0])
    assert forces.shape == (8, 3) and not forces[7].any()


def test_memory_is_kept_and_grows_with_the_structure():
    small, large, run = structure(5), structure(41), driver()
    first = run(small[0], *pairs(*small[1:]))
    run(large[0], *pairs(*large[1:]))
    again = run(small[0], *pairs(*small[1:]))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))


def test_the_number_of_threads_is_positive():
    program = evaluator().program(np.arange(3))
    with pytest.raises(InputError, match="expected a positive number of threads, found 0"):
        Driver(program, 0)


def test_a_program_that_is_cut_off_is_an_error():
    run = driver()
    words = evaluator().program(np.arange(3)).words()
    model = ctypes.c_void_p()
    for length in (0, 1, 20, len(words) - 1):
        arguments = [ctypes.c_void_p(words.ctypes.data), ctypes.c_int64(length), None, ctypes.c_int64(0), None]
        status = run.library.trnqc_mace_borrow(*arguments, ctypes.c_int64(0), ctypes.c_int(1), ctypes.byref(model))
        assert status == 2 and not model.value
