"""Irreps and problems: e3nn's normalisation to the last bit, and refused inputs."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hs

from trnqc.cg.problem.irreps import Irrep, Irreps, MulIrrep
from trnqc.cg.problem.problem import TPProblem, from_e3nn
from trnqc.errors import InputError, InstructionError, IrrepsError, UnsupportedMode

LISTS = hs.lists(
    hs.builds(MulIrrep, hs.integers(0, 200), hs.builds(Irrep, hs.integers(0, 9), hs.sampled_from((1, -1))))
)
IN1, IN2 = "8x0o + 7x1o + 3x2e", "10x0e + 10x1e + 10x2e"


def rules() -> list[tuple]:
    """All the couplings of IN1 and IN2 back to IN1, every second with a weight of its own."""
    one, two = Irreps.of(IN1), Irreps.of(IN2)
    instructions = [
        (a, b, c, mode, True)
        for a, x in enumerate(one)
        for b, y in enumerate(two)
        for c, z in enumerate(one)
        for mode in (("uvu", "uvw") if a == c else ("uvw",))
        if x.ir.p * y.ir.p == z.ir.p and abs(x.ir.l - y.ir.l) <= z.ir.l <= x.ir.l + y.ir.l
    ]
    return [(*rule, 0.3) if n % 2 else rule for n, rule in enumerate(instructions)]


@given(LISTS)
def test_irreps_are_read_as_they_are_printed(slots):
    irreps = Irreps(tuple(slots))
    assert Irreps.of(str(irreps)) == irreps
    assert Irreps.of([(s.mul, (s.ir.l, s.ir.p)) for s in slots]) == irreps
    assert irreps.dim == sum(s.mul * (2 * s.ir.l + 1) for s in slots)
    assert [s.stop - s.start for s in irreps.slices] == [s.dim for s in slots]


def test_the_parity_of_harmonics_alternates():
    assert Irreps.of("0y+1y+2y") == Irreps.of("1x0e + 1o + 2e")


@pytest.mark.parametrize(
    "source", ["4x0q", "1o++2e", "x1o", "-1x0e", 3.5, None, [(2, "1o+2e")], [(1, (2, 3))]], ids=str
)
def test_what_means_no_irreps_is_refused(source):
    with pytest.raises(IrrepsError):
        Irreps.of(source)


@pytest.mark.parametrize("by_irrep", ["component", "norm", "none"])
@pytest.mark.parametrize("by_path", ["element", "path", "none"])
def test_path_weights_are_e3nns(by_irrep, by_path):
    o3 = pytest.importorskip("e3nn.o3")
    options = {
        "irrep_normalization": by_irrep,
        "path_normalization": by_path,
        "in2_var": [0.1, 0.2, 0.3],
        "out_var": [1, 2, 3.0],
    }
    theirs = o3.TensorProduct(IN1, IN2, IN1, rules(), shared_weights=False, internal_weights=False, **options)
    ours = TPProblem(IN1, o3.Irreps(IN2), IN1, rules(), shared_weights=False, **options)
    assert [path.path_weight for path in ours.instructions] == [path.path_weight for path in theirs.instructions]
    assert [path.path_shape for path in ours.instructions] == [path.path_shape for path in theirs.instructions]
    assert ours.weight_numel == theirs.weight_numel
    assert from_e3nn(theirs) == ours


def test_weights_lie_one_after_another():
    problem = TPProblem(IN1, IN2, IN1, [(0, 0, 0, "uvu", True), (1, 0, 1, "uvu", False), (2, 0, 2, "uvw", True)])
    assert [path.weight_slice for path in problem.instructions] == [slice(0, 80), slice(80, 80), slice(80, 170)]
    assert problem.weight_numel == 170
    assert problem.dims == (44, 90, 44)


def test_problems_are_values():
    one, two = (TPProblem(IN1, IN2, IN1, rules(), label=label) for label in ("one", "two"))
    assert one == two == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(two)
    assert one.changed(layout="ir_mul") != one
    assert one.changed(dtype=np.float32).dtype == "float32"
    assert one.changed(dtype="float64").instructions == one.instructions
    assert "one: 8x0o+7x1o+3x2e" in str(one)
    with pytest.raises(FrozenInstanceError):
        one.layout = "ir_mul"


@pytest.mark.parametrize(
    ("rule", "kind", "words"),
    [
        ((0, 1, 2, "uvw", True), InstructionError, "0o x 1e holds l = 1 .. 1 of parity o; found 2e"),
        ((0, 0, 2, "uvw", True), InstructionError, "found 2e"),
        ((3, 0, 0, "uvw", True), InstructionError, "i_in1 = 3, but .* has 3 slots"),
        ((0, -1, 0, "uvw", True), InstructionError, "i_in2 = -1"),
        ((1, 1, 1, "vvv", False), UnsupportedMode, "expected one of the modes uvw, .*; found 'vvv'"),
        ((0, 0, 0, "uvu", True, -1.0), InstructionError, "path_weight >= 0"),
        ((0, 0, 0, "uvu"), InstructionError, "expected .i_in1"),
    ],
    ids=str,
)
def test_paths_that_cannot_be_are_refused(rule, kind, words):
    with pytest.raises(kind, match=words):
        TPProblem(IN1, IN2, IN1, [rule])


def test_uvu_keeps_the_multiplicity():
    with pytest.raises(InstructionError, match="found 4x0e and 5x0e"):
        TPProblem("4x0e", "0e", "5x0e", [(0, 0, 0, "uvu", True)])


@pytest.mark.parametrize(
    "option",
    [
        {"layout": "mul"},
        {"dtype": "float16"},
        {"irrep_normalization": "norms"},
        {"path_normalization": "paths"},
        {"in1_var": [1.0]},
        {"out_var": [1.0, -1.0, 1.0]},
    ],
    ids=str,
)
def test_unknown_options_are_refused(option):
    with pytest.raises(InputError, match=f"{next(iter(option))}: expected"):
        TPProblem(IN1, IN2, IN1, rules(), **option)
