"""Stand-ins for packages that the library's tests import and that public indexes lack.

``neuron_dtypes`` is served from ml_dtypes with the few functions that the tests call. Cloud clients and the like are
imported by the tests' infrastructure but play no part in running a kernel: their names resolve to empty classes.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

UNUSED = (
    "allpairspy",
    "aws_embedded_metrics",
    "boto3",
    "botocore",
    "fabric2",
    "invoke",
    "neuronxcc",
    "paramiko",
    "plotext",
)
UNUSED_INSIDE = ("test.utils.test_orchestrator", "test.utils.host_management")


class _Unused(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: object = None, target: object = None):
        if name.split(".")[0] in UNUSED or name in UNUSED_INSIDE:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module: Any = ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = lambda name: type(name, (), {}) if not name.startswith("__") else _missing(name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        pass


def _missing(name: str):
    raise AttributeError(name)


def static_cast(array: np.ndarray, dtype: Any) -> np.ndarray:
    """``array`` in ``dtype``, an NKI or NumPy dtype or its name; floating point saturates to the target's range."""
    target = numpy_dtype(dtype)
    array = np.asarray(array)
    if target.itemsize == 1 and is_float_type(target):
        limit = float(ml_dtypes.finfo(target).max)
        array = np.clip(array.astype(np.float32), -limit, limit)
    return array.astype(target)


def numpy_dtype(dtype: Any) -> np.dtype:
    """The NumPy storage of an NKI dtype, or of anything that NumPy or ml_dtypes knows by name."""
    storage = getattr(dtype, "numpy", None)
    if isinstance(storage, np.dtype):
        return storage
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if isinstance(name, str) and hasattr(ml_dtypes, name):
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(dtype)


def is_float_type(dtype: Any) -> bool:
    dtype = numpy_dtype(dtype)
    return dtype.kind == "f" or hasattr(ml_dtypes, dtype.name)


def install() -> None:
    """Make the stand-ins importable in this process."""
    sys.meta_path.insert(0, _Unused())
    shim: Any = ModuleType("neuron_dtypes")
    shim.static_cast, shim.is_float_type = static_cast, is_float_type
    shim.sizeinbytes = lambda dtype: numpy_dtype(dtype).itemsize
    shim.finfo = lambda dtype: ml_dtypes.finfo(numpy_dtype(dtype))
    shim.bfloat16 = ml_dtypes.bfloat16
    shim.float8_e4m3fn_x4, shim.float8_e5m2_x4, shim.float4_e2m1fn_x4 = np.uint32, np.uint32, np.uint16
    sys.modules["neuron_dtypes"] = shim
