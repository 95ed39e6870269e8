"""A GPU that only builds: it stands in for a device where kernels are compiled ahead of the first use.

`CudaDevice.build` takes what is compiled here from the cache. The stack and the registers of a kernel, on which the
choice of its form depends, are read from its cubin, since only a driver could load it.
"""

from __future__ import annotations

import re
from pathlib import Path

from trnqc.errors import InputError
from trnqc.jit import gpu
from trnqc.jit.cubins import cubin_of, needs
from trnqc.jit.device import MOST_LANES, BuiltKernel
from trnqc.jit.nvcc import PtxasReport
from trnqc.jit.occupancy import MULTIPROCESSORS, resident_warps
from trnqc.jit.recipe import Recipe


class CubinBuilder:
    """Builds kernels for GPUs of one architecture, without a GPU.

    Parameters
    ----------
    arch : str
        The architecture, such as ``sm_90``.
    bindings : Bindings, optional
        The modules through which NVRTC is called, by default those of cuda-core.

    Attributes
    ----------
    compiled : list of Path
        The cubins that were not in the cache.

    Raises
    ------
    InputError
        If `arch` is no architecture.
    BackendUnavailable
        If cuda-core or the library of NVRTC is missing, or if this NVRTC does not compile for `arch`.
    """

    def __init__(self, arch: str, bindings: gpu.Bindings | None = None) -> None:
        if not re.fullmatch(r"sm_\d{2,3}", arch):
            raise InputError(f"expected an architecture of GPUs, such as sm_80 or sm_90; found {arch!r}")
        self._modules = gpu.bindings() if bindings is None else bindings
        self.name, self.arch, self.most_lanes = f"a GPU of {arch}", arch, MOST_LANES
        self.compiled: list[Path] = []
        self.nvrtc = gpu.nvrtc_version(self._modules)
        gpu.require_arch(self.name, arch, self._modules)

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        """Compile the only function of a recipe as `CudaDevice.build` does. What it returns cannot be launched."""
        (signature,) = recipe.signatures
        path, new = cubin_of(recipe, self.arch, lanes, accumulate, min_blocks, self._modules)
        if new:
            self.compiled.append(path)
        found = needs(path.read_bytes())
        kernel = PtxasReport(signature.name, found.registers, found.local, 0, 0, found.shared)
        warps = resident_warps(kernel, lanes, self.arch) if self.arch in MULTIPROCESSORS else 0
        return BuiltKernel(signature, lanes, path, found.local, warps=warps)
