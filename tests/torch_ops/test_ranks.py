"""Ranks as processes over gloo: digits of the command line, J and K, and failures that end a job."""

from __future__ import annotations

import json
import os
import re
import signal
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.torch_ops.forked import Rank
from tests.torch_ops.test_distributed import free_port
from trnqc.eri.cuda.builder import _share
from trnqc.errors import BackendUnavailable, InputError
from trnqc.mp2.job import Job
from trnqc.mp2.reference.molecule import load_geometry
from trnqc.mp2.run import run
from trnqc.ranks.transport import started

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("mp2", "water", "--basis", "6-31g", "--auxbasis", "weigend", "--backend", "cpu", "--threads", "1")


class Started:
    """Ranks of one program; what they have written is read at the end."""

    def __init__(self, tmp_path, text, size, arguments, on_a_machine=None):
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text))
        common = os.environ | {
            "PYTHONPATH": str(ROOT),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(on_a_machine or size),
            "OMP_NUM_THREADS": "1",
        }
        words = [str(x) for x in arguments]
        self.ranks = [Rank(path, words, common | {"RANK": str(rank)}) for rank in range(size)]

    def ended(self, ranks=None, seconds=120.0):
        """(status, output, errors) of the ranks; those that are left are killed."""
        until = time.monotonic() + seconds
        try:
            chosen = self.ranks if ranks is None else [self.ranks[rank] for rank in ranks]
            return [rank.ended(until - time.monotonic()) for rank in chosen]
        finally:
            for rank in self.ranks:
                rank.kill()


COMMAND = """
    import sys
    from trnqc.cli import main
    sys.exit(main(sys.argv[1:]))
"""
DYING = """
    import os, signal, sys
    import trnqc.mp2.pairs.ranks as room
    from trnqc.cli import main
    if os.environ["RANK"] == "1":
        room.block_energies = lambda *a, **k: os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
"""
DYING_IN_AN_SCF = """
    import os, signal, sys
    import trnqc.xc.semilocal as room
    from trnqc.cli import main
    if os.environ["RANK"] == "1":
        room.semilocal = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(main(sys.argv[1:]))
"""
FAILING = """
    import os, sys, time
    from trnqc.errors import InputError
    from trnqc.ranks.transport import started

    try:
        with started(timeout=100) as ranks:
            ranks.at_first(lambda: None)
            if ranks.rank == 0:
                time.sleep(0.1)  # the others have just looked whether somebody has failed
                raise InputError("wrong from the start")
            time.sleep(60)
    except InputError as error:
        print("error:", error, file=sys.stderr, flush=True)
        os._exit(2)
"""
STOPPING = """
    import os, signal
    import numpy as np
    from trnqc.ranks.transport import started

    with started(timeout=100) as ranks:
        ranks.at_first(lambda: None)
        if ranks.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        # Shortened where the ranks have met: starting may take long.
        ranks._watch.silence = 2.0
        ranks.sum(np.zeros(1))
"""
TALK = """
    import sys
    import numpy as np
    from pyscf import gto
    from trnqc.eri.api import get_jk
    from trnqc.eri.jk.builder import JKBuilder
    from trnqc.ranks.transport import started

    with started(timeout=100) as ranks:
        local = int(sys.argv[1])
        assert ranks.neighbours == local and ranks.size == 3
        assert (ranks._messages is not None) == (local == 3)
        found = ranks.at_first(lambda: {"rank": ranks.rank, "array": np.arange(5.0)})
        assert found["rank"] == 0 and found["array"].sum() == 10
        for shape in ((0,), (1,), (2, 5)):
            terms = [np.random.default_rng(k).normal(size=shape) for k in range(3)]
            np.testing.assert_array_equal(ranks.sum(terms[ranks.rank]), (terms[0] + terms[1]) + terms[2])
        after, before = (ranks.rank + 1) % 3, (ranks.rank - 1) % 3
        mine = np.full((2, 3), float(ranks.rank))
        there, empty = np.zeros((2, 3)), np.zeros(0)
        ranks.exchange([(after, mine), (after, empty), (after, mine[1])],
                       [(before, there), (before, empty), (before, there[0])]).wait()
        assert (there == before).all()
        numbers = [ranks.next_of("tasks") for _ in range(4)]
        taken = np.zeros(12, int)
        taken[numbers] = 1
        assert (ranks.sum(taken) == 1).all()

        # s functions alone: one kernel, and many pairs to share out. The first rank compiles it for all.
        mol = gto.M(atom=[("H", (n % 2 * 0.7, n // 2 * 1.5, 0.1 * n)) for n in range(8)], basis="6-31g", verbose=0)
        dm = np.random.default_rng(0).normal(size=(2, mol.nao, mol.nao))
        ranks.at_first(lambda: JKBuilder(mol).build() and None)
        alone = get_jk(mol, dm, 0, threads=1)
        for schedule in ("static", "dynamic"):
            for one, other in zip(alone, get_jk(mol, dm, 0, threads=1, ranks=ranks, schedule=schedule)):
                np.testing.assert_array_equal(one, other)
    try:
        with started():
            pass
    except ValueError as error:
        assert "once in a process" in str(error)
        print("rank done")
"""


