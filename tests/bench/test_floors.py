"""Floors of parts of a job: operations are counted, and a small job has each of its parts."""

import numpy as np
import pytest
from pyscf import dft, gto

import trnqc
from trnqc.bench import floors
from trnqc.errors import TrnqcError
from trnqc.xc.blocks import Blocks


def test_operations_are_those_of_the_products():
    # X_Q = B_Q C for three Q, and the triangle of X_Q X_Q^T: a multiplication and an addition each.
    naux, nao, nocc = 3, 4, 2
    half = sum(2 for _ in np.ndindex(naux, nao, nocc, nao))
    update = sum(2 for _, i, j, _ in np.ndindex(naux, nao, nao, nocc) if j <= i)
    assert floors.fitted_exchange(naux, nao, nocc) == half + update
    assert floors.division_by_metric(5, 7) == pytest.approx(sum(2 for p, q, _ in np.ndindex(5, 5, 7) if q < p) + 5 * 7)


def test_a_pass_counts_the_functions_of_each_block():
    mol = gto.M(atom="He 0 0 0; He 0 0 40", basis="sto-3g", verbose=0)
    points = np.array([[0.0, 0.0, z] for z in (0.1, 75.6)]).repeat(16, axis=0)
    blocks = Blocks.of(mol, points, np.ones(len(points)), size=16).blocks
    assert [len(block.functions) for block in blocks] == [1, 1]
    # One orbital: psi, and half of a product for the potential.
    assert floors.quadrature(blocks, "LDA", 1) == 2 * 2 * 16 * 1.5
    assert floors.quadrature(blocks, "GGA", 1) == 2 * 2 * 16 * 2.0


def test_each_part_of_a_job_has_a_floor():
    mol = gto.M(atom="O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587", basis="sto-3g", verbose=0)
    mf = trnqc.accelerate(dft.RKS(mol, xc="pbe").density_fit(), kernels="wait").run()
    found = floors.of_job(mf)
    parts = {name: one for name, one in found.items() if isinstance(one, dict)}
    assert set(parts) == {"K", "fitted integrals", "XC, full pass"}
    for one in parts.values():
        # A time may be below the floor of a moment before, if the machine does other work as well.
        assert one["over_floor"] == pytest.approx(one["wall_s"] / one["floor_s"]) and one["wall_s"] > 0


def test_a_job_that_fails_is_named():
    with pytest.raises(TrnqcError, match=r"trnqc\.bench\.floors nothing .* ended with status 1"):
        floors.in_process("nothing", "sto-3g", "pbe", 1)
