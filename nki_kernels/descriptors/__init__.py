"""One descriptor per kernel: everything that backends, tuning, measuring and the PyTorch operators need to know of it.

The kernel ``x`` stands with its NumPy reference in ``nki_kernels/x.py`` and is described as ``KERNEL`` in
``nki_kernels/descriptors/x.py``. Whatever works on kernels asks `kernels` for them, so that a new kernel is these two
files and its tests.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from nki_kernels.descriptors.descriptor import NkiKernel

__all__ = ["NkiKernel", "kernels"]


@functools.cache
def kernels() -> dict[str, NkiKernel]:
    """All kernels by name, in order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {module.KERNEL.name: module.KERNEL for module in modules if hasattr(module, "KERNEL")}
