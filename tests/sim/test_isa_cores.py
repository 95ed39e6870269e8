import numpy as np
import pytest

from tests.sim.tiles import normal
from trnqc.errors import SimulationError
from trnqc.sim import jit, simulate
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


@jit
def exchange(x, engine, columns):
    """out[r] = what core r got from the other core; each core sends its own half of x's rows."""
    me, rows = nl.program_id(0), x.shape[0] // 2
    mine = nl.load(x[me * rows : (me + 1) * rows, 0:columns])
    theirs = nl.ndarray(mine.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.sendrecv(mine, theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=3, dma_engine=engine)
    out = nl.ndarray((2 * rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[me * rows : (me + 1) * rows, :], src=theirs)
    nisa.core_barrier(data=out, cores=(0, 1))
    return out


@pytest.mark.parametrize("engine", list(nisa.dma_engine))
@pytest.mark.parametrize("rows", [1, 37])
def test_cores_swap_their_halves(rows, engine):
    x = normal(2 * rows, 9)
    np.testing.assert_array_equal(simulate(exchange[2])(x, engine, 9), np.concatenate([x[rows:], x[:rows]]))


def test_one_core_has_nobody_to_send_to():
    with pytest.raises(SimulationError, match=r"sendrecv needs a launch on two cores"):
        simulate(exchange)(normal(4, 3), nisa.dma_engine.dma, 3)


def test_gpsimd_dma_is_for_short_rows():
    with pytest.raises(SimulationError, match="at most 256 elements per partition, got 257"):
        simulate(exchange[2])(normal(4, 300), nisa.dma_engine.gpsimd_dma, 257)
