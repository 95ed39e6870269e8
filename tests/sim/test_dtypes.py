import copy
import dataclasses
import pickle

import numpy as np
import pytest

from trnqc.sim import NkiValidationError
from trnqc.sim.memory import dtypes
from trnqc.sim.nki import language as nl


@dataclasses.dataclass
class Configuration:
    dtype: object


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
def test_a_format_is_one_object(dtype):
    copies = copy.copy(dtype), copy.deepcopy(dtype), pickle.loads(pickle.dumps(dtype))
    assert all(c is dtype for c in copies)
    assert dataclasses.asdict(Configuration(dtype))["dtype"] is dtype
    assert dtypes.as_dtype(dtype.name) is dtype


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if d.kind != "packed"], ids=str)
def test_numpy_takes_a_format_for_its_storage(dtype):
    assert np.zeros(3, dtype=dtype).dtype == dtype.numpy


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.complex64, "float64", object()])
def test_there_is_nothing_wider_than_32_bits(dtype):
    with pytest.raises(NkiValidationError, match="dtype must be one of bool_, int8"):
        dtypes.as_dtype(dtype)


def test_a_format_equals_its_name_only():
    assert nl.float32 == "float32" and nl.float32 != "float16" and nl.float32 != nl.tfloat32
