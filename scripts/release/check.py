"""Install a wheel where there is no compiler, and run what trnqc promises there.

    python -m scripts.release.check dist/trnqc-*-manylinux*.whl [--python python3.12] [--record]

The wheel and its requirements go into a new environment. Its commands see no variables of this process and a PATH of
their own folder alone. Where Linux lets the user make namespaces, the folders of the system's programs are empty for
them too, as in a container. The transcript and the seconds from the installation to the first SCF are printed; --record
keeps the latter in profiles/measured. The exit status is 1 if a command fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts import measuring
from trnqc.errors import InputError

# Folders with programs of the system. /usr/bin is the last, because it has the program that hides them.
HIDDEN = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
_MOUNT = shutil.which("mount") or "mount"
_HIDE = "set -e; " + "".join(f"[ ! -d {folder} ] || {_MOUNT} -t tmpfs none {folder}; " for folder in HIDDEN)
COMPILERS = ("cc", "gcc", "clang", "c++", "g++", "zig")
# Variables that pip needs behind proxies and beside indexes of an organisation. Nothing else is handed on.
KEPT = ("SSL_CERT_FILE", "PIP_CERT", "PIP_FIND_LINKS", "PIP_INDEX_URL", "HTTPS_PROXY", "https_proxy", "OMP_NUM_THREADS")

SCF = """
import trnqc
from pyscf import scf
from trnqc.mp2.reference.molecule import build_mole, load_geometry
mol = build_mole(load_geometry("benzene"), "cc-pvdz")
mf = trnqc.accelerate(scf.RHF(mol).density_fit()).run()
print(mf.e_tot, mf.ran_on)
assert "prebuilt" in mf.ran_on and "PySCF" not in mf.ran_on, "the wheel's kernels did not run"
assert abs(mf.e_tot - scf.RHF(mol).density_fit().run().e_tot) < 1e-8
"""
KOHN_SHAM = """
import trnqc
from pyscf import dft
from trnqc.mp2.reference.molecule import build_mole, load_geometry
mol = build_mole(load_geometry("water"), "cc-pvdz")
mf = trnqc.accelerate(dft.RKS(mol, xc="b3lyp").density_fit()).run()
print(mf.e_tot, mf.ran_on)
assert "prebuilt" in mf.ran_on, "the wheel's kernels did not run"
"""
EINSUM = """
import numpy as np, trnqc
rng = np.random.default_rng(0)
t, v = rng.random((4, 4, 9, 9)), rng.random((9, 9, 9, 9))
r = trnqc.einsum("ijef,abef->ijab", t, v, memory_limit=10_000_000)
np.testing.assert_allclose(r, np.einsum("ijef,abef->ijab", t, v), rtol=1e-12)
print(trnqc.einsum_plan("ijef,abef->ijab", t, v))
"""
SPARSE = """
import numpy as np, scipy.sparse, trnqc.sparse
a = scipy.sparse.random_array((2000, 1000), density=0.02, rng=1)
b = scipy.sparse.random_array((1000, 500), density=0.02, rng=2)
c = np.random.default_rng(3).random((500, 30))
r = trnqc.sparse.contract("ij,jk,kl->il", a, b, c)
np.testing.assert_allclose(r, a @ (b @ c), rtol=1e-10)
print(r.shape)
"""
CG = """
import numpy as np
from trnqc import cg
from trnqc.cg.cpu.engine import engine_for
paths = [(0, 0, 0, "uvu", True, 1.0), (1, 1, 0, "uvu", True, 1.0)]
problem = cg.TPProblem("8x0e+8x1o", "1x0e+1x1o", "8x0e+8x1o", paths)
engine = engine_for(problem, "float64")
rng = np.random.default_rng(0)
print(engine.forward(*(rng.random(problem.shape_of(name, 5)) for name in "xyw")).shape, engine)
"""


@dataclass(frozen=True)
class Step:
    """A command and what became of it: its name, wall seconds, exit status and output."""

    name: str
    seconds: float
    status: int
    output: str


def commands(python: str) -> dict[str, list[str]]:
    """The commands that follow the installation, by name; the first is the first SCF."""
    mp2 = [python, "-m", "trnqc", "mp2", "benzene", "--basis", "cc-pvdz"]
    return {
        "accelerated SCF of benzene/cc-pVDZ": [python, "-c", SCF],
        "trnqc doctor": [python, "-m", "trnqc", "doctor"],
        "trnqc mp2 benzene --basis cc-pvdz": mp2,
        "trnqc mp2 benzene --basis cc-pvdz --no-fused-energy": [*mp2, "--no-fused-energy"],
        "accelerated B3LYP of water/cc-pVDZ": [python, "-c", KOHN_SHAM],
        "trnqc.einsum": [python, "-c", EINSUM],
        "trnqc.sparse.contract": [python, "-c", SPARSE],
        "trnqc.cg": [python, "-c", CG],
    }


def hides_programs() -> bool:
    """Whether commands can be run with the folders of the system's programs emptied."""
    probe = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", f"{_HIDE} [ ! -e /usr/bin/unshare ]"]
    return bool(shutil.which("unshare")) and subprocess.run(probe, capture_output=True, check=False).returncode == 0


