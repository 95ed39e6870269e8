"""Sparse results of kernels for GPUs, whose CUDA text runs on the CPU, against those of the CPU and dense sums."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.sparse.nests import arrays, interpreted, nests, packed
from tests.sparse.test_device import tensor
from trnqc import jit
from trnqc.errors import MemoryLimit, ProgramError
from trnqc.gen import emit_cuda
from trnqc.jit.emulator import ORDERS
from trnqc.jit.simulated_device import SimulatedDevice
from trnqc.sparse import SparseTensor, from_dense, plan
from trnqc.sparse.lower.concurrent import concurrent_program
from trnqc.sparse.lower.gather import gather
from trnqc.sparse.network.nest import Format, Nest
from trnqc.sparse.network.network import network
from trnqc.sparse.run import device_results
from trnqc.sparse.run.device import LANES, DeviceNest, DevicePlan
from trnqc.sparse.run.device_results import Rooms
from trnqc.sparse.run.kernel import compiled
from trnqc.sparse.search.named_nests import fused

MATRICES = network("ij,jk->ik", [(40, 30), (30, 50)])


def product(loops: str = "ijk", kinds=("dense", "compressed")) -> Nest:
    """The product of two matrices, row by row in a list of elements, or an element at a time in a hash table."""
    nest = fused(MATRICES, (0, 1), [loops])
    stored = tuple(Format(f.order, ("dense", "compressed")) for f in nest.formats[:-1])
    return Nest(MATRICES, nest.assignments, nest.shared, (*stored, Format(("i", "k"), kinds)), nest.workspaces)


def whole_numbers(nest: Nest, seed: int, fill: float) -> list[np.ndarray]:
    """Operands whose products and sums are exact, so that they do not depend on the order of additions."""
    return [np.round(2 * array) for array in arrays(nest, seed, fill)]


def assert_same(found: SparseTensor, expected: SparseTensor) -> None:
    """The levels are the same, and the values have the same bits."""
    assert (found.shape, found.order, found.kinds) == (expected.shape, expected.order, expected.kinds)
    for a, b in zip(found.check().levels, expected.levels):
        assert type(a) is type(b)
        for name in ("positions", "coordinates"):
            assert np.array_equal(getattr(a, name, None), getattr(b, name, None))
    assert found.values.tobytes() == expected.values.tobytes()


def on_device(nest: Nest, inputs, order: str = "ascending") -> SparseTensor:
    device = SimulatedDevice(order=order)
    kernels = DeviceNest(nest, device)
    result = kernels(packed(nest, inputs))
    kernels.release()
    assert device.used == 0
    return result


@settings(deadline=None, max_examples=40)  # Each example is compiled.
@given(
    nest=nests().filter(lambda nest: nest.formats[-1].sparse),
    seed=some.integers(0, 9),
    fill=some.sampled_from((0.0, 0.3, 1.0)),
    order=some.sampled_from(list(ORDERS)),
    first=some.sampled_from((1, device_results.LARGEST_FIRST)),
)
def test_any_nest_has_the_bits_of_the_cpu(nest, seed, fill, order, first):
    inputs = whole_numbers(nest, seed, fill)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_results, "LARGEST_FIRST", first)
        try:
            found = on_device(nest, inputs, order)
        except ProgramError as error:
            assert "kernels for GPUs have no workspace in a hash table" in str(error)
            assert "hashed" in {w.space for w in nest.workspaces}
            return
    assert_same(found, interpreted(nest)(packed(nest, inputs)))


@pytest.mark.parametrize("kinds", [("dense", "compressed"), ("compressed", "compressed")])
@pytest.mark.parametrize("loops", ["ijk", "jik", "ikj"])
def test_product_of_matrices(loops, kinds):
    nest = product(loops, kinds)
    inputs = whole_numbers(nest, 5, 0.1)
    found = on_device(nest, inputs)
    assert_same(found, compiled(nest)(packed(nest, inputs)))
    assert np.array_equal(found.to_dense(), inputs[0] @ inputs[1])


@pytest.mark.parametrize(
    ("words", "shapes"),
    [
        ("ijk,kl->ijl", [(7, 9, 8), (8, 21)]),
        ("ijk,jl->ilk", [(12, 5, 9), (5, 6)]),
        ("ij,kj->ijk", [(6, 7), (8, 7)]),
        ("i,i->i", [(90,), (90,)]),
        ("ab,bc,cd->ad", [(11, 12), (12, 13), (13, 10)]),
    ],
)
@pytest.mark.parametrize("order", ORDERS)
def test_other_results(words, shapes, order):
    operands = [tensor(shape, int(np.prod(shape)) // 4, n) for n, shape in enumerate(shapes)]
    found = plan(words, *operands, form="fused", out="sparse")
    result, same = DevicePlan(found, SimulatedDevice(order=order)).run(), found.run()
    expected = np.einsum(words, *(x.to_dense() for x in operands))
    assert isinstance(result, SparseTensor) and np.allclose(result.to_dense(), expected, rtol=1e-12, atol=1e-12)
    assert np.array_equal(result.to_coo()[0], same.to_coo()[0])


def test_nothing_stored_and_one_row():
    nest = product()
    empty = on_device(nest, [np.zeros((40, 30)), np.ones((30, 50))])
    assert empty.check().nnz == 0 and empty.shape == (40, 50)
    left = np.zeros((40, 30))
    left[17] = 1
    one = on_device(nest, [left, np.eye(30, 50)])
    assert one.nnz == 30 and np.array_equal(one.to_dense(), left @ np.eye(30, 50))
    a, b = tensor((1, 30), 9), tensor((30, 50), 200)
    result = DevicePlan(plan("ij,jk->ik", a, b, form="fused", out="sparse"), SimulatedDevice()).run()
    assert np.allclose(result.to_dense(), a.to_dense() @ b.to_dense())


@pytest.mark.parametrize("empty", [0, 1, 2])
def test_an_extent_of_zero(empty):
    sizes = [4, 5, 6]
    sizes[empty] = 0
    a, b = np.ones(sizes[:2]), np.ones(sizes[1:])
    found = plan("ij,jk->ik", from_dense(a), from_dense(b), form="fused", out="sparse")
    assert np.array_equal(DevicePlan(found, SimulatedDevice()).run().to_dense(), a @ b)


def test_what_grew_is_large_enough_for_later_calls(monkeypatch):
    monkeypatch.setattr(device_results, "LARGEST_FIRST", 1)
    nest, device = product(), SimulatedDevice()
    inputs = whole_numbers(nest, 3, 0.3)
    kernels, operands, launches = DeviceNest(nest, device), packed(nest, inputs), []
    for _ in range(2):
        before = device.launches
        assert np.array_equal(kernels(operands).to_dense(), inputs[0] @ inputs[1])
        launches.append(device.launches - before)
    once = len(kernels.kernels) + 2  # Coordinates and values are each copied once.
    assert launches[0] > once and launches[1] == once


def test_only_the_parts_that_are_full_grow():
    rooms = Rooms(np.array([1, 10, 30]), np.array([100, 100, 50]))
    grown = rooms.grown(np.array([False, True, True]))
    assert grown.now.tolist() == [1, 40, 50] and grown.enough is rooms.enough
    with pytest.raises(MemoryLimit, match="ask for a dense result"):
        grown.grown(np.array([False, False, True]))


def test_first_rooms_follow_the_stored_elements():
    """Rows 0 .. 19 of the left operand are empty, so that a first run reserves for them what one more row takes."""
    net = network("ij,ij->ij", [(40, 50), (40, 50)])
    nest = fused(net, (0, 1), ["ij"])
    rows = Format(("i", "j"), ("dense", "compressed"))
    nest = replace(nest, formats=(rows, rows, rows))
    left = np.zeros((40, 50))
    left[20:, :40] = 1
    operands = packed(nest, [left, np.ones((40, 50))])
    (piece,) = concurrent_program(nest, LANES).pieces
    for free, entries in ((1000, 450), (400, 250)):
        rooms = Rooms.first(nest, operands, piece.piece, np.array([0, 10, 20, 30, 40]), free)
        assert rooms.now.tolist() == [50, 50, entries, entries] and rooms.enough.tolist() == [500] * 4


def test_results_are_of_the_kind_and_type_of_the_operands():
    a = scipy.sparse.random(20, 30, 0.2, random_state=1, dtype=np.float32).tocsr()
    b = scipy.sparse.random(30, 25, 0.2, random_state=2, dtype=np.float32).tocsr()
    result = DevicePlan(plan("ij,jk->ik", a, b, form="fused", out="sparse"), SimulatedDevice()).run()
    assert scipy.sparse.issparse(result) and result.format == "csr" and result.dtype == np.float32
    assert np.allclose(result.toarray(), (a @ b).toarray(), rtol=1e-6)


def test_after_an_error_nothing_is_held():
    nest = product()
    operands = packed(nest, whole_numbers(nest, 1, 0.4))
    device = SimulatedDevice()
    kernels = DeviceNest(nest, device)
    kernels(operands)
    for share in (0.5, 0.9):
        small = SimulatedDevice(memory=int(share * device.most_used))
        again = DeviceNest(nest, small)
        with pytest.raises(MemoryLimit):
            again(operands)
        again.release()
        assert small.used == 0


def texts() -> list[str]:
    nest = product()
    three = plan("ijk,kl->ijl", tensor((7, 9, 8), 90), tensor((8, 21), 50), form="fused", out="sparse").steps[0].nest
    programs = [concurrent_program(each, LANES) for each in (nest, three)]
    texts = [emit_cuda(*(piece.kernel for piece in program.pieces), lanes=LANES) for program in programs]
    return [*texts, *(emit_cuda(gather(dtype, LANES), lanes=LANES) for dtype in ("f64", "i32", "i64"))]


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs the CUDA compiler")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_cuda_compiler_accepts_the_text(arch):
    for text in texts():
        for report in jit.compile_cuda(text, name="sparse", arch=arch).kernels:
            assert report.spill_stores == 0
