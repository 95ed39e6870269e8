#!/usr/bin/env python
"""Coupled cluster from its equations as text: examples/ccsd.txt, planned once, iterated until the energy stands.

    python examples/ccsd.py water --basis cc-pvdz

prints the plan, the iterations and PySCF's energy for comparison.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import ao2mo, cc, lib, scf

import trnqc
from trnqc import einsum_plan
from trnqc.contraction import parse
from trnqc.errors import NotConverged, TrnqcError
from trnqc.mp2.reference.molecule import build_mole, load_geometry

HERE = Path(__file__).parent
EQUATIONS = (HERE / "ccsd.txt").read_text(encoding="utf-8")


def spin_orbitals(mf: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Spatial orbital and spin of every spin orbital of an RHF reference, and the number of occupied ones.

    Occupied orbitals come before virtual ones, and within both alpha before beta.
    """
    occupied = mf.mo_occ > 0
    pairs = int(occupied.sum())
    spatial = np.concatenate([np.tile(np.flatnonzero(occupied), 2), np.tile(np.flatnonzero(~occupied), 2)])
    spin = np.concatenate([np.repeat([0, 1], pairs), np.repeat([0, 1], occupied.size - pairs)])
    return spatial, spin, 2 * pairs


def spin_orbital_integrals(mf: Any) -> dict[str, np.ndarray]:
    """Blocks <pq||rs> of an RHF reference, and the denominators of the amplitudes."""
    spatial, spin, nocc = spin_orbitals(mf)
    integrals = mf.mol if mf._eri is None else mf._eri  # those of the SCF, where it has kept them
    eri = ao2mo.restore(1, ao2mo.full(integrals, mf.mo_coeff), mf.mo_occ.size).transpose(0, 2, 1, 3)
    same = spin[:, None] == spin
    direct = eri[np.ix_(spatial, spatial, spatial, spatial)] * same[:, None, :, None] * same[None, :, None, :]
    anti = direct - direct.transpose(0, 1, 3, 2)
    o, v = slice(0, nocc), slice(nocc, None)
    blocks = {
        name: anti[tuple({"o": o, "v": v}[x] for x in name)]
        for name in ("oooo", "ooov", "oovv", "ovvo", "ovvv", "vvvv")
    }
    energies = mf.mo_energy[spatial]
    d1 = energies[o, None] - energies[v]
    d2 = d1[:, None, :, None] + d1[None, :, None, :]
    return {name: np.ascontiguousarray(block) for name, block in blocks.items()} | {"d1": d1, "d2": d2}


def iterate(
    mf: Any,
    threshold: float = 1e-10,
    change_threshold: float = 1e-7,
    most: int = 60,
    run: Callable[..., Any] | None = None,
    progress: Callable[[str], None] = print,
) -> tuple[float, Any, dict[str, np.ndarray]]:
    """(correlation energy in Hartree, plan over the blocks of spins, integrals and amplitudes).

    run takes the place of plan.run. The thresholds are those of the energy and of the norm of a change of amplitudes.
    """
    arrays = spin_orbital_integrals(mf)
    nocc, nvir = arrays["d1"].shape
    program = parse(EQUATIONS).sized(o=(nocc // 2, nocc // 2), v=(nvir // 2, nvir // 2))
    plan = einsum_plan(program, outputs=("n1", "n2", "energy"))
    run = run or plan.run
    energy, amplitudes = solve(
        lambda amplitudes: run(arrays | amplitudes),
        {"t1": np.zeros_like(arrays["d1"]), "t2": arrays["oovv"] / arrays["d2"]},
        threshold,
        change_threshold,
        most,
        progress,
    )
    return energy, plan, arrays | amplitudes


def solve(
    run: Callable[[dict[str, np.ndarray]], Mapping[str, Any]],
    amplitudes: dict[str, np.ndarray],
    threshold: float,
    change_threshold: float,
    most: int,
    progress: Callable[[str], None],
) -> tuple[float, dict[str, np.ndarray]]:
    """Energy in Hartree and amplitudes that stand: t1, t2, ... are replaced by n1, n2, ... of run, with DIIS.

    Raises NotConverged after `most` iterations.
    """
    extrapolation = lib.diis.DIIS()
    nocc, nvir = amplitudes["t1"].shape
    before = np.inf
    for number in range(1, most + 1):
        values = run(amplitudes)
        energy, new = float(values["energy"]), {name: values["n" + name[1:]] for name in amplitudes}
        change = float(np.linalg.norm([np.linalg.norm(new[name] - amplitudes[name]) for name in new]))
        progress(f"{number:3d}  {energy:.12f}  {change:.1e}")
        if abs(energy - before) < threshold and change < change_threshold:
            return energy, new
        before = energy
        unique = extrapolation.update(packed(*new.values()))
        amplitudes = dict(zip(new, unpacked(unique, nocc, nvir, len(new))))
    raise NotConverged(f"the energy of coupled cluster did not stand after {most} iterations; last change {change:.1e}")


def packed(*amplitudes: np.ndarray) -> np.ndarray:
    """The elements with i < j < ... and a < b < ... of amplitudes t[i, j, ..., a, b, ...] in one vector."""
    parts = []
    for t in amplitudes:
        order = t.ndim // 2
        occupied, virtual = ascending(t.shape[0], order), ascending(t.shape[-1], order)
        parts.append(t[(*occupied[:, :, None], *virtual[:, None, :])].ravel())
    return np.concatenate(parts)


def unpacked(unique: np.ndarray, nocc: int, nvir: int, excitations: int = 2) -> Iterator[np.ndarray]:
    """Antisymmetric amplitudes t1, t2, ... of up to so many excitations from a vector of `packed`."""
    for order in range(1, excitations + 1):
        occupied, virtual = ascending(nocc, order), ascending(nvir, order)
        shape = occupied.shape[1], virtual.shape[1]
        part, unique = unique[: shape[0] * shape[1]].reshape(shape), unique[shape[0] * shape[1] :]
        t = np.zeros((nocc,) * order + (nvir,) * order)
        for p in permutations(range(order)):
            for q in permutations(range(order)):
                sign = (-1) ** sum(x > y for x, y in (*combinations(p, 2), *combinations(q, 2)))
                t[(*occupied[list(p), :, None], *virtual[list(q), None, :])] = sign * part
        yield t


@lru_cache
def ascending(extent: int, order: int) -> np.ndarray:
    """All choices of numbers below the extent in ascending order, [order, choice]."""
    return np.array(list(combinations(range(extent), order)), dtype=int).reshape(-1, order).T


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("molecule", nargs="?", default="water", help="name of a molecule, or an xyz file")
    parser.add_argument("--basis", default="cc-pvdz")
    options = parser.parse_args(arguments)
    mol = build_mole(load_geometry(options.molecule), options.basis)
    mf = trnqc.accelerate(scf.RHF(mol)).run(conv_tol=1e-12)
    energy, plan, _ = iterate(mf)
    print(plan)
    reference = cc.CCSD(mf).run(conv_tol=1e-10, conv_tol_normt=1e-8).e_corr
    print(f"\nE(CCSD) correlation  {energy:.10f} Hartree, PySCF {reference:.10f}, difference {energy - reference:.1e}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
