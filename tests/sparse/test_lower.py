"""Every nest computes its network: random nests through the interpreter, which checks all indices."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.sparse.nests import arrays, interpreted, nests, packed
from tests.sparse.oracle import reference

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
