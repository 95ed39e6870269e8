"""NVIDIA's own packages on the stand-in for the driver: arguments, streams, launch bounds, faults."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from scripts import ROOT
from scripts.device.driver import __main__ as stand_in
from trnqc.errors import BackendUnavailable

needs_packages = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None, reason="needs cuda-core, cuda-bindings and NVRTC"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scripts.device.driver", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_without_the_packages_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        BackendUnavailable, match=r"cuda.core, cuda.bindings cannot be imported: pip install 'trnqc\[cuda\]'"
    ):
        stand_in.main(["-c", "pass"])


@needs_packages
@pytest.mark.slow
def test_devices_meet_their_contract():
    done = run("-m", "pytest", "-q", "tests/jit/test_device.py")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "the CUDA bindings cannot be imported" not in done.stdout


WRONG = """
import numpy as np
from tests.jit.test_emulator import OUT, PLACE, inputs, kernel
from trnqc.gen import const
from trnqc.gen import statements as st
from trnqc.jit import Recipe
from trnqc.jit.device import cuda_devices

(device, _), given = cuda_devices(), inputs(4, 2, place={place})
built = device.build(Recipe.of(kernel(st.store(OUT[PLACE], const(1.0)))), 4)
there = {{name: device.upload(a) if isinstance(a, np.ndarray) else a for name, a in given.items()}}
device.launch(built if {lanes} == 4 else type(built)(built.signature, {lanes}, built.handle), 2, there)
print(device.download(there["out"])[:2])
"""


@needs_packages
@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "lanes", "words"),
    [
        (1, 4, "[0. 1.]"),
        (10, 4, "SimulationError: tried: write of 8 bytes outside of all arrays"),
        (0, 8, "it did not have appropriate resources"),
    ],
)
def test_what_a_gpu_would_do_wrong_is_an_error(place, lanes, words):
    done = run("-c", WRONG.format(place=place, lanes=lanes))
    assert words in done.stdout + done.stderr
    assert (done.returncode == 0) == (words.startswith("["))
