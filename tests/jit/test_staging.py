"""Copies through page-locked memory: sizes around those of its buffers, memory that cannot be locked, and counts."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from trnqc.errors import MemoryLimit
from trnqc.jit import staging
from trnqc.jit.simulated_device import SimulatedDevice

BYTES = 1024


@pytest.fixture(autouse=True)
def small_buffers(monkeypatch):
    monkeypatch.setattr(staging, "BUFFER_BYTES", BYTES)


def recorded(**options) -> RecordedDevice:
    return RecordedDevice(RecordingDriver(**options), lanes=4)


class Late(SimulatedDevice):
    """A device whose copies take place when the host waits for them, and not before."""

    def __init__(self) -> None:
        super().__init__()
        copier = self.staging._copier
        queued: dict[int, list] = {0: [], 1: []}
        to_device, to_host = copier.to_device, copier.to_host
        copier.to_device = lambda buffer, *a: queued[buffer].append((to_device, buffer, *a))
        copier.to_host = lambda buffer, *a: queued[buffer].append((to_host, buffer, *a))

        def wait(buffer: int) -> None:
            for copy, *arguments in queued[buffer]:
                copy(*arguments)
            queued[buffer].clear()

        copier.wait = wait


@pytest.mark.parametrize("make", [SimulatedDevice, Late, recorded])
@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 256, 257, 1000], ids=lambda n: f"{n} numbers")
def test_arrays_of_all_sizes_arrive(make, size):
    device, x = make(), np.random.default_rng(size).normal(size=size)
    arrays = [x, np.arange(3), x[::-1], x.astype(np.float32)]
    memories = device.upload_all(arrays)
    for found in (device.download_all(memories), [device.download(memory) for memory in memories]):
        assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(arrays, found, strict=True))
    device.write(memories[1], np.array([7, 8]))
    assert list(device.download(memories[1])) == [7, 8, 2]


def test_small_arrays_share_a_buffer_and_one_wait():
    device = recorded()
    device.upload_all([np.zeros(4)] * 4)
    calls = [call.name for call in device.driver.calls if "Memcpy" in call.name or "Synchronize" in call.name]
    assert calls == ["cuMemcpyHtoDAsync"] * 4 + ["cuStreamSynchronize"]
    assert device.staging.locked
    counts = device.staging.counts
    assert (counts.uploads, counts.uploaded_bytes, counts.downloads) == (4, 128, 0)


def test_memory_is_locked_once_and_freed_with_the_device():
    device = recorded()
    driver = device.driver
    for _ in range(3):
        device.download(device.upload(np.zeros(400)))
    assert driver.count("cuMemHostAlloc") == staging.BUFFERS == len(driver._host)
    del device
    gc.collect()
    assert not driver._host


def test_memory_that_cannot_be_locked_is_one_warning():
    device = recorded(page_locks=False)
    with pytest.warns(
        RuntimeWarning, match=r"recorded 0: .* page-locked .*cuMemHostAlloc returned .*ulimit -l"
    ) as seen:
        x = np.arange(1000.0)
        memory = device.upload(x)
        assert np.array_equal(device.download(memory), x)
    assert len(seen) == 1 and device.staging.locked is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        device.download(memory)


@pytest.mark.parametrize("make", [lambda: SimulatedDevice(memory=100), lambda: recorded(memory=100)])
def test_none_of_several_arrays_stays_if_one_does_not_fit(make):
    device = make()
    before = device.free_memory()
    with pytest.raises(MemoryLimit):
        device.upload_all([np.zeros(4), np.zeros(40)])
    assert device.free_memory() == before
