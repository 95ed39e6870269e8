"""Compiled kernels: awkward sizes, equal bits on any number of threads, tables that grow, what is refused."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from tests.sparse.nests import arrays, packed
from tests.sparse.oracle import reference
from trnqc.errors import MemoryLimit, OperandError
from trnqc.sparse import api
from trnqc.sparse.lower.program import nest_program
from trnqc.sparse.network.loops import ordered
from trnqc.sparse.network.nest import Assignment, Format, Nest, Workspace
from trnqc.sparse.network.network import network
from trnqc.sparse.run import kernel as kernels
from trnqc.sparse.run.kernel import NestKernel, compiled
from trnqc.sparse.run.results import COUNTED, most_elements
from trnqc.sparse.search.named_nests import fused, nary
from trnqc.sparse.tensors.storage import from_coo

# Sums of a few thousand products of numbers up to 2.
TOLERANCE = 1e-12


def dense(result):
    return result if isinstance(result, np.ndarray) else result.check().to_dense()


def check(nest, seed=0, fill=0.4, threads=(1, 2, 3)):
    inputs = arrays(nest, seed, fill)
    kernel, operands = compiled(nest), packed(nest, inputs)
    results = [dense(kernel(operands, n)) for n in threads]
    wanted = reference(nest.network, inputs)
    assert results[0].shape == wanted.shape
    np.testing.assert_allclose(results[0], wanted, rtol=0, atol=TOLERANCE * max(1.0, abs(wanted).max(initial=0)))
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def dlpno(first, second, shared, workspace, kinds, sizes=(13, 11, 37, 7, 45)):
    """E(K i u) = sum over m and n of I(K m n) C(m i) P(n u), with the layouts that these loops read in order."""
    K, m, n, i, u = sizes
    net = network("Kmn,mi,nu->Kiu", [(K, m, n), (m, i), (n, u)])
    i_order = tuple(x for x in first if x in "Kmn")
    c_order = tuple(x for x in first if x in "mi")
    formats = (
        Format(i_order, ("dense", "compressed", "compressed")),
        Format(c_order, kinds[0]),
        Format(("n", "u"), kinds[1]),
        Format(("K", "i", "u"), kinds[2]),
    )
    both = (Assignment(3, (0, 1), tuple(first)), Assignment(4, (3, 2), tuple(second)))
    return Nest(net, both, (shared,), formats, (workspace,))


DD, DS, SS = ("dense", "dense"), ("dense", "compressed"), ("compressed", "compressed")
RESULTS = [("dense",) * 3, ("dense", "compressed", "compressed"), ("compressed", "compressed", "dense")]


@pytest.mark.parametrize("space", ["dense", "listed", "hashed"])
@pytest.mark.parametrize("result", RESULTS)
def test_row_workspace(space, result):
    check(dlpno("Kimn", "Kinu", 2, Workspace(("n",), space), (DS, DD, result)))


def test_what_orders_a_sparse_result():
    """Rows of which all elements are made need no list; scattered ones do, and beyond an array's size a table."""

    def space(kinds, sizes=(13, 11, 37, 7, 45)):
        return ordered(dlpno("Kimn", "Kinu", 2, Workspace(("n",)), (DS, kinds, RESULTS[1]), sizes)).workspaces[-1].space

    assert (space(DD), space(DS), space(DD, (2, 2, 2, 2, 2**22 + 1))) == ("dense", "listed", "hashed")


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (2, 3, 5, 4, 8), (3, 17, 9, 9, 97), (5, 2, 40, 13, 33)])
@pytest.mark.parametrize("order", ["in", "ni"])
def test_rows_taken_together(sizes, order):
    first = {"in": "Kmin", "ni": "Knmi"}[order]
    kinds = (DS if order == "in" else DD, DD, RESULTS[0])
    check(dlpno(first, "Kinu", 1, Workspace(tuple(order)), kinds, sizes))


def test_inner_products():
    check(dlpno("Kinm", "Kinu", 3, Workspace(()), (DD, DS, RESULTS[0])))
    net = network("ij,kj->ik", [(9, 71), (6, 71)])
    check(nary(net, ("i", "k", "j"), full=(0, 1), sparse=False))
    check(nary(net, ("i", "k", "j")))


def test_nothing_shared_and_nothing_stored():
    net = network("ij,jk,kl->il", [(6, 5), (5, 9), (9, 4)])
    for loops in (["ikj", "kli"], ["jik", "ilk"]):
        check(fused(net, ((0, 1), 2), loops, sparse=False))
        check(fused(net, ((0, 1), 2), loops))
        check(fused(net, ((0, 1), 2), loops), fill=0.0)