def bare(command: list[str], hidden: bool) -> list[str]:
    """A command that sees no programs of the system, where that is possible."""
    if not hidden:
        return command
    return ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", f'{_HIDE} exec "$@"', "sh", *command]


def run(name: str, command: list[str], folder: Path, hidden: bool, launcher: str = "") -> Step:
    """Run a command in an environment of its own, and print its transcript."""
    path = str(folder / "venv" / "bin")
    if found := [program for program in COMPILERS if shutil.which(program, path=path)]:
        raise InputError(f"expected no compiler in {path}, found {', '.join(found)}")
    kept = {variable: os.environ[variable] for variable in KEPT if variable in os.environ}
    environment = kept | {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8"}
    command, start = bare(command, hidden), time.perf_counter()
    command[0] = shutil.which(command[0]) or command[0]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    step = Step(name, round(time.perf_counter() - start, 1), done.returncode, done.stdout)
    print(f"$ {name}\n{step.output.rstrip()}\n[{step.seconds} s, exit status {step.status}]\n", flush=True)
    return step


def check(wheel: Path, python: str, folder: Path) -> list[Step]:
    """Install a wheel into a new environment in a folder, and run the commands."""
    hidden = hides_programs()
    print("programs of the system: " + ("hidden" if hidden else "not in PATH") + "\n")
    subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
    ours = str(folder / "venv" / "bin" / "python")
    install = [ours, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", str(wheel.resolve())]
    steps = [run(f"pip install {wheel.name}", install, folder, hidden)]
    if steps[0].status == 0:
        steps += [run(name, command, folder, hidden) for name, command in commands(ours).items()]
    return steps


def summary(wheel: Path, steps: list[Step]) -> dict[str, Any]:
    """The row of a record: the wheel, the seconds until the first SCF was done, and all commands without outputs."""
    rows = [{key: value for key, value in asdict(step).items() if key != "output"} for step in steps]
    return {
        "wheel": wheel.name,
        "MB": round(wheel.stat().st_size / 1e6, 1),
        "first_scf": first_scf(steps),
        "steps": rows,
    }


def first_scf(steps: list[Step]) -> float:
    """Seconds from the start of the installation to the end of the first SCF."""
    return round(sum(step.seconds for step in steps[:2]), 1)


def main() -> int:
    """Read the arguments, and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environment")
    parser.add_argument("--record", action="store_true", help="write profiles/measured/MACHINE/install.json")
    args = parser.parse_args()
    # Processes of low priority that the commands have started may still write to their cache.
    with tempfile.TemporaryDirectory(prefix="trnqc-check-", ignore_cleanup_errors=True) as scratch:
        steps = check(args.wheel, args.python, Path(scratch))
    print(f"from the installation to the end of the first SCF: {first_scf(steps)} s")
    if args.record:
        measuring.write_part(measuring.record_file("install"), "wheel", [summary(args.wheel, steps)])
    failed = [step.name for step in steps if step.status]
    print(f"failed: {', '.join(failed)}" if failed else "all commands ran")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
