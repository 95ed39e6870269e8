"""Kernels on two cores: device loops with equal trip counts, and the results of one core to the last bit.

The simulator refuses a launch whose cores make unequal numbers of passes through a device loop.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki_kernels.cg.conv import cg_conv, reference_cg_conv
from nki_kernels.cg.gradients import cg_gradients, reference_cg_gradients
from nki_kernels.cg.windows import Sorted, windows_of
from nki_kernels.cores import range_of_core
from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import random_fill
from tests.nki_kernels.cg_launches import case, mace_layer
from trnqc import sim

# One; primes; one over a tile; items that are an odd number for two cores, and K with a remainder.
SIZES = [
    *[("gemm", size, {}) for size in ((1, 1, 1), (7, 13, 5), (129, 513, 129), (1025, 1031, 7))],
    ("gemm", (300, 40, 140), {"rows": 128, "cols": 512, "kchunk": 2, "batch": 1, "hold": 0}),
    ("gemm", (300, 600, 700), {"rows": 128, "cols": 512, "kchunk": 1, "batch": 1, "hold": 0}),
    *[("batched_contraction", size, {}) for size in ((1, 7, 13, 5), (7, 17, 31, 129), (5, 1, 513, 1))],
    *[("mp2_energy", size, {}) for size in ((1, 1, 1), (7, 13, 17), (5, 129, 129))],
    *[("mp2_gamma", size, {}) for size in ((1, 1, 1), (7, 13, 17), (3, 129, 129))],
    ("mp2_gamma", (5, 53, 140), {"rows": 128, "cols": 100, "depth": 1}),
    *[("blas_gemm", size, {}) for size in ((1, 1, 1, 1), (7, 17, 31, 29), (37, 17, 31, 29), (3, 129, 513, 129))],
    ("blas_gemm", (1, 129, 33, 300), {"rows": 128, "cols": 512, "depth": 1, "group": 1}),
    *[("blas_syrk", size, {}) for size in ((1, 1), (131, 129), (641, 7))],
    ("blas_syrk", (257, 300), {"rows": 128, "cols": 128, "depth": 1}),
    *[("blas_trsm", size, {}) for size in ((1, 1), (129, 7), (131, 1031))],
    ("blas_trsm", (300, 35), {"panel": 128, "cols": 10}),
    *[("blas_cholesky", size, {}) for size in ((1,), (129,))],
]


def result_of(kernel, function, shape, constants, cores):
    launch = kernel.example(shape, "fp32", constants, cores, random_fill(0))
    return sim.simulate(function)(*launch.args, **launch.constants)


@pytest.mark.parametrize(("name", "size", "chosen"), SIZES, ids=str)
def test_two_cores_compute_what_one_does(name, size, chosen, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    kernel = kernels()[name]
    shape = dict(zip(kernel.dims, size, strict=True))
    constants = {**kernel.default(shape, "fp32"), **chosen}
    one = result_of(kernel, kernel.function, shape, constants, 1)
    two = result_of(kernel, kernel.function[2], shape, constants, 2)
    np.testing.assert_array_equal(two.view(np.int32), one.view(np.int32))


GRAPHS = [(1, 1, 4, 1), (3, 5, 4, 1), (5, 131, 2, 1), (13, 700, 4, 1), (9, 300, 3, 2)]


@pytest.mark.parametrize(("nodes", "edges", "window", "depth"), GRAPHS)
def test_two_cores_convolve_what_one_does(nodes, edges, window, depth, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    job = case(mace_layer(3, 1, 1), nodes, edges)
    (block,) = job.blocks
    results = []
    for cores, function in ((1, cg_conv), (2, cg_conv[2])):
        args, constants, _ = job.launch(block, window, depth, cores)
        results.append(sim.simulate(function)(*args, **constants))
        np.testing.assert_allclose(results[-1], reference_cg_conv(*args, **constants), rtol=0, atol=1e-4)
    np.testing.assert_array_equal(results[1].view(np.int32), results[0].view(np.int32))


@pytest.mark.parametrize(("nodes", "edges", "window", "depth"), GRAPHS)
def test_two_cores_take_gradients_as_one_does(nodes, edges, window, depth, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    job = case(mace_layer(3, 1, 1), nodes, edges)
    (block,) = job.blocks
    results = []
    for cores, function in ((1, cg_gradients), (2, cg_gradients[2])):
        args, constants = job.launch_gradients(block, window, depth, cores)
        results.append(sim.simulate(function)(*args, **constants))
        for result, reference in zip(results[-1], reference_cg_gradients(*args, **constants), strict=True):
            np.testing.assert_allclose(result, reference, rtol=0, atol=1e-4)
    for two, one in zip(results[1], results[0], strict=True):
        np.testing.assert_array_equal(two.view(np.int32), one.view(np.int32))


@given(count=st.integers(0, 50), cores=st.integers(1, 4))
def test_ranges_of_cores_are_equally_long_and_have_every_item(count, cores):
    ranges = [range(*range_of_core(count, core, cores)) for core in range(cores)]
    assert {len(r) for r in ranges} == {-(-count // cores)}
    assert {item for r in ranges for item in r} == set(range(count))


@given(nodes=st.integers(1, 12), edges=st.integers(0, 900), window=st.integers(1, 5), cores=st.integers(1, 3))
def test_windows_of_cores_have_equally_many_items_and_every_edge(nodes, edges, window, cores):
    receivers = np.sort(np.random.default_rng(edges).integers(0, nodes, edges))
    order = Sorted(np.arange(edges), np.searchsorted(receivers, np.arange(nodes + 1)), np.zeros(edges, np.int64))
    windows = windows_of(order, window, 1, cores)
    assert len(set(np.diff(windows.bounds).ravel())) == 1 and windows.bounds.max() <= len(windows.table)
    items = np.unique(np.concatenate([np.arange(*bounds) for bounds in windows.bounds]))
    table = windows.table[items]
    inside = table[:, :, 3] < window
    np.testing.assert_array_equal(np.sort(table[:, :, 1][inside]), np.arange(edges))
    receiver = np.broadcast_to(table[:, :1, 5], inside.shape) + table[:, :, 3]
    np.testing.assert_array_equal(receiver[inside], receivers[table[:, :, 1][inside]])