@pytest.mark.parametrize("on_a_machine", [3, 1])
def test_what_ranks_say_to_one_another_and_j_and_k_of_three(tmp_path, on_a_machine):
    ended = Started(tmp_path, TALK, 3, [on_a_machine], on_a_machine).ended()
    assert [(status, out) for status, out, _ in ended] == [(0, "rank done\n")] * 3, ended


@pytest.mark.parametrize("size, checkpoint", [pytest.param(2, False, marks=pytest.mark.slow), (3, True)])
def test_the_command_has_the_digits_of_one_process(tmp_path, size, checkpoint):
    more = ["--checkpoint", tmp_path / "kept", "--schedule", "dynamic"] if checkpoint else []
    ended = Started(tmp_path, COMMAND, size, [*SMALL, "--json", tmp_path / "r.json", *more]).ended()
    assert [status for status, _, _ in ended] == [0] * size, ended
    assert "E(" in ended[0][1] or "MP2" in ended[0][1]
    assert all(out == err == "" for _, out, err in ended[1:])
    record = json.loads((tmp_path / "r.json").read_text())
    alone = run(Job(load_geometry("water"), "6-31g", "weigend", backend="cpu", threads=1))
    assert record["energies"]["e_tot"] == alone.e_tot
    assert record["pairs"] == json.loads(alone.to_json())["pairs"]
    assert record["system"]["scf_ran_on"] == f"{alone.system.scf_ran_on}, 1 thread on each of {size} ranks"
    assert f"on {size} ranks" in record["run"]["ran_on"]
    if checkpoint:
        again = run(Job(load_geometry("water"), "6-31g", "weigend", backend="cpu", threads=1, checkpoint=more[1]))
        assert json.loads(again.to_json())["pairs"] == record["pairs"]


def test_a_gradient_on_ranks_has_the_digits_of_one_process(tmp_path):
    gradients = []
    for size in (1, 2):
        path = tmp_path / f"{size}.json"
        ended = Started(tmp_path, COMMAND, size, [*SMALL, "--gradient", "-q", "--json", path]).ended()
        assert [status for status, _, _ in ended] == [0] * size, ended
        gradients.append(json.loads(path.read_text())["gradient"])
    assert gradients[0] == gradients[1]


def test_several_energies_on_ranks_have_the_digits_of_one_process(tmp_path):
    """Ranks deal out blocks of the same names for each of the five energies of an interaction."""
    frame = "2\n\nHe 0 0 0\nHe 0 0 {}\n"
    (tmp_path / "two.xyz").write_text(frame.format(2.5) + frame.format(3.0))
    options = ["--counterpoise", "1/2", "--schedule", "dynamic", "--checkpoint"]
    records = []
    for size in (1, 2):
        path = tmp_path / f"{size}.json"
        words = [
            "mp2",
            tmp_path / "two.xyz",
            "--basis",
            "6-31g",
            "--backend",
            "cpu",
            "--threads",
            "1",
            *options,
            tmp_path / f"kept-{size}",
            "-q",
            "--json",
            path,
        ]
        ended = Started(tmp_path, COMMAND, size, words).ended()
        assert [status for status, _, _ in ended] == [0] * size, ended
        frames = json.loads(path.read_text())
        assert all(one.pop("timings") for one in frames)
        records.append(frames)
    assert len(records[0]) == 2
    assert records[0] == records[1]


def test_a_rank_that_dies_ends_the_job(tmp_path):
    status, out, err = Started(tmp_path, DYING, 2, ["SIGKILL", *SMALL]).ended([0])[0]
    assert status not in (0, -signal.SIGKILL) and out == ""
    # A rank says where it is once a second: the last that was heard of it may be the stage before.
    assert err.count("trnqc: error: ") == 1 and re.search(r"rank 1 \(at: [a-z]+\)", err) and "start" in err, err


SCF = ("--xc", "pbe0", "--basis", "sto-3g", "--auxbasis", "weigend", "--grid", "1", "--threads", "1")
FRAME = "3\n\nO 0 0 0.117\nH 0 {0} -0.470\nH 0 -0.757 -0.470\n"


