"""Pairs of opposite spin by the work lists of `mp2_energy`: blocks, streamed factors, several cores and launches."""

from __future__ import annotations

import numpy as np
import pytest

from nki_kernels import opposite_spin_plan as plan
from nki_kernels.mp2_energy import mp2_energy, reference_mp2_energy
from nki_kernels.mp2_plan import sum_lanes
from tests.backends.contract import random_spins, reference_opposite_spin
from trnqc import sim


def energies_by_reference(spins, tiles: plan.SpinTiles, cores: int, capacity: int) -> np.ndarray:
    """Energies of all pairs, in launches of at most `capacity` pairs."""
    B, eps_occ, eps_vir = spins
    operands = plan.pack_opposite_spin(B, eps_vir, tiles, "fp32")
    pairs = np.indices((len(B[0]), len(B[1]))).reshape(2, -1).T
    e_pair, energies = np.add.outer(*eps_occ).ravel(), np.zeros((len(B[0]), len(B[1])))
    for start in range(0, len(pairs), capacity):
        part = pairs[start : start + capacity]
        work = plan.opposite_spin_work(part, e_pair[start : start + capacity], len(B[0]), tiles, cores, capacity)
        arguments = (*operands, work.e_pair, work.rows, work.bounds, tiles.joined.nvir, tiles.naux, tiles.kchunk)
        energies[tuple(part.T)] = sum_lanes(reference_mp2_energy(*arguments), work, len(part))[0]
    return energies


@pytest.mark.parametrize(
    ("nvir", "block"), [((7, 13), 128), ((130, 127), 128), ((127, 130), 128), ((300, 257), 128), ((129, 300), 256)]
)
@pytest.mark.parametrize(("cores", "capacity"), [(1, 6), (2, 4)])
def test_every_block_pair_is_computed_once(nvir, block, cores, capacity):
    spins = random_spins(3, 2, nvir, 131)
    tiles = plan.SpinTiles(nvir, 131, block, 2)
    energies = energies_by_reference(spins, tiles, cores, capacity)
    np.testing.assert_allclose(energies, reference_opposite_spin(spins), rtol=1e-6)


@pytest.mark.parametrize("nvir", [(5, 5), (300, 257), (448, 450), (2000, 1900)])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_tiles_fit_and_are_as_large_as_they_may(nvir, itemsize):
    tiles = plan.opposite_spin_tiles(nvir, 1536, itemsize)
    assert tiles.joined.sbuf_bytes(itemsize) <= plan.SBUF_BYTES
    assert tiles.block % 128 == 0 and sum(tiles.blocks) == tiles.joined.nblk
    small = plan.opposite_spin_tiles(nvir, 1536, itemsize, sbuf_bytes=90_000)
    assert small.joined.sbuf_bytes(itemsize) <= 90_000 and small.block <= tiles.block
    with pytest.raises(ValueError, match="bytes of SBUF per partition are needed"):
        plan.opposite_spin_tiles(nvir, 1536, itemsize, sbuf_bytes=10_000)


def test_products_are_exactly_those_of_the_pairs():
    """Rows times columns of all work items: nocc_alpha nocc_beta nvir_alpha nvir_beta, with rows padded to blocks."""
    nvir = (300, 257)
    tiles = plan.SpinTiles(nvir, 131, 128, 2)
    pairs = np.indices((3, 2)).reshape(2, -1).T
    work = plan.opposite_spin_work(pairs, np.zeros(6), 3, tiles, 1, 6)
    used = work.rows[work.owner[:, 0] >= 0]
    last = tiles.joined.nblk - 1
    columns = np.where(used[:, -1] == last, tiles.joined.nvir - last * 128, 128)
    assert (128 * columns).sum() == 6 * 384 * 257


@pytest.mark.parametrize("kchunk", [1, 2])
def test_the_kernel_itself(kchunk):
    """On the simulator, with several blocks of both spins, and with factors that are streamed in chunks."""
    spins = random_spins(2, 1, (130, 129), 140)
    tiles = plan.SpinTiles((130, 129), 140, 128, kchunk)
    B, eps_occ, eps_vir = spins
    operands = plan.pack_opposite_spin(B, eps_vir, tiles, "fp32")
    pairs = np.indices((2, 1)).reshape(2, -1).T
    work = plan.opposite_spin_work(pairs, np.add.outer(*eps_occ).ravel(), 2, tiles, 1, 2)
    arguments = (*operands, work.e_pair, work.rows, work.bounds, tiles.joined.nvir, 140, kchunk)
    out = sim.simulate(mp2_energy)(*arguments)
    energies = sum_lanes(np.asarray(out), work, 2)[0]
    np.testing.assert_allclose(energies.reshape(2, 1), reference_opposite_spin(spins), rtol=1e-5)
