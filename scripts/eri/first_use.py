"""One SCF, and its gradient on request, in its own process, which `bench_first_use.py` times.

    python -m scripts.eri.first_use {PySCF,trnqc} benzene cc-pvdz {memory,direct,fitted} [--gradient]

It prints JSON: energies, what computed J and K, and seconds since the start of the process. trnqc is imported only if
it is measured.
"""

from __future__ import annotations

import argparse
import json
import time

from scripts import ROOT

WAYS = ("memory", "direct", "fitted")


def main() -> None:
    begin = time.perf_counter()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("who", choices=("PySCF", "trnqc"))
    parser.add_argument("molecule", help="of examples/molecules")
    parser.add_argument("basis")
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--gradient", action="store_true")
    asked = parser.parse_args()

    from pyscf import gto, scf

    mol = gto.M(atom=str(ROOT / "examples" / "molecules" / f"{asked.molecule}.xyz"), basis=asked.basis, verbose=0)
    mf = scf.RHF(mol)
    if asked.way == "fitted":
        mf = mf.density_fit()
    elif asked.way == "direct":
        mf.max_memory = 1
    else:
        mf.max_memory = 16_000
    if asked.who == "trnqc":
        import trnqc

        mf = trnqc.accelerate(mf)
    record = {"e_scf": mf.kernel(), "ran_on": getattr(mf, "ran_on", "PySCF"), "scf_s": time.perf_counter() - begin}
    if asked.gradient:
        mf.max_memory = 16_000
        gradients = mf.nuc_grad_method()
        record["gradient"] = gradients.kernel().tolist()
        record["gradient_ran_on"] = getattr(gradients, "ran_on", "PySCF")
    print(json.dumps(record | {"nao": mol.nao_nr(), "seconds": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
