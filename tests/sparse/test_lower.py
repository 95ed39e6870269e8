"""Every nest computes its network: random nests through the interpreter, which checks all indices."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.sparse.nests import arrays, interpreted, nests, packed
from tests.sparse.oracle import reference
from trnqc.gen import statements as st
from trnqc.sparse.lower import ahead
from trnqc.sparse.lower.program import nest_program
from trnqc.sparse.network.network import network
from trnqc.sparse.run.kernel import compiled
from trnqc.sparse.search.named_nests import fused, nary

# Sums of at most 4**5 products.
TOLERANCE = 1e-13


def close(result, wanted):
    if not isinstance(result, np.ndarray):
        result = result.check().to_dense()
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result, wanted, rtol=0, atol=TOLERANCE * max(1.0, abs(wanted).max(initial=0)))


@given(
    nest=nests(), seed=some.integers(0, 99), fill=some.sampled_from((0.0, 0.3, 0.7, 1.0)), threads=some.integers(1, 2)
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_nest(nest, seed, fill, threads):
    dense = arrays(nest, seed, fill)
    result = interpreted(nest)(packed(nest, dense), threads=threads)
    close(result, reference(nest.network, dense))


@given(nest=nests(), seed=some.integers(0, 99), fill=some.sampled_from((0.3, 0.7, 1.0)))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_nest_with_rows_that_are_asked_for(nest, seed, fill):
    """No coordinate is read beyond the last one, however near the end a turn is."""
    dense = arrays(nest, seed, fill)
    with mock.patch.object(ahead, "LEAST", 1):
        result = interpreted(nest)(packed(nest, dense), threads=1)
    close(result, reference(nest.network, dense))


def mttkrp(rank: int):
    net = network("ijk,jr,kr->ir", [(9, 7, 30), (7, rank), (30, rank)])
    return nary(net, ("i", "j", "k", "r"), full=(1, 2), sparse=False)


def asked(program) -> list[str]:
    statements = [s for piece in program.pieces for s in st.statements(piece.function.body)]
    return [s.array.name for s in statements if isinstance(s, st.Prefetch)]


def test_rows_of_large_factors_are_asked_for(monkeypatch):
    assert asked(nest_program(mttkrp(20))) == []
    monkeypatch.setattr(ahead, "LEAST", 200)
    # Three lines, and the one that the last element is in; the factor over j has fewer elements.
    assert asked(nest_program(mttkrp(20))) == ["val2"] * 4
    monkeypatch.setattr(ahead, "LEAST", 100)
    assert asked(nest_program(mttkrp(20))) == ["val1"] * 4 + ["val2"] * 4
    assert asked(nest_program(mttkrp(20), concurrent=True)) == []
    assert asked(nest_program(mttkrp(ahead.LONGEST + 1))) == []


@pytest.mark.parametrize("rank", [7, 8, 9, 16, 104])
def test_rows_of_whole_vectors_are_added_by_vectors(rank):
    net = network("ijk,jr,ks->irs", [(5, 7, 30), (7, 3), (30, rank)])
    nest = fused(net, ((0, 2), 1), [("i", "j", "k", "s"), ("i", "j", "r", "s")], full=(1, 2), sparse=False)
    functions = [piece.function.body for piece in nest_program(nest, lanes=8).pieces]
    stores = [s.target.name for body in functions for s in st.statements(body) if isinstance(s, st.Pack)]
    assert ("out" in stores) == (rank in (8, 16))
    for one in (nest, mttkrp(rank)):
        dense = arrays(one, 3, 0.4)
        close(compiled(one)(packed(one, dense)), reference(one.network, dense))
