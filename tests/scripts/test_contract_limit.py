"""The benchmark of contractions within a limit on small arrays: all libraries give the same result."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cotengra")
pytest.importorskip("opt_einsum")

from scripts.contract.limit import CASES, Case, _case


def small():
    case = CASES["fitted ladder"]
    sizes = {"Q": 40, **dict.fromkeys("abef", 40), **dict.fromkeys("ij", 5)}
    return Case(case.text, sizes, case.alike, case.symmetric)


def test_operands_have_the_symmetry_that_is_told():
    x, y, t = small().operands()
    assert x is y
    np.testing.assert_array_equal(x, x.transpose(0, 2, 1))
    np.testing.assert_array_equal(t, t.transpose(1, 0, 3, 2))


def test_a_case_runs(capsys):
    record, contestants = _case("small ladder", small())
    assert {"limited", "unlimited", "limited, symmetric t", "limited, symmetric t, B"} <= set(contestants)
    assert set(contestants) == set(record["wall_cpu_s"]) == set(record["allocated_resident_bytes"])
    told = record["multiply_adds"]
    assert told["limited, symmetric t, B"] < told["limited, symmetric t"] < told["limited"]
    assert "beside the result" in capsys.readouterr().out