@pytest.mark.parametrize("kinds", [DS, SS, ("compressed", "dense")])
def test_a_list_inside_a_list(kinds):
    net = network("a,ca,bc->ab", [(5,), (4, 5), (6, 4)])
    both = (Assignment(3, (0, 1), ("a", "c")), Assignment(4, (2,), ("b", "c")), Assignment(5, (3, 4), ("a", "c", "b")))
    formats = (
        Format(("a",), ("compressed",)),
        Format(("a", "c"), DS),
        Format(("b", "c"), DS),
        Format(("a", "b"), kinds),
    )
    for spaces in (("listed", "listed"), ("hashed", "listed"), ("listed", "hashed")):
        spare = (Workspace(("a", "c"), spaces[0]), Workspace(("b", "c"), spaces[1]))
        check(Nest(net, both, (0, 0), formats, spare))
    outer = network("a,b->ab", [(5,), (6,)])
    copies = (Assignment(2, (0,), ("a",)), Assignment(3, (1,), ("b",)), Assignment(4, (2, 3), ("a", "b")))
    one = Format(("a",), ("dense",)), Format(("b",), ("compressed",)), Format(("a", "b"), kinds)
    lists = (Workspace(("a",), "listed"), Workspace(("b",), "listed"))
    check(Nest(outer, copies, (0, 0), one, lists))


def test_turns_that_sort_the_same_list_are_not_divided_among_threads():
    outer = network("a,b->ab", [(5,), (6,)])
    copies = (Assignment(2, (1,), ("b",)), Assignment(3, (0, 2), ("a", "b")))
    formats = Format(("a",), ("dense",)), Format(("b",), ("compressed",)), Format(("a", "b"), DS)
    nest = Nest(outer, copies, (0,), formats, (Workspace(("b",), "listed"),))
    check(nest)
    assert not any(piece.divisible for piece in nest_program(nest).pieces)


