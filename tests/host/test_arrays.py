"""Buffers for large results are lent while anything refers to them, and are reused afterwards."""

from __future__ import annotations

import gc
import pickle
import threading

import numpy as np
import pytest

from trnqc.errors import MemoryLimit
from trnqc.host import arrays
from trnqc.host.arrays import HUGE_PAGE, LARGE, LINE, Pool, empty, rounded, zeros

ROWS = 2 * LARGE // 8 + 3


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_a_block_comes_back_when_its_last_view_is_gone():
    pool = Pool()
    first = pool.empty((ROWS, 2), "float64")
    at = address(first)
    view = first[5:9].reshape(-1).view("float32")[3:]
    view[:] = 7
    del first
    other = pool.empty((ROWS, 2), "float64")
    assert address(other) != at and np.all(view == 7)
    del view
    assert pool.idle == rounded(ROWS * 16)
    assert address(pool.empty((ROWS, 2), "float64")) == at


def test_tensors_hold_their_block():
    torch = pytest.importorskip("torch")
    pool = Pool()
    array = pool.empty((ROWS,), "float64")
    array[:] = np.arange(ROWS)
    at = address(array)
    part = torch.from_numpy(array)[10:20].view(2, 5)
    del array
    gc.collect()
    assert pool.idle == 0
    again = pool.empty((ROWS,), "float64")
    again[:] = -1
    assert torch.equal(part.flatten(), torch.arange(10.0, 20, dtype=torch.float64))
    copied = pickle.loads(pickle.dumps(part))
    del part
    assert torch.equal(copied.flatten(), torch.arange(10.0, 20, dtype=torch.float64))
    assert address(pool.empty((ROWS,), "float64")) == at


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [0, 1, 3, LARGE // 8 - 1, LARGE // 8, LARGE // 8 + 1, ROWS])
def test_arrays_are_whole_aligned_and_writable(rows, dtype):
    array = Pool().empty((rows, 1), dtype)
    assert array.shape == (rows, 1) and array.dtype == dtype and array.flags.c_contiguous
    assert address(array) % LINE == 0 or not rows
    array[:] = 3
    assert array.sum(dtype="float64") == 3 * rows


def test_sizes_that_are_nearly_equal_share_a_block():
    for size in (LARGE, 3 * HUGE_PAGE, 36 << 20, (1 << 30) + 1):
        assert size <= rounded(size) <= max(HUGE_PAGE, size) + max(HUGE_PAGE, size // 4)
        assert rounded(size) % HUGE_PAGE == 0
    assert rounded(36 << 20) == rounded((36 << 20) - 4096)


def test_idle_blocks_are_bounded_and_can_be_released():
    size = rounded(LARGE)
    pool = Pool(most_idle=3 * size)
    lent = [pool.empty((LARGE,), "uint8") for _ in range(8)]
    del lent
    assert pool.idle == 3 * size
    pool.release()
    assert pool.idle == 0
    keeps_nothing = Pool(most_idle=0)
    keeps_nothing.empty((LARGE,), "uint8")
    assert keeps_nothing.idle == 0


def test_freed_memory_goes_back_to_the_system():
    """Idle blocks are part of the memory of a job as long as the pool keeps them."""
    array = arrays.empty((1 << 25,), "uint8")
    array.fill(1)
    del array
    assert arrays.POOL.idle >= 1 << 25
    arrays.release_freed_memory()
    assert arrays.POOL.idle == 0


def test_threads_never_share_a_lent_block():
    pool, wrong = Pool(most_idle=4 * rounded(LARGE)), []

    def work(value: int) -> None:
        for _ in range(200):
            array = pool.empty((LARGE,), "uint8")
            array[:: LARGE // 64] = value
            if not np.all(array[:: LARGE // 64] == value):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and pool.idle <= 4 * rounded(LARGE)


def test_more_than_the_machine_has_is_refused_with_both_figures():
    with pytest.raises(MemoryLimit, match=r"needs [\d.]+ GiB; this machine has [\d.]+ GiB"):
        empty((1 << 40, 3), "float64")


def test_a_refusal_of_the_system_is_a_memory_limit(monkeypatch):
    monkeypatch.setattr("trnqc.host.memory.installed_memory", lambda: 1 << 62)
    with pytest.raises(MemoryLimit, match="cannot allocate"):
        Pool().empty((1 << 57,), "uint8")


@pytest.mark.parametrize("shape", [(3,), (5, 8), (1, 2, 3), (0, 4)])
def test_zeros_begin_at_a_cache_line(shape):
    array = zeros(shape)
    assert array.shape == shape and not array.any()
    assert array.ctypes.data % LINE == 0 and array.flags.c_contiguous
    assert zeros(4, np.int64).dtype == np.int64
