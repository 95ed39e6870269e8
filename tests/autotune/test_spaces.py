"""Search spaces contain every point that keeps the rules exactly once, and no other point."""

import itertools

import pytest

from autotune.spaces import space
from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import Infeasible
from trnqc.errors import InputError

SHAPES = [
    ("mp2_energy", {"nocc": 17, "nvir": 448, "naux": 1536}),
    ("mp2_energy", {"nocc": 17, "nvir": 1, "naux": 1}),
    ("mp2_energy", {"nocc": 17, "nvir": 2801, "naux": 9001}),
    ("gemm", {"M": 4096, "N": 4096, "K": 4096}),
    ("gemm", {"M": 1, "N": 1, "K": 1}),
    ("batched_contraction", {"Z": 97, "M": 129, "N": 513, "K": 257}),
]


@pytest.mark.parametrize("precision, target", [("fp32", "trn1"), ("bf16", "trn2")])
@pytest.mark.parametrize("kernel, shape", SHAPES)
def test_points_are_all_feasible_and_distinct(kernel, shape, precision, target):
    known, choices = kernels()[kernel], space(kernel, shape, precision, target)
    assert len(choices) > 0
    for point, constants in zip(choices.points, choices.constants):
        assert known.realise(point, shape, precision, target) == constants
    assert len({tuple(c.items()) for c in choices.constants}) == len(choices)


@pytest.mark.parametrize("kernel, shape", SHAPES)
def test_what_is_missing_is_cut_by_a_rule_or_a_duplicate(kernel, shape):
    known, choices = kernels()[kernel], space(kernel, shape, "fp32", "trn1")
    values = known.knobs(shape)
    cut = 0
    for combination in itertools.product(*values.values()):
        try:
            constants = known.realise(dict(zip(values, combination)), shape, "fp32", "trn1")
        except Infeasible:
            cut += 1
        else:
            assert constants in choices.constants
    assert cut <= sum(choices.cut.values()) <= cut + 1  # the default's own point may be cut as well


@pytest.mark.parametrize("kernel, shape", SHAPES)
def test_the_default_comes_first_where_it_is_a_point(kernel, shape):
    default = kernels()[kernel].default(shape, "fp32")
    constants = space(kernel, shape, "fp32", "trn1").constants
    assert default not in constants or constants[0] == default


def test_capacity_cuts_before_timing():
    large = {"nocc": 17, "nvir": 2800, "naux": 9000}
    choices = space("mp2_energy", large, "fp32", "trn1")
    assert choices.cut["SBUF"] > 0 and choices.cut["PSUM"] > 0
    assert len(space("mp2_energy", large, "bf16", "trn2")) > len(choices)


def test_unsound_requests_are_refused():
    with pytest.raises(InputError, match="nocc, nvir, naux, each at least 1"):
        space("mp2_energy", {"nocc": 17, "nvir": 0, "naux": 3}, "fp32", "trn1")


@pytest.mark.parametrize("kernel", ["cg_conv", "cg_gradients"])
def test_a_precision_that_the_kernel_lacks_is_refused(kernel):
    shape = dict(zip(kernels()[kernel].dims, (32, 2, 2, 16, 8)))
    with pytest.raises(InputError, match=f"the precision of {kernel} is one of fp32; found 'bf16'"):
        space(kernel, shape, "bf16", "trn2")
