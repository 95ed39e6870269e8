"""The pair style of LAMMPS: several processes give what ASE gives, and what cannot work is one clear error."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lammps", reason="needs LAMMPS")
pytest.importorskip("vesin", reason="needs vesin")
ase = pytest.importorskip("ase", reason="needs ASE")
ase_io = pytest.importorskip("ase.io")

from examples.md_lammps import plugin  # noqa: E402
from tests.mace.descriptions import CASES, description  # noqa: E402
from tests.mace.test_evaluate import PERIODIC  # noqa: E402
from trnqc.mace import Evaluator, prepare, save  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow
# A structure of two atoms, and a model for it; a test adds or changes lines.
SCRIPT = """
units metal
atom_style bond
newton on
region box block 0 9 0 9 0 9
create_box 2 box bond/types 1 extra/bond/per/atom 1 extra/special/per/atom 1
create_atoms 1 single 1 1 1
create_atoms 2 single 2 2 2
mass * 1
plugin load {folder}/trnqcmaceplugin.so
pair_style trnqc/mace {folder}
pair_coeff * * H O
run 0
"""


def run(*command: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": path}
    return subprocess.run([*map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("case", "ranks", "grid"),
    [("residual", 1, "* * *"), ("density", 2, "* * *"), ("three layers", 2, "1 1 2"), ("residual", 4, "1 1 4")],
)
def test_processes_give_what_ase_gives(case, ranks, grid, tmp_path):
    """A hot cluster in a large cell, so that atoms migrate, and two of four slices have no atoms."""
    rng, grid_points = np.random.default_rng(2), np.mgrid[:2, :3, :2].reshape(3, -1).T
    positions = 1.6 * grid_points + rng.uniform(-0.1, 0.1, (12, 3)) + [0.5, 0.5, 6.35]
    numbers = rng.permutation([1, 6, 8] * 4)
    system = ase.Atoms(numbers, positions, cell=[[5.0, 0, 0], [0.6, 6.0, 0], [0.3, 0.4, 16.0]], pbc=PERIODIC)
    ase_io.write(tmp_path / "atoms.xyz", system)
    save(description(**CASES[case]), tmp_path / "model.npz")
    options = ["--model", tmp_path / "model.npz", "--geometry", tmp_path / "atoms.xyz", "--temperature", 10000]
    options += ["--steps", 20, "--timestep", 0.5, "--ranks", ranks, "--grid", grid]
    done = run(sys.executable, "-m", "examples.md_lammps", *options)
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"(\w+) +(\S+)  \(largest (\S+)\)", done.stdout)
    assert [name for name, _, _ in lines] == ["energies", "virials", "forces", "atom_energies", "atom_virials"]
    for name, difference, largest in lines:
        # LAMMPS's constants of units differ in the eighth digit, so that trajectories drift apart.
        assert float(difference) < 2e-6 * float(largest), name
    migrated, empty = map(int, re.search(r"(\d+) to another process, (\d+) processes", done.stdout).groups())
    assert (migrated > 0) == (ranks > 1)
    assert empty == (2 if ranks == 4 else 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = prepare(Evaluator(description(), "float64"), tmp_path_factory.mktemp("prepared"))
    plugin(path)
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", ""),
        ("newton on", "newton off", "needs newton on"),
        ("units metal", "units real", "needs units metal"),
        ("* * H O", "* * H Cu", "the model does not have the element Cu"),
        ("* * H O", "* * H", "an element for each of the types of atoms"),
        ("{folder}\npair", "{folder}/nowhere\npair", "model.trnqc: cannot be read"),
        ("{folder}\npair", "{folder} threads 0\npair", "expected a positive number of threads, found 0"),
        ("run", "neigh_modify exclude type 1 2\nrun", "remove neigh_modify exclude"),
        ("run", "create_bonds single/bond 1 1 2\nbond_style zero\nbond_coeff 1\nrun", "set special_bonds lj/coul 1.0"),
        ("single 2 2 2", "single 1 1 1", "are at the same position"),
        # LAMMPS makes copies up to the cutoff distance of the model whatever is asked for.
        ("run", "comm_modify cutoff 1.0\nrun", ""),
    ],
)
def test_what_cannot_work_is_one_error(folder, old, new, message, tmp_path):
    assert old in SCRIPT
    (tmp_path / "in").write_text(SCRIPT.replace(old, new).format(folder=folder))
    done = run("mpiexec", "-n", 1, "lmp", "-in", tmp_path / "in", "-log", "none")
    assert (done.returncode != 0) == bool(message), done.stdout
    assert message in done.stdout + done.stderr
    assert len(re.findall(r"^ERROR", done.stdout, re.MULTILINE)) == bool(message)
