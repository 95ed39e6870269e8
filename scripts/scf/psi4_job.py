"""A whole job by Psi4, where the program `psi4` is installed, for `bench_scf.py`.

Psi4 runs as a program, with its own density-fitting sets, grid (75 radial, 302 angular points) and thresholds, but for
the change of energy at which an SCF ends, which is PySCF's. Its energies therefore differ by some 1e-5 Hartree. Seconds
are those of its calls, without the start of the program.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scripts.scf.job import MEMORY, molecule

# Methods and references of cases in Psi4's words. Version 1.3 has no r2SCAN.
METHODS = {"hf": ("scf", "rhf"), "uhf": ("scf", "uhf"), "rohf": ("scf", "rohf"), "mp2": ("mp2", "rhf")}
METHODS |= {functional: (functional, "rks") for functional in ("b3lyp", "pbe")}
WAYS = {"fitted": "df", "direct": "direct"}
# Psi4's input is Python with some words of its own.
INPUT = """\
import json, time
memory {memory} MB
molecule {{
{charge} {multiplicity}
{atoms}
symmetry c1
no_reorient
no_com
units angstrom
}}
set {{
basis {basis}
reference {reference}
scf_type {way}
mp2_type df
freeze_core true
e_convergence 1e-9
}}
seconds, energies = {{}}, {{}}
def clocked(stage, work):
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    seconds[stage] = {{"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}}
    return result
e, wfn = clocked("scf", lambda: energy("{method}", return_wfn=True))
if {gradient}:
    clocked("gradient", lambda: gradient("{method}", ref_wfn=wfn))
record = {{"seconds": seconds, "energy": e, "version": psi4.__version__}}
with open("{record}", "w") as file:
    json.dump(record, file)
"""


def runs(case: str) -> bool:
    """Whether Psi4 is installed, and runs a case."""
    _, _, method, way = case.split("/")
    return shutil.which("psi4") is not None and method in METHODS and way in WAYS


def run(case: str, threads: int, gradient: bool) -> dict[str, Any]:
    """Return version, energy, and wall and CPU seconds of the stages. Raises SystemExit if Psi4 fails."""
    name, basis, functional, way = case.split("/")
    mol = molecule(name, basis, charge=int(functional in ("uhf", "rohf")))
    method, reference = METHODS[functional]
    coordinates = mol.atom_coords(unit="Angstrom")
    with TemporaryDirectory() as folder:
        record, given, printed = (Path(folder) / name for name in ("record.json", "in.dat", "out.dat"))
        text = INPUT.format(
            memory=MEMORY,
            charge=mol.charge,
            multiplicity=mol.spin + 1,
            atoms="\n".join(f"{mol.atom_pure_symbol(n)} {x} {y} {z}" for n, (x, y, z) in enumerate(coordinates)),
            basis=basis,
            reference=reference,
            way=WAYS[way],
            method=method,
            gradient=gradient,
            record=record,
        )
        given.write_text(text)
        command = ["psi4", str(given), str(printed), "-n", str(threads)]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | {"PSI_SCRATCH": folder}, capture_output=True, text=True
        )
        if done.returncode or not record.exists():
            said = (done.stdout + done.stderr)[-2000:]
            raise SystemExit(f"{case}: psi4 ended with status {done.returncode}\n{said}")
        answer: dict[str, Any] = json.loads(record.read_text())
        return answer
