"""The vertical recurrence by columns gives the values of the graph, whatever axes either reduces."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gen.programs import compiled
from trnqc.eri.kernels import columns
from trnqc.eri.kernels.angular import raised
from trnqc.eri.kernels.recurrence import FITTED, LEAVES, components, recurrence
from trnqc.gen import listing, run
from trnqc.gen.interpreter import evaluate


def arguments(shells: tuple[int, int, int, int], lanes: int = 1, fitted: bool = False) -> dict:
    rng = np.random.default_rng(sum(shells))
    inputs = {leaf.attr: rng.uniform(-1, 1) for leaf in LEAVES}
    la, lb, lc, ld = shells
    inputs["boys"] = rng.uniform(0.1, 1, sum(shells) + 1)
    inputs["h"] = np.ones((len(components(la, lb)), len(components(lc, ld)), lanes))
    inputs["scratch"] = np.full((columns.scratch_size(*shells, fitted), lanes), np.nan)
    return inputs


def wanted(shells: tuple[int, int, int, int], inputs: dict, rule: str) -> np.ndarray:
    names = {k: v for k, v in inputs.items() if np.ndim(v) == 0} | {f"F_{m}": f for m, f in enumerate(inputs["boys"])}
    targets = recurrence(*shells, rule).targets
    return np.array([evaluate(t, names) for t in targets]).reshape(inputs["h"].shape[:2])


SHELLS = [
    (0, 0, 0, 0),
    (1, 0, 0, 0),
    (0, 0, 1, 0),
    (1, 1, 1, 0),
    (1, 0, 2, 2),
    (2, 2, 1, 1),
    (3, 0, 2, 0),
    (4, 0, 0, 0),
]


@pytest.mark.parametrize("add", [True, False])
@pytest.mark.parametrize("shells", SHELLS)
def test_columns_hold_the_graphs_values(shells, add):
    inputs = arguments(shells)
    want = wanted(shells, inputs, "interleaved") + add
    run(columns.vertical(*shells, add), inputs)
    np.testing.assert_allclose(inputs["h"][..., 0], want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shells", [(1, 0, 2, 0), (2, 1, 3, 0), (0, 0, 4, 0)])
def test_columns_of_a_fitting_shell(shells):
    inputs = arguments(shells, fitted=True)
    want = wanted(shells, inputs, FITTED) + 1
    run(columns.vertical(*shells, add=True, fitted=True), inputs)
    np.testing.assert_allclose(inputs["h"][..., 0], want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shells, lanes", [((2, 2, 2, 2), 8), ((3, 3, 1, 0), 4), ((2, 1, 2, 1), 1)])
def test_compiled(shells, lanes):
    inputs = arguments(shells, lanes)
    want = wanted(shells, inputs, "ket first") + 1
    compiled(columns.vertical(*shells, add=True), lanes, flags=("-O1",))(*inputs.values())
    np.testing.assert_allclose(inputs["h"], np.broadcast_to(want[..., None], inputs["h"].shape), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("shells", [(3, 3, 2, 2), (4, 4, 4, 4)])
def test_every_column_follows_those_that_it_is_made_of(shells):
    reached = {(0, 0, 0)}
    path = [(0, 0, 0)]
    layout = columns.column_layout(*shells)
    for column in layout.tree():
        path = [*path[: column.level], column.powers]
        assert path[-2] == raised(column.powers, column.axis, -1)
        if column.lower:
            assert path[-3] == raised(column.powers, column.axis, -2)
        reached.add(column.powers)
    assert reached == set(components(0, layout.f_high))


def test_code_grows_with_the_rows_not_with_the_graph():
    sizes = [listing(columns.vertical(l, l, l, l, add=True)).count("\n") for l in (1, 2, 3)]
    nodes = [len(recurrence(l, l, l, l, "bra cheapest").nodes) for l in (1, 2, 3)]
    assert nodes[2] / nodes[1] > 6 and sizes[2] / sizes[1] < 3
