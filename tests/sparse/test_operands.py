"""Operands packed once, in the layouts that formats name."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from trnqc.errors import OperandError
from trnqc.sparse import api
from trnqc.sparse.network.nest import Format
from trnqc.sparse.network.network import network
from trnqc.sparse.run.operands import NetworkOperands, packed
from trnqc.sparse.search.formats import PACKED, Formats
from trnqc.sparse.search.statistics import Statistics
from trnqc.sparse.tensors.convert import as_tensor

CSR, CSC = Format(("i", "j"), ("dense", "compressed")), Format(("j", "i"), ("dense", "compressed"))


def operands():
    matrix = scipy.sparse.random_array((5, 4), density=0.4, rng=1)
    map_ = matrix.toarray() > 0.5
    tensors = as_tensor(matrix), as_tensor(map_)
    return NetworkOperands(network("ij,kj,kj->ik", [(5, 4)] * 3, same=(0, 0, 2)), (tensors[0], tensors[0], tensors[1]))


def test_a_layout_is_packed_once():
    held = operands()
    first = held.packed(0, CSR)
    assert first.order == (0, 1)
    assert first.kinds == ("dense", "compressed")
    again = Format(("k", "j"), ("dense", "compressed"))
    assert held.packed(0, CSR) is held.packed(1, again) is first
    assert held.repacked == 1
    assert held.bytes == first.bytes
    other = held.packed(0, CSC)
    assert held.repacked == 2
    np.testing.assert_array_equal(other.to_dense(), first.to_dense())
    assert str(held).startswith("2 operands repacked in ")


def test_a_layout_that_a_tensor_has_is_not_copied():
    held = operands()
    own = held.packed(0, Format(("i", "j"), ("compressed", "compressed")))
    assert own is held.tensors[0]
    assert held.repacked == held.bytes == 0


def test_all_operands_of_a_nest():
    held = operands()
    rows = Format(("k", "j"), ("dense", "compressed"))
    formats = (CSR, rows, Format(rows.order, rows.kinds, ones=True), Format(("i", "k"), ("dense", "dense")))
    result = held.for_nest(formats)
    assert [x.kinds for x in result] == [("dense", "compressed")] * 3
    assert result[2].values is None
    assert held.repacked == 2


def test_maps_with_and_without_values():
    map_ = as_tensor(np.eye(3, dtype=bool))
    full = packed(map_, ("i", "j"), CSR)
    assert full.values.tolist() == [1, 1, 1]
    bare = Format(CSR.order, CSR.kinds, ones=True)
    assert packed(full, ("i", "j"), bare).values is None
    assert packed(as_tensor(np.eye(3)), ("i", "j"), bare).values is None
    padded = Format(("i", "j"), ("compressed", "dense"), ones=True)
    for tensor, layout in ((as_tensor(2 * np.eye(3)), bare), (map_, padded)):
        with pytest.raises(OperandError, match="must be 1 everywhere; found other values, or zeros"):
            packed(tensor, ("i", "j"), layout)


def test_shapes_are_those_of_the_network():
    tensor = as_tensor(np.ones((3, 2)))
    with pytest.raises(OperandError, match=r"operand 1 \(jk\) must have the shape \(2, 4\); found \(3, 2\)"):
        NetworkOperands(network("ij,jk->ik", [(3, 2), (2, 4)]), (tensor, tensor))


def test_exchanged_operands_are_packed_once():
    first = operands()
    matrix = first.tensors[1]
    second = first.exchanged([matrix, matrix, as_tensor(np.ones((5, 4)))])
    again = Format(("k", "j"), ("dense", "compressed"))
    assert second.packed(0, CSR) is first.packed(1, again)
    assert (first.repacked, second.repacked) == (0, 1)
    assert second.packed(2, Format(("j", "k"), ("dense", "dense"))).order == (1, 0)
    with pytest.raises(OperandError, match="operand 2"):
        first.exchanged([matrix, matrix, as_tensor(np.ones((4, 4)))])


@pytest.mark.parametrize("kind", ["csr", "csc"])
@pytest.mark.parametrize("size", [50, 700])
def test_products_of_scipys_arrays_pack_nothing_anew(kind: str, size: int) -> None:
    """The nest reads rows of CSR arrays and columns of CSC arrays, and writes the result in the same order."""
    rng = np.random.default_rng(size)
    a, b = (scipy.sparse.random_array((size, size), density=3 / size, format=kind, rng=rng) for _ in range(2))
    planned = api._planned("ij,jk->ik", (a, b), "sparse", None, "fused", once=True)
    result = planned.run()
    assert planned.operands.repacked == 0 and result.format == kind
    (nest,) = (step.nest for step in planned.steps)
    assert nest.formats[-1].order == (("i", "k") if kind == "csr" else ("k", "i"))
    assert abs(result - a @ b).max() < 1e-12


def test_a_plan_of_many_runs_may_pack_its_operands() -> None:
    """Packing counts in the search for the nest of one call, and not for that of a plan."""
    tensor = as_tensor(scipy.sparse.eye_array(40, format="csr"))
    statistics = Statistics(network("ij,jk->ik", [(40, 40), (40, 40)], same=(0, 0)), [tensor, tensor])
    one, many = Formats(statistics, (CSR, CSR)), Formats(statistics)
    assert (one.packing(0, CSR), one.packing(0, CSC), many.packing(0, CSC)) == (0, 40 * PACKED, 0)
    result = Format(("k", "i"), ("dense", "compressed"))
    assert one.reordering(result) == 0
    assert Formats(statistics, wanted=("i", "k")).reordering(result) == pytest.approx(40 * PACKED, rel=0.5)
