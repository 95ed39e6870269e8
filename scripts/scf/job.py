"""One SCF with MP2 or its gradient in a process of its own, whose parts are timed; `bench_scf.py` starts it.

    python -m scripts.scf.job {PySCF,trnqc} caffeine/def2-svp/b3lyp/fitted [--no-gradient] [--cycles N]

The functional hf is Hartree-Fock, uhf and rohf are those of the cation, and mp2 is Hartree-Fock with density-fitted MP2
(frozen core, no gradient). It prints JSON with the wall and CPU seconds of every part. trnqc is imported only if it is
measured, or before the measurement.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import wraps
from tempfile import TemporaryDirectory
from typing import Any

from scripts import ROOT

REST = "rest"
# Methods of an SCF object whose time is a part of its own.
SCF_PARTS = {"get_jk": "J and K", "get_j": "J and K", "get_k": "J and K", "eig": "diagonalisation", "get_fock": "DIIS"}
# The same for objects that it holds, by attribute.
PARTS_OF_MEMBERS = {
    "grids": {"build": "grid"},
    # The last three are passes that correct coarse grids.
    "_numint": dict.fromkeys(("nr_rks", "nr_uks", "nr_nlc_vxc", "get_rho", "_rks", "_uks", "_nlc"), "XC"),
    "with_df": {"build": "fitted integrals"},
    "with_solvent": {"kernel": "solvent", "grad": "solvent"},
}
# Ways that are density fitting in a solvent, with the methods of PCM; SMD has one of its own.
SOLVENTS = {"c-pcm": "C-PCM", "smd": "SMD"}
# Ways that are density fitting with excited states, with PySCF's method and whether they are singlets.
EXCITATIONS = {
    f"{words}-{spin}": (method, spin == "singlet")
    for words, method in (("tda", "TDA"), ("tddft", "TDDFT"))
    for spin in ("singlet", "triplet")
}
STATES = 10
# Methods of the numerical integrator that excitations call.
RESPONSE = dict.fromkeys(("nr_rks_fxc", "nr_rks_fxc_st", "cache_xc_kernel"), "XC")
# `get_veff` of a Kohn-Sham gradient consists of XC and of J and K, which are counted apart.
GRADIENT_PARTS = {"get_jk": "J and K", "get_j": "J and K", "get_k": "J and K", "get_veff": "XC"}
# Default of PySCF's `max_memory` in MB, with which users run.
MEMORY = 4000


class Clock:
    """Wall and CPU seconds by part. A part that runs inside another one is not counted for the outer one."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.calls: Counter[str] = Counter()
        self._running = [REST]
        self._since = self._now()

    def timed(self, part: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function `work`, whose time is counted for `part`."""

        @wraps(work)
        def run(*args: Any, **options: Any) -> Any:
            self._count()
            self.calls[part] += self._running[-1] != part
            self._running.append(part)
            try:
                return work(*args, **options)
            finally:
                self._count()
                self._running.pop()

        return run

    def end(self) -> dict[str, dict[str, Any]]:
        """Return the parts since the last call of `end`, with their sum, and start anew."""
        self._count()
        sums = [sum(both) for both in zip(*self.seconds.values())]
        rows = {part: {"wall_s": w, "cpu_s": c} for part, (w, c) in (self.seconds | {"all": sums}).items()}
        for part, count in self.calls.items():
            rows[part]["calls"] = count
        self.seconds, self.calls = {}, Counter()
        return rows

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def _count(self) -> None:
        before, self._since = self._since, self._now()
        row = self.seconds.setdefault(self._running[-1], [0.0, 0.0])
        for n, (old, new) in enumerate(zip(before, self._since)):
            row[n] += new - old


def molecule(name: str, basis: str, charge: int = 0) -> Any:
    """A molecule of examples/molecules, a cluster such as water15, or a helix such as alanine20."""
    from pyscf import gto

    more = {"basis": basis, "charge": charge, "spin": charge, "verbose": 0, "max_memory": MEMORY}
    file = ROOT / "examples" / "molecules" / f"{name}.xyz"
    if built := re.fullmatch(r"(water|alanine)(\d+)", name):
        from scripts.workloads.alanine import alanine
        from scripts.workloads.waters import waters

        geometry = {"water": waters, "alanine": alanine}[built[1]](int(built[2]))
        return gto.M(atom=list(zip(geometry.symbols, geometry.coordinates)), **more)
    return gto.M(atom=str(file), **more)


def scf_object(who: str, mol: Any, functional: str, way: str) -> Any:
    """The SCF object of a contestant.

    way: `fitted`, `disk` for fitted integrals in a temporary file, or `direct`, which keeps no integrals, however much
    memory there is; or density fitting in water, one of SOLVENTS.
    """
    from pyscf import dft, lib, scf

    references = {"hf": scf.RHF, "mp2": scf.RHF, "uhf": scf.UHF, "rohf": scf.ROHF}
    mf = references[functional](mol) if functional in references else dft.RKS(mol, xc=functional)
    if way in ("fitted", "disk", *SOLVENTS, *EXCITATIONS):
        mf = mf.density_fit()
        if way == "disk":
            mf.temporary = TemporaryDirectory(dir=lib.param.TMPDIR)  # It is removed with the SCF object.
            mf.with_df._cderi_to_save = f"{mf.temporary.name}/integrals.h5"
        elif way == "smd":
            mf = mf.SMD()
            mf.with_solvent.solvent = "water"
        elif way in SOLVENTS:
            mf = mf.PCM()
            mf.with_solvent.method = SOLVENTS[way]
    else:
        mf._is_mem_enough = lambda: False
    if who == "trnqc":
        import trnqc

        mf = trnqc.accelerate(mf)
    return mf


def watch(clock: Clock, of: Any, names: dict[str, str]) -> None:
    """Replace methods of an object, or of a class, by timed ones.

    Methods that an SCF object itself has would be taken for the user's own, with which no cycle is in single precision.
    """
    for name, part in names.items():
        if hasattr(of, name):
            setattr(of, name, clock.timed(part, getattr(of, name)))


def measure(who: str, case: str, gradient: bool, cycles: int | None) -> dict[str, Any]:
    name, basis, functional, way = case.split("/")
    begin = time.process_time()
    mol = molecule(name, basis, charge=functional in ("uhf", "rohf"))
    mf = scf_object(who, mol, functional, way)
    correlate = mp2(who, mol, unconverged=cycles is not None) if functional == "mp2" else None
    imports = {"cpu_s": time.process_time() - begin}
    clock = Clock()
    watch(clock, type(mf), SCF_PARTS)
    for attribute, names in PARTS_OF_MEMBERS.items():
        if hasattr(mf, attribute):
            # A wrapper on the object itself would be copied with it, as by `range_coulomb` of with_df.
            watch(clock, type(getattr(mf, attribute)), names)
    if cycles is not None:
        mf.max_cycle = cycles
    energy = mf.kernel()
    correlation = {"e_corr": clock.timed("MP2", correlate)(mf)} if correlate else {}
    record: dict[str, Any] = {
        "nao": mol.nao,
        "points": len(mf.grids.weights) if hasattr(mf, "grids") else 0,
        "imports": imports,
        "scf": clock.end(),
        "cycles": mf.cycles,
        "converged": bool(mf.converged),
        "e_scf": float(energy),
        **correlation,
        "ran_on": str(getattr(mf, "ran_on", "PySCF")),
    }
    if gradient:
        gradients = mf.nuc_grad_method()
        # In the class that PySCF puts on top for solvents, these would seem to be a user's methods.
        ours = (cls for cls in type(gradients).__mro__ if cls.__module__.startswith("trnqc"))
        names = GRADIENT_PARTS if functional != "hf" else GRADIENT_PARTS | {"get_veff": "J and K"}
        watch(clock, next(ours, type(gradients)), names)
        clock.end()
        record["gradient"] = gradients.kernel().tolist()
        record["gradient_parts"] = clock.end()
    if way in EXCITATIONS:
        record |= excitations(mf, way, clock, cycles)
    # A direct SCF would need other kernels for J alone and K alone than for both.
    record["once"] = apart(mf, clock) if way != "direct" else {}
    if who == "trnqc" and functional not in ("uhf", "rohf"):
        from trnqc.bench import floors

        record["floors"] = floors.of_job(mf)
    return record


def excitations(mf: Any, way: str, clock: Clock, cycles: int | None) -> dict[str, Any]:
    """Excitation energies in Hartree, with the seconds of their parts; after so many cycles, if any are given."""
    method, singlet = EXCITATIONS[way]
    watch(clock, type(mf._numint), RESPONSE)
    clock.end()
    td = getattr(mf, method)()
    td.nstates, td.singlet = STATES, singlet
    td.max_cycle = cycles or td.max_cycle
    energies = td.kernel()[0]
    return {"excitations": list(map(float, energies)), "excitations_parts": clock.end()}


def mp2(who: str, mol: Any, unconverged: bool = False) -> Callable[[Any], float]:
    """The function of an SCF object that computes the correlation energy of density-fitted MP2 with a frozen core.

    Both contestants fit with the RI set of the basis. `unconverged`: whether ours accepts an SCF that has not
    converged, as after the one cycle with which kernels are compiled; PySCF's does in any case.
    """
    from pyscf import df
    from pyscf.mp import dfmp2

    from trnqc import DFMP2
    from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis
    from trnqc.mp2.reference.orbitals import chemical_core

    core, auxbasis = chemical_core(mol), auxiliary_basis(mol, None).auxmol.basis

    def theirs(mf: Any) -> float:
        method = dfmp2.DFMP2(mf, frozen=core)
        method.with_df = df.DF(mol, auxbasis)
        return float(method.kernel(with_t2=False)[0])

    def ours(mf: Any) -> float:
        method = DFMP2(mf, auxbasis, core, backend="cpu", allow_unconverged=unconverged)
        return float(method.kernel()[0])

    return theirs if who == "PySCF" else ours


def apart(mf: Any, clock: Clock) -> dict[str, Any]:
    """Times of fitted J alone and K alone for the final density, which an SCF computes together.

    With fitted integrals in a file also the time in which PySCF reads them.
    """
    dm, rows = mf.make_rdm1(), {}
    clock.end()
    for name, wanted in (("J", {"with_k": False}), ("K", {"with_j": False})):
        mf.get_jk(mf.mol, dm, **wanted)
        rows[name] = clock.end()["all"]
    if isinstance(mf.with_df._cderi, str):
        deque(mf.with_df.loop(), maxlen=0)
        rows["reading"] = clock.end()["all"]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("who", choices=("PySCF", "trnqc"))
    parser.add_argument(
        "case",
        metavar="MOLECULE/BASIS/FUNCTIONAL/WAY",
        help="hf is a functional, ways: fitted disk direct c-pcm smd tda-singlet ...",
    )
    parser.add_argument("--no-gradient", action="store_true")
    parser.add_argument("--cycles", type=int, help="end the SCF after so many cycles")
    asked = parser.parse_args()
    begin = time.perf_counter()
    record = measure(asked.who, asked.case, not asked.no_gradient, asked.cycles)
    print(json.dumps(record | {"seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
