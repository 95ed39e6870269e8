"""Running one or a few instructions on arrays: inputs are loaded to SBUF tiles, outputs are stored from SBUF tiles."""

import os
from unittest import mock

import numpy as np

from trnqc.sim import jit, simulate
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


def on_tiles(body, inputs, outputs, target="trn2"):
    """Outputs of ``body(**tiles)`` as arrays.

    inputs: arrays by name; one named "psum:..." is passed as a PSUM tile. outputs: (shape, dtype) by name;
    an output named like an input starts from that input.
    """

    @jit
    def kernel(*arrays):
        tiles = {}
        for name, array in zip(inputs, arrays):
            tile = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=array)
            if name.startswith("psum:"):
                bank = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.psum)
                nisa.tensor_copy(dst=bank, src=tile)
                tile = bank
            tiles[name.removeprefix("psum:")] = tile
        for name, (shape, dtype) in outputs.items():
            if name not in tiles:
                tiles[name] = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
        body(**tiles)
        results = []
        for name, (shape, _) in outputs.items():
            result = nl.ndarray(shape, dtype=tiles[name].dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=result, src=tiles[name])
            results.append(result)
        return tuple(results)

    with mock.patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE=target):
        out = simulate(kernel)(*inputs.values())
    out = out if isinstance(out, tuple) else (out,)
    return out[0] if len(out) == 1 else out


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
