"""Descriptors of kernels: everything that backends, tuning, measurements and PyTorch operators need of a kernel.

The kernel ``x`` and its NumPy reference are defined in ``nki_kernels/x.py``, and its descriptor ``KERNEL`` in
``nki_kernels/descriptors/x.py``. All code that uses kernels gets them from `kernels`, so that a new kernel consists of
these two files and its tests.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from nki_kernels.descriptors.descriptor import NkiKernel

__all__ = ["NkiKernel", "kernels"]


@functools.cache
def kernels() -> dict[str, NkiKernel]:
    """All kernels by name, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return {module.KERNEL.name: module.KERNEL for module in modules if hasattr(module, "KERNEL")}
