"""One rank of a J/K benchmark, started by torchrun; rank 0 writes the seconds of its builds."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from pyscf import scf

from trnqc.eri.jk.builder import JKBuilder
from trnqc.mp2.reference.molecule import build_mole, load_geometry
from trnqc.ranks.transport import started


def main(title: str, builds: int, schedule: str, out: Path) -> None:
    """title: molecule/basis. The density is what an SCF starts from; the first build, which compiles, is left out."""
    name, _, basis = title.partition("/")
    mol = build_mole(load_geometry(name), basis)
    dm = np.asarray(scf.RHF(mol).get_init_guess(key="minao"))
    with started() as ranks:
        builder = JKBuilder(mol, threads=1, ranks=ranks, schedule=schedule)
        seconds, checksum = [], 0.0
        for _ in range(builds + 1):
            ranks.sum(np.zeros(1))  # all begin together
            start = time.perf_counter()
            j, k = builder.get_jk(dm)
            seconds.append(time.perf_counter() - start)
            checksum = float(np.vdot(j, dm) - np.vdot(k, dm) / 2)
        if ranks.rank == 0:
            out.write_text(json.dumps({"seconds": seconds[1:], "checksum": checksum}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
