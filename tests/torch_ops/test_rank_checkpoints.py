"""Coupled cluster on ranks that are killed and started again."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")

from tests.torch_ops.test_ranks import Started

# argv: the checkpoint; "none", or how and where ranks kill themselves.
PROGRAM = """
    import os, signal, sys
    from examples import rccsd_ranks
    from trnqc.contraction.ranks import checkpoint

    path, how = sys.argv[1:]
    rank, keep, sync = os.environ["RANK"], checkpoint.IterationCheckpoint.keep, os.fsync
    writes = []

    def kept(self, **arrays):
        keep(self, **arrays)
        if arrays.get("iteration") == 4 and how in ("all", rank):
            os.kill(os.getpid(), signal.SIGKILL)

    def synchronised(descriptor):
        writes.append(1)
        if len(writes) == 6 and how == "writing":  # orbitals, four iterations, and this one
            os.kill(os.getpid(), signal.SIGKILL)
        sync(descriptor)

    checkpoint.IterationCheckpoint.keep, os.fsync = kept, synchronised
    sys.argv = ["rccsd_ranks", "water", "--basis", "sto-3g", "--checkpoint", path]
    rccsd_ranks.start()
"""


def run(tmp_path, name, how, size):
    """(status, error, energies by iteration) of rank 0."""
    folder = tmp_path / f"{how}-{size}"
    folder.mkdir()
    status, out, err = Started(folder, PROGRAM, size, [tmp_path / name, how]).ended()[0]
    found = re.findall(r"iteration +(\d+) +E = (\S+)", out)
    return status, err, {int(number): float(energy) for number, energy in found}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The energies by iteration of a job that nothing interrupts."""
    status, err, energies = run(tmp_path_factory.mktemp("whole"), "whole.npz", "none", 2)
    assert status == 0, err
    return energies


@pytest.mark.parametrize(("how", "size"), [("1", 3), ("all", 2), ("writing", 1)])
def test_killed_jobs_continue(how, size, whole, tmp_path):
    """A rank, all ranks, or rank 0 while it writes is killed; another number of ranks may continue."""
    status, _, begun = run(tmp_path, "file.npz", how, 2)
    assert status != 0 and len(begun) < len(whole)
    status, err, rest = run(tmp_path, "file.npz", "none", size)
    assert status == 0, err
    # Iteration 4 was kept, unless the kill of another rank ended rank 0 while it wrote it.
    assert min(rest) in (4, 5) and sorted(rest) == list(range(min(rest), max(whole) + 1))
    for number, energy in rest.items():
        assert abs(energy - whole[number]) < 1.1e-10, number


def test_a_damaged_file_ends_all_ranks(tmp_path):
    path = tmp_path / "file.npz"
    path.write_bytes(b"no archive")
    ended = Started(tmp_path, PROGRAM, 2, [path, "none"]).ended()
    assert all(status != 0 for status, _, _ in ended)
    assert "damaged, or no checkpoint" in ended[0][2]