def test_an_scf_command_has_the_numbers_of_one_process(tmp_path):
    """Two frames with gradients; rank 0 alone prints and writes."""
    (tmp_path / "two.xyz").write_text(FRAME.format(0.757) + FRAME.format(0.8))
    words = ["scf", tmp_path / "two.xyz", *SCF, "--gradient", "--conv-tol", "1e-11", "--json"]
    results = []
    for size in (1, 2):
        ended = Started(tmp_path, COMMAND, size, [*words, tmp_path / f"{size}.json"]).ended()
        assert [status for status, _, _ in ended] == [0] * size, ended
        assert "PBE0/sto-3g, frames" in ended[0][1]
        assert all(out == err == "" for _, out, err in ended[1:])
        results.append(json.loads((tmp_path / f"{size}.json").read_text()))
    for alone, shared in zip(*results):
        assert shared["e_tot"] == pytest.approx(alone["e_tot"], abs=1e-10)
        assert np.array(shared["gradient"]) == pytest.approx(np.array(alone["gradient"]), abs=1e-8)
        assert (alone["ranks"], alone["shared"], shared["ranks"]) == (1, [], 2)
        assert {"fitted J and K", "exchange and correlation"} <= set(shared["shared"])
        assert "1 thread on each of 2 ranks" in shared["ran_on"]
    assert results[0][0]["e_tot"] != results[0][1]["e_tot"]


def test_an_scf_that_fails_on_rank_0_ends_all_ranks_with_one_message(tmp_path):
    ended = Started(tmp_path, COMMAND, 2, ["scf", "water", *SCF, "--max-cycle", "1"]).ended()
    assert ended[0][0] == 2 and ended[1][0], ended
    assert "trnqc: error: the SCF has not converged within 1 cycles" in ended[0][2]
    assert [err.count("error") for _, _, err in ended] == [1, 0], ended


def test_a_rank_that_dies_ends_an_scf(tmp_path):
    status, out, err = Started(tmp_path, DYING_IN_AN_SCF, 2, ["scf", "water", *SCF]).ended([0])[0]
    assert status not in (0, -signal.SIGKILL) and out == ""
    assert err.count("trnqc: error: ") == 1 and re.search(r"rank 1 \(at: [a-zA-Z ]+\)", err) and "start" in err, err


@pytest.mark.parametrize(
    "program, arguments",
    [(STOPPING, ()), pytest.param(DYING, ["SIGSTOP", *SMALL, "--rank-timeout", 12], marks=pytest.mark.slow)],
    ids=["alone", "of the command"],
)
def test_a_rank_that_stands_still_ends_the_job(tmp_path, program, arguments):
    status, out, err = Started(tmp_path, program, 2, arguments).ended([0])[0]
    assert status == 1 and out == ""
    assert re.search(r"rank 1 of 2 has not been heard of for \d+ s \(at: [a-z]+\)", err), err


def test_what_is_wrong_is_said_once(tmp_path):
    ended = Started(tmp_path, COMMAND, 2, ["mp2", "nonesuch"]).ended()
    assert all(status for status, _, _ in ended), ended
    assert [err.count("error") for _, _, err in ended] == [1, 0], ended


def test_rank_0_keeps_the_store_until_the_others_know_that_it_has_failed(tmp_path):
    ended = Started(tmp_path, FAILING, 2, []).ended()
    assert [status for status, _, _ in ended] == [2, 1], ended
    assert [err.count("error") for _, _, err in ended] == [1, 0], ended


@pytest.mark.parametrize(
    "gpus, ranks, shares", [(4, 2, ["ac", "bd"]), (2, 2, ["a", "b"]), (1, 3, ["a"] * 3), (3, 2, ["ac", "b"])]
)
def test_ranks_of_a_machine_share_its_gpus(gpus, ranks, shares):
    def share(rank):
        return "".join(_share("abcd"[:gpus], SimpleNamespace(rank=rank, neighbours=ranks)))

    assert [share(rank) for rank in range(ranks)] == shares
    assert share(ranks) == shares[0], "the first of another machine"


def test_without_a_launcher_or_a_device_it_says_so(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(InputError, match=r"WORLD_SIZE.* not set: start the ranks with torchrun"), started():
        pass
    with pytest.raises(InputError, match="cpu, cuda, neuron, xla"), started("tpu"):
        pass
    with pytest.raises(BackendUnavailable, match="ranks over neuron need torch_neuronx"), started("neuron"):
        pass