@pytest.mark.parametrize("fill", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("loops", ["Kinu", "Kiun"])
def test_crowded_rows_and_consecutive_coordinates(loops, fill):
    """Rows of a full operand are consecutive, those of others are not; a crowded row is stored without its zeros."""
    net = network("Kmn,mi,nu->Kiu", [(5, 7, 70), (7, 6), (70, 75)])
    nest = fused(net, ((0, 1), 2), ["Kimn", loops])
    for crowded in (False, True):
        check(replace(nest, crowded=crowded), fill=fill)
    if loops == "Kinu":
        inputs = arrays(nest, 3, fill)
        result = compiled(replace(nest, crowded=True))(packed(nest, inputs))
        assert result.nnz == np.count_nonzero(reference(net, inputs))


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_an_extent_of_zero(empty):
    sizes = [4, 5, 6]
    sizes[empty] = 0
    net = network("ij,jk->ik", [tuple(sizes[:2]), tuple(sizes[1:])])
    for sparse in (False, True):
        check(nary(net, ("i", "j", "k"), full=(1,), sparse=sparse))


def test_coordinates_beyond_32_bits():
    extent = 2**31 + 5
    net = network("i,i->i", [(extent,), (extent,)])
    one = Format(("i",), ("compressed",))
    kernel = compiled(Nest(net, (Assignment(2, (0, 1), ("i",)),), (), (one, one, one), ()))
    a = from_coo((extent,), [[3, 2**31 + 1, 2**31 + 2]], [2.0, 3.0, 4.0])
    b = from_coo((extent,), [[0, 3, 2**31 + 2]], [1.0, 5.0, 7.0])
    coordinates, values = kernel([a, b]).check().to_coo()
    assert coordinates.tolist() == [[3, 2**31 + 2]] and values.tolist() == [10.0, 28.0]


def test_growth(monkeypatch):
    monkeypatch.setattr(kernels, "FIRST_SLOTS", 2)
    monkeypatch.setattr(kernels, "LARGEST_CAPACITY", 1)
    nest = dlpno("Kimn", "Kinu", 2, Workspace(("n",), "hashed"), (DS, DS, RESULTS[1]))
    inputs = arrays(nest, 1, 0.5)
    kernel, operands = NestKernel(nest_program(nest)), packed(nest, inputs)
    for threads in (2, 1):
        np.testing.assert_allclose(
            dense(kernel(operands, threads)), reference(nest.network, inputs), atol=TOLERANCE * 100
        )
    monkeypatch.setattr(kernels, "MOST", 4)
    with pytest.raises(MemoryLimit, match="tensor 3 of Kmn,mi,nu->Kiu"):
        NestKernel(nest_program(nest))(operands)


def test_maps_and_infinity():
    """An element that is not stored meets no infinity."""
    net = network("ij,i->ij", [(3, 4), (3,)])
    a, b = Format(("i", "j"), DS, ones=True), Format(("i",), ("dense",))
    nest = Nest(net, (Assignment(2, (0, 1), ("i", "j")),), (), (a, b, Format(("i", "j"), DD)), ())
    map_ = np.eye(3, 4)
    result = compiled(nest)(packed(nest, [map_, np.array([np.inf, 2.0, np.nan])]))
    np.testing.assert_array_equal(result, np.where(map_, [[np.inf], [2.0], [np.nan]], 0.0))


def test_operands_refused():
    nest = dlpno("Kimn", "Kinu", 2, Workspace(("n",)), (DS, DD, RESULTS[0]))
    operands = packed(nest, arrays(nest, 0, 0.5))
    kernel = compiled(nest)
    with pytest.raises(OperandError, match="has 3 operands; found 2"):
        kernel(operands[:2])
    with pytest.raises(OperandError, match=r"operand 1 must be packed as \(i:dense m:compressed\)"):
        kernel([operands[0], operands[1].repack((0, 1), DS), operands[2]])
    with pytest.raises(OperandError, match=r"operand 2 \(nu\) must have the shape \(37, 45\); found \(45, 37\)"):
        kernel([*operands[:2], from_coo((45, 37), np.zeros((2, 0), int))])
    with pytest.raises(OperandError, match="operand 1 needs values"):
        kernel([operands[0], from_coo((11, 7), [[0], [0]], None, (1, 0), DS), operands[2]])


def test_one_text_for_all_extents_but_inner_ones():
    sources = {
        compiled(dlpno("Kimn", "Kinu", 2, Workspace(("n",)), (DS, DD, RESULTS[0]), sizes)).source
        for sizes in itertools.product((3, 4), (5, 6), (7, 8), (2, 9), (10,))
    }
    assert len(sources) == 1


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_memory_of_a_product_of_rows_is_that_of_its_terms(kind, threads):
    """Rows of very different lengths: each part has room for its terms, and nothing is computed twice."""
    rng = np.random.default_rng(5)
    a, b = (rng.random((300, 300)) < 0.01 for _ in range(2))
    a[7], a[200:], b[3], b[:, 9] = True, False, True, True
    operands = [scipy.sparse.csr_array(np.where(x, rng.integers(1, 9, x.shape), 0.0)).asformat(kind) for x in (a, b)]
    chosen = api._planned("ij,jk->ik", operands, "sparse", None, "fused", once=True)
    (step,) = chosen.steps
    bound, leading = most_elements(step.nest, chosen.operands.for_nest(step.nest.formats))
    terms = (a.astype(int) @ b.astype(int)).sum()
    assert bound == terms < 300**2 and leading is not None and leading.before[-1] == terms
    result = chosen.run(threads=threads)
    np.testing.assert_array_equal(result.toarray(), operands[0].toarray() @ operands[1].toarray())
    assert compiled(step.nest)._sizes.get(2, 1) == 1


@pytest.mark.parametrize("subscripts", ["ij,->i", "ij,->ij", ",ij->ij", "ij,j->i", "ij,j->ij", "ij,jk->i"])
def test_memory_of_other_products_of_two_operands(subscripts):
    rows = 2 * COUNTED
    a = scipy.sparse.random_array((rows, 5), density=0.3, format="csr", rng=1)
    rest = subscripts.split("->")[0].replace("ij", "", 1).replace(",", "")
    operands = [a, np.random.default_rng(2).random([5] * len(rest))]
    operands = operands[::-1] if subscripts.startswith(",") else operands
    result = api.contract(subscripts, *operands, out="sparse")
    found = result.toarray() if scipy.sparse.issparse(result) else result.to_dense()
    expected = np.einsum(subscripts, *(x.toarray() if x is a else x for x in operands))
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("rows", [2, 40])
def test_dense_rows_of_zeros_have_memory_where_an_operand_has_no_elements(rows):
    of = network(",abc,ac->ac", [(), (rows, 1, 2), (rows, 2)])
    formats = (
        Format((), ()),
        Format(("a", "c", "b"), ("dense", "compressed", "dense")),
        Format(("a", "c"), ("dense", "dense")),
        Format(("a", "c"), ("compressed", "dense")),
    )
    steps = Assignment(3, (0, 1), ("a", "b", "c")), Assignment(4, (3, 2), ("a", "c"))
    nest = Nest(of, steps, (1,), formats, (Workspace(("c",), "dense"),))
    last = np.zeros((rows, 1, 2))
    last[-1] = 3.0  # All elements are in the last range of rows.
    for middle in (np.zeros_like(last), last):
        operands = [np.array(2.0), middle, np.ones((rows, 2))]
        for threads in (1, 3):
            found = compiled(nest)(packed(nest, operands), threads=threads)
            np.testing.assert_array_equal(found.to_dense(), 2.0 * middle[:, 0])
