#!/usr/bin/env python
"""CCSD(T) of a closed shell: amplitudes from PySCF, the energy (T) within a memory limit.

python examples/rccsd_triples.py benzene --basis cc-pvdz --frozen 6 --memory 300M
"""

import argparse
import sys

from pyscf import cc, scf

import trnqc
from trnqc.errors import TrnqcError
from trnqc.host.memory import parse_memory
from trnqc.interfaces.triples import rccsd_triples
from trnqc.mp2.reference.molecule import build_mole, load_geometry


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("molecule", nargs="?", default="water", help="name of a molecule, or an xyz file")
    parser.add_argument("--basis", default="cc-pvdz")
    parser.add_argument("--frozen", type=int, default=0, help="number of the lowest orbitals that are not correlated")
    parser.add_argument("--memory", default="4G", help="limit of (T), such as 300M; CCSD is PySCF's and has its own")
    options = parser.parse_args(arguments)
    mol = build_mole(load_geometry(options.molecule), options.basis)
    mf = trnqc.accelerate(scf.RHF(mol)).run(conv_tol=1e-11)
    coupled_cluster = cc.CCSD(mf, frozen=options.frozen or None).run()
    triples = rccsd_triples(coupled_cluster, memory_limit=int(parse_memory(options.memory)))
    print(f"E(CCSD)     {coupled_cluster.e_tot:.10f} Hartree")
    print(f"E(T)        {triples:.10f} Hartree")
    print(f"E(CCSD(T))  {coupled_cluster.e_tot + triples:.10f} Hartree")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
