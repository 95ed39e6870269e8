"""Iterations that continue from a file: what is kept, and which files are refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from pyscf import gto, scf

from examples import df_rccsd, rccsd_ranks
from tests.contraction.thread_ranks import on_ranks
from trnqc.contraction import einsum_plan
from trnqc.contraction.ranks import checkpoint as room
from trnqc.contraction.ranks.checkpoint import IterationCheckpoint
from trnqc.errors import CheckpointError, InputError, NotConverged, StorageError
from trnqc.interfaces.continuing import Extrapolation, molecule_words, with_orbitals
from trnqc.ranks import ALONE

TEXT = """
space n = 3
index i j k : n
tensor A[n,n]
tensor x[n]
y[i] = A[i,j] * x[j]
"""
A = np.arange(9.0).reshape(3, 3) - 4


def kept_file(path):
    """A checkpoint of TEXT with the vector x after seven iterations."""
    checkpoint = IterationCheckpoint(path, {"molecule": "water"})
    checkpoint.begin(einsum_plan(TEXT), {"A": A})
    checkpoint.keep(x=np.ones(3), iteration=7)
    return path


def test_arrays_come_back_on_all_ranks(tmp_path):
    path = kept_file(tmp_path / "file.npz")

    def work(ranks):
        checkpoint = IterationCheckpoint(path, {"molecule": "water"}, ranks)
        checkpoint.begin(einsum_plan(TEXT, memory_limit=10_000), {"A": A * (1 + 1e-13)})
        checkpoint.keep(x=2 * checkpoint.arrays["x"])
        return checkpoint.arrays

    for arrays in on_ranks(2, work):
        assert arrays["iteration"] == 7
        np.testing.assert_array_equal(arrays["x"], np.ones(3))
    after = IterationCheckpoint(path, {"molecule": "water"}).arrays
    np.testing.assert_array_equal(after["x"], 2 * np.ones(3))
    assert after["iteration"] == 7  # Arrays that a call does not name stay.
    assert [p.name for p in tmp_path.iterdir()] == ["file.npz"]


def test_seconds_between_writes(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(room.time, "monotonic", lambda: now[0])
    checkpoint = IterationCheckpoint(tmp_path / "file.npz", {}, every=10)
    for now[0], expected in ((0.0, 0.0), (9.0, 0.0), (10.5, 10.5), (15.0, 10.5)):
        checkpoint.keep(at=now[0])
        assert IterationCheckpoint(tmp_path / "file.npz", {}).arrays["at"] == expected


@pytest.mark.parametrize(
    ("problem", "text", "a", "message"),
    [
        ({"molecule": "benzene"}, TEXT, A, "molecule is 'water' there and 'benzene' here"),
        (
            {"molecule": "water"},
            TEXT.replace("A[i,j]", "2 * A[i,j]"),
            A,
            "program is 'y.* there and '.*2 ",
        ),
        ({"molecule": "water"}, TEXT + "z = y[i] * A[i,i]", A, "program is in line 2 None there and 'z = "),
        ({"molecule": "water"}, TEXT.replace("= 3", "= 4"), np.zeros((4, 4)), r"shapes is .*\[3, 3\].*\[4, 4\]"),
        ({"molecule": "water"}, TEXT.replace("tensor A[n,n]", "tensor A[n,n] symmetric(0,1)"), A, "symmetry is"),
        ({"molecule": "water"}, TEXT, -A, "its operand A has other elements"),
        ({"molecule": "water"}, TEXT, A + 1e-6 * np.eye(3), "its operand A has other elements"),
    ],
)
def test_another_problem(tmp_path, problem, text, a, message):
    path = kept_file(tmp_path / "file.npz")
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="(?s)another problem: .*" + message + ".*(name another file|remove)"):
        IterationCheckpoint(path, problem).begin(einsum_plan(text), {"A": a})
    assert path.read_bytes() == before


@settings(max_examples=60, deadline=None)
@given(some.data())
def test_damage_is_an_error_or_changes_nothing(tmp_path_factory, data):
    """Bits of the file are flipped, or its end is missing. What can be read is what was written."""
    path = kept_file(tmp_path_factory.mktemp("damaged") / "file.npz")
    content = bytearray(path.read_bytes())
    if data.draw(some.booleans()):
        content = content[: data.draw(some.integers(0, len(content) - 1))]
    else:
        content[data.draw(some.integers(0, len(content) - 1))] ^= data.draw(some.integers(1, 255))
    path.write_bytes(bytes(content))
    try:
        arrays = IterationCheckpoint(path, {"molecule": "water"}).arrays
    except CheckpointError as error:
        assert f"{path}" in str(error) and "remove" in str(error)
    else:
        assert set(arrays) == {"x", "iteration"}
        assert arrays["iteration"] == 7 and (arrays["x"] == 1.0).all()


def test_what_else_is_refused(tmp_path, monkeypatch):
    with pytest.raises(StorageError, match="there is no directory"):
        IterationCheckpoint(tmp_path / "missing" / "file.npz", {})
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(CheckpointError, match="damaged, or no checkpoint"):
        IterationCheckpoint(tmp_path / "text.npz", {})
    np.savez(tmp_path / "other.npz", **{"problem.json": np.array(json.dumps({"format": 9}))})
    with pytest.raises(CheckpointError, match="of format 9; this version of trnqc reads format 1"):
        IterationCheckpoint(tmp_path / "other.npz", {})
    with pytest.raises(InputError, match=r"arrays of numbers.* found x of type object"):
        IterationCheckpoint(tmp_path / "new.npz", {}).keep(x=np.array([None]))
    path = kept_file(tmp_path / "file.npz")
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(room.os, "fsync", full)
    with pytest.raises(StorageError, match=r"file.npz: cannot be written: No space left on device"):
        IterationCheckpoint(path, {}).keep(x=np.zeros(3))
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("stop", [1, 4, 6, 7, 11])
def test_an_extrapolation_continues(stop):
    """Fixed-point iterations of a linear map, interrupted before and after the space of vectors is full."""
    rng = np.random.default_rng(0)
    matrix, b = 0.3 * rng.standard_normal((9, 9)) / 3, rng.standard_normal(9)

    def iterations(x, extrapolation, number):
        for _ in range(number):
            new = matrix @ x + b + 0.01 * np.sin(x)
            x = extrapolation.update(new, new - x)
        return x

    whole = iterations(np.zeros(9), Extrapolation(), 12)
    first = Extrapolation()
    x = iterations(np.zeros(9), first, stop)
    np.testing.assert_allclose(iterations(x, Extrapolation(first.arrays), 12 - stop), whole, rtol=0, atol=1e-10)
    assert len(first.arrays) == 2 * min(stop, 6)


def test_fitted_coupled_cluster_continues(tmp_path):
    """The lines of the interrupted iterations and those after them are the lines of all at once."""
    mol = gto.M(atom="H 0 0 0; F 0 0 0.917", basis="sto-3g", verbose=0)

    def lines(name, most):
        checkpoint = IterationCheckpoint(tmp_path / name, molecule_words(mol))
        # A second SCF would change signs: the checkpoint has the orbitals.
        cc = df_rccsd.dfccsd.RCCSD(with_orbitals(scf.RHF(mol), checkpoint))
        printed = []
        try:
            df_rccsd.solve(cc, 1e-10, most=most, progress=printed.append, checkpoint=checkpoint)
        except NotConverged:
            assert most < 60
        return [(int(line.split()[0]), float(line.split()[1])) for line in printed]

    whole, begun, rest = lines("whole.npz", 60), lines("stopped.npz", 3), lines("stopped.npz", 60)
    assert len(begun) == 3 < len(whole) and [n for n, _ in begun + rest] == [n for n, _ in whole]
    np.testing.assert_allclose([e for _, e in begun + rest], [e for _, e in whole], rtol=0, atol=1e-10)


def test_orbitals_with_other_signs_are_another_problem(tmp_path):
    mf = scf.RHF(gto.M(atom="H 0 0 0; F 0 0 0.917", basis="sto-3g", verbose=0)).run()
    rccsd_ranks.iterated(rccsd_ranks.integrals(mf), ALONE, checkpoint=IterationCheckpoint(tmp_path / "a.npz", {}))
    mf.mo_coeff[:, 2] *= -1
    with pytest.raises(CheckpointError, match=r"other elements.* take the same input and orbitals"):
        rccsd_ranks.iterated(rccsd_ranks.integrals(mf), ALONE, checkpoint=IterationCheckpoint(tmp_path / "a.npz", {}))


def test_operands_that_are_rounding_errors_may_differ(tmp_path):
    """Those of a Fock matrix between occupied and virtual orbitals change with the order of sums."""
    text = TEXT.replace("tensor x[n]", "tensor f[n]\ntensor x[n]").replace("* x[j]", "* x[j] + f[i]")
    path = tmp_path / "file.npz"
    first = IterationCheckpoint(path, {})
    first.begin(einsum_plan(text), {"A": A, "f": np.array([1e-13, 0, -2e-13])})
    first.keep(x=np.ones(3))
    IterationCheckpoint(path, {}).begin(einsum_plan(text), {"A": A, "f": np.array([0, 2e-13, 1e-13])})
    with pytest.raises(CheckpointError, match="operand f has other elements"):
        IterationCheckpoint(path, {}).begin(einsum_plan(text), {"A": A, "f": np.array([0, 2e-10, 1e-13])})
