"""Distributed contractions on processes with gloo: the same numbers, and the planned number of elements received."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tests.torch_ops.forked import Rank  # noqa: E402
from trnqc.contraction import einsum_plan  # noqa: E402
from trnqc.contraction.distribute.placement import COPY, FIRST  # noqa: E402
from trnqc.contraction.ranks.distributed import dtensor_placements, run_distributed  # noqa: E402
from trnqc.errors import InputError, UnsupportedError  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
    import datetime, os, sys
    import numpy as np, torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from tests.contraction.test_loops import by_einsum, operands_of
    from tests.contraction.workloads import a3a, four_factors, four_index, ladder, leaf, indices
    from trnqc.contraction.distribute.distribution import distribute
    from trnqc.contraction.tree import Tree, TreeNode
    from trnqc.contraction.ranks.distributed import run_distributed

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    world = dist.get_world_size()
"""

RESULTS = """
    short = Tree(TreeNode("R", ("i",), (leaf("x", "iik", 0), leaf("y", "k", 1))), indices(I=("i", 3), K=("k", 5)))
    for grid in ((2, 2), (4,)):
        mesh = init_device_mesh("cpu", grid)
        for tree in (four_factors(5, 3), a3a(5, 3, 10), four_index(6), ladder(3, 5, 7), short):
            for move_cost, symbols in ((0.01, "*1"), (10.0, "*1"), (1e4, "*1"), (1.0, "*")):
                plan = distribute(tree, grid, move_cost, symbols)
                arrays = operands_of(tree)
                operands = {n: x if callable(x) else torch.from_numpy(x) for n, x in arrays.items()}
                found = run_distributed(plan, operands, mesh)
                received = torch.tensor(found.received)
                dist.all_reduce(received)
                assert int(received) == plan.volume, (grid, move_cost, int(received), plan.volume)
                np.testing.assert_allclose(found.tensor.full_tensor().numpy(), by_einsum(tree, arrays), rtol=1e-11)
    dist.destroy_process_group()
    print("rank done")
"""

PLANS = """
    from trnqc.contraction import einsum_plan

    mesh = init_device_mesh("cpu", (2, 1))
    rng = np.random.default_rng(4)
    A, B, C = (torch.from_numpy(rng.standard_normal(shape)) for shape in ((5, 7), (7, 3), (3, 6)))
    expected = torch.einsum("ab,bc,cd->ad", A, B, C)
    for grid in ((2, 1), ()):
        plan = einsum_plan("ab,bc,cd->ad", A, B, C, grid=grid)
        for operands in ([A, B, C], {"A": A, "B": B, "C": C}):
            found = run_distributed(plan, operands, mesh)
            torch.testing.assert_close(found.tensor.full_tensor(), expected)
    text = "space o = 5\\nindex i j k : o\\ntensor A[o,o]\\nR[i,k] = 1/2 * A[i,j] * A[j,k]"
    square = A[:, :5].contiguous()
    found = run_distributed(einsum_plan(text), {"A": square}, mesh)
    torch.testing.assert_close(found.tensor.full_tensor(), square @ square / 2)
    dist.destroy_process_group()
    print("rank done")
"""

LOST = """
    mesh = init_device_mesh("cpu", (2,))
    tree = four_factors(6, 4)
    dist.barrier()
    if dist.get_rank() == 1:
        os._exit(7)
    operands = {n: torch.from_numpy(x) for n, x in operands_of(tree).items()}
    # Moves are cheap, so there are some.
    run_distributed(distribute(tree, (2,), 1e-3), operands, mesh)
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def written(tmp_path, text):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM) + textwrap.dedent(text))
    return path


@pytest.mark.slow
def test_four_ranks_give_the_same_numbers_and_move_what_was_planned(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=4", f"--master-port={free_port()}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    completed = subprocess.run(
        [*command, str(written(tmp_path, RESULTS))], env=environment, capture_output=True, text=True, timeout=300
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    assert completed.stdout.count("rank done") == 4


@pytest.mark.slow
def test_a_rank_that_dies_is_an_error_and_no_hang(tmp_path):
    path = written(tmp_path, LOST)
    common = os.environ | {
        "PYTHONPATH": str(ROOT),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(path)], env=common | {"RANK": str(rank)}, stderr=subprocess.PIPE, text=True
        )
        for rank in range(2)
    ]
    try:
        messages = [rank.communicate(timeout=200)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert ranks[1].returncode == 7
    assert ranks[0].returncode == 1 and "CommunicationError: rank 0 of 2 lost another rank in step" in messages[0]


def test_placements_in_the_terms_of_dtensor():
    from torch.distributed.tensor import Replicate, Shard

    assert dtensor_placements(("b", COPY), ("a", "b")) == [Shard(1), Replicate()]
    with pytest.raises(InputError, match="one rank of a line"):
        dtensor_placements((FIRST, "a"), ("a",))


def test_plans_of_einsum_run_on_ranks(tmp_path):
    """What einsum_plan yields is what run_distributed takes, with its grid or with that of the mesh."""
    common = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [Rank(written(tmp_path, PLANS), [], common | {"RANK": str(rank)}) for rank in range(2)]
    try:
        ended = [rank.ended(120.0) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [(status, out) for status, out, _ in ended] == [(0, "rank done\n")] * 2, ended


class Mesh:
    """The shape is all that is looked at before anything is sent."""

    def __init__(self, *shape):
        self.shape = shape


def test_plans_that_cannot_be_distributed_say_why():
    A = torch.ones(5, 5)
    plan = einsum_plan("ab,bc,cd->ad", A, A, A, grid=(2, 2))
    with pytest.raises(InputError, match=r"for a grid \(2, 2\); the mesh has the shape \(4,\)"):
        run_distributed(plan, [A, A, A], Mesh(4))
    with pytest.raises(InputError, match="takes 3 operands: A, B, C; found 2"):
        run_distributed(plan, [A, A], Mesh(2, 2))
    with pytest.raises(InputError, match="operand C is a tensor of shape"):
        run_distributed(plan, {"A": A, "B": A}, Mesh(2, 2))
    with pytest.raises(InputError, match="come by name; found list"):
        run_distributed(plan.distributions[0], [A, A, A], Mesh(2, 2))
    text = "space o = 5\nindex i j k : o\ntensor A[o,o]\nR[i,k] = A[i,j] * A[j,k] + A[k,i]"
    with pytest.raises(UnsupportedError, match="this plan has 2 products"):
        run_distributed(einsum_plan(text), {"A": A}, Mesh(2, 2))
    with pytest.raises(UnsupportedError, match="keep no memory limit"):
        run_distributed(einsum_plan("ab,bc,cd->ad", A, A, A, memory_limit=64), [A, A, A], Mesh(2, 2))
