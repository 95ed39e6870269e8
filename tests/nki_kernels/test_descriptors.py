"""Rules of the knobs: allowed points fit the chip when the kernel is traced, and errors name the broken rule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import GATE, Infeasible, random_fill
from trnqc import sim
from trnqc.errors import InputError
from trnqc.sim.machine.targets import TARGETS
from trnqc.tuning.requests import check

SHAPES = {
    "mp2_energy": {"nocc": 9, "nvir": 300, "naux": 400},
    "mp2_gamma": {"nocc": 5, "nvir": 140, "naux": 200},
    "gemm": {"M": 300, "N": 700, "K": 260},
    "batched_contraction": {"Z": 5, "M": 129, "N": 130, "K": 257},
}
LAYER = kernels()["cg_conv"].small
CG_KERNELS = ("cg_conv", "cg_gradients")
# Kernel, extents (those of `SHAPES` or of the descriptor if there are none) and values of the knobs in their order.
POINTS = [
    *[("mp2_energy", (), point) for point in ((1, 1, 3), (3, 2, 1))],
    *[("mp2_gamma", (), point) for point in ((1, 1, 3, 256, 4), (2, 2, 1, 256, 8))],
    *[("gemm", (), point) for point in ((128, 512, 1, 1, 1, 2, 1), (256, 512, 3, 1, 0, 4, 2))],
    *[("batched_contraction", (), point) for point in ((128, 512, 1, 2, 0, 4, 2), (128, 512, 3, 1, 0, 4, 2))],
    *[("blas_gemm", (5, 300, 700, 260), point) for point in ((128, 512, 3, 1), (256, 1024, 1, 4))],
    ("blas_gemm", (70, 30, 70, 26), (128, 512, 1, 32)),
    *[("blas_syrk", (700, 260), point) for point in ((128, 4, 2), (384, 1, 1))],
    ("blas_trsm", (700, 600), (256, 512)),
    *[("blas_cholesky", (3 * panel,), (panel,)) for panel in (128, 256)],
    *[(kernel, (), point) for kernel in CG_KERNELS for point in ((3, 1, 0), (25, 2, 40))],
    *[("df_coulomb", (40, 200, 3), point) for point in ((1, 1), (3, 2))],
    *[("df_exchange", (131, 41, 64), point) for point in ((2, 1), (8, 3))],
    ("probe", (), ()),
]


def named(kernel, extents, point):
    """A kernel, its shape and a point."""
    known = kernels()[kernel]
    shape = dict(zip(known.dims, extents, strict=True)) if extents else SHAPES.get(kernel, known.small)
    return known, shape, dict(zip(known.knobs(shape), point, strict=True))


@pytest.mark.parametrize("precision", ["fp32", "bf16x3"])
@pytest.mark.parametrize("kernel", kernels())
def test_every_kernel_computes_its_reference_at_its_small_shape(kernel, precision, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    known = kernels()[kernel]
    if precision not in known.precisions:
        pytest.skip(f"{kernel} has no {precision}")
    constants = known.default(known.small, precision)
    gate = known.gate(known.small, precision, constants, 1, random_fill(0))
    assert known.error(gate, sim.simulate(known.function)(*gate.args, **gate.constants)) < GATE / 10


@pytest.mark.parametrize("kernel", kernels())
def test_both_front_ends_of_the_vendor_accept_every_kernel(kernel):
    assert sim.lint(kernels()[kernel].function) == ()


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("precision", ["fp32", "bf16x3"])
@pytest.mark.parametrize("kernel, extents, point", POINTS)
def test_realised_points_compute_the_reference(kernel, extents, point, precision, target, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    known, shape, chosen = named(kernel, extents, point)
    if precision not in known.precisions:
        pytest.skip(f"{kernel} has no {precision}")
    constants = known.realise(chosen, shape, precision, target)
    gate = known.gate(shape, precision, constants, 1, random_fill(0))
    results = sim.simulate(known.function)(*gate.args, **gate.constants)
    assert known.error(gate, results) < GATE / 10
    several = results if isinstance(results, tuple) else (results,)
    assert known.error(gate, (*several[:-1], 1.001 * several[-1])) > GATE
    assert known.error(gate, (*several, several[0])) == float("inf")


@pytest.mark.parametrize("kernel", kernels())
def test_examples_compute_the_reference(kernel, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    known = kernels()[kernel]
    example = known.example(known.small, "fp32", known.default(known.small, "fp32"), 1, random_fill(0))
    assert known.error(example, sim.simulate(known.function)(*example.args, **example.constants)) < GATE / 10


RULES = [
    *[
        ("mp2_energy", *case)
        for case in (
            ((9, 4000, 9000), (1, 1, 1), "SBUF: .* has 180224"),
            ((9, 1000, 900), (2, 2, 1), "PSUM: .* are in flight"),
            ((9, 200, 900), (2, 2, 2), "within a group"),
            ((9, 200, 900), (3, 1, 1), "no 3 blocks"),
            ((9, 200, 900), (1, 5, 1), "no 5 chunks"),
            ((9, 20, 90), (1, 1, 9), "no group of 9"),
            ((99, 672, 2304), (1, 1, 16), "program: 5184 products"),
        )
    ],
    ("mp2_gamma", (9, 65, 900), (1, 1, 9, 512, 16), "no group of 9"),
    ("mp2_gamma", (9, 65, 900), (1, 1, 8, 1024, 16), "a block of 1024 rows is larger than the 640 of all"),
    ("mp2_gamma", (9, 65, 900), (1, 2, 2, 512, 16), "within a group"),
    ("gemm", (4096, 4096, 4096), (2048, 4096, 1, 1, 0, 4, 2), "SBUF"),
    ("gemm", (4096, 4096, 4096), (1024, 512, 1, 1, 0, 4, 2), "SBUF"),
    ("gemm", (4096, 4096, 4096), (512, 2048, 4, 1, 0, 4, 2), "PSUM: 16 banks"),
    ("gemm", (4096, 4096, 4096), (128, 512, 2, 1, 1, 4, 2), "b is held"),
    ("gemm", (4096, 4096, 4096), (128, 512, 1, 2, 0, 4, 2), "1 products"),
    ("blas_gemm", (1, 900, 9000, 9), (512, 2048, 1, 1), "PSUM: 16 banks"),
    ("blas_gemm", (2, 9, 9, 9), (128, 512, 1, 4), "no group of 4"),
    ("blas_gemm", (9, 9, 9, 900), (128, 512, 2, 4), "not grouped"),
    ("blas_gemm", (99, 9, 300, 9), (128, 512, 1, 32), "this size make no group of 32"),
    ("blas_syrk", (9, 9), (512, 1, 1), "larger than the matrix"),
    ("blas_syrk", (9000, 900), (128, 1, 5), "no 5 items"),
    ("blas_trsm", (4096, 4096), (1024, 2048), "PSUM: a block of 32 banks"),
    ("blas_cholesky", (200,), (512,), "larger than the 256 of all"),
    ("cg_conv", (), (43, 1, 40), "window: 43 receivers, 25 fit"),
    ("cg_conv", (), (25, 8, 40), "depth: 8 tiles of an item, but windows have about 2"),
    ("cg_conv", (), (25, 1, 101), "share: 101"),
    ("df_coulomb", (20, 200, 1), (4, 2), "2 blocks of pairs fill no 2 loads of 4"),
    ("df_coulomb", (560, 2048, 40), (1, 1), "PSUM: 16 columns of 40 densities"),
    ("df_coulomb", (560, 2048, 1), (8, 4), "SBUF: .* has 180224"),
    ("df_exchange", (60, 20, 300), (2, 1), "4 fitting functions share the partitions, not 2"),
    ("df_exchange", (60, 20, 300), (4, 6), "6 sets of integrals on chip for passes of 4"),
    ("df_exchange", (4000, 100, 300), (1, 1), "SBUF: .* has 180224"),
]


@pytest.mark.parametrize("kernel, extents, point, rule", RULES)
def test_rules_name_themselves(kernel, extents, point, rule):
    known, shape, chosen = named(kernel, extents, point)
    with pytest.raises(Infeasible, match=rule):
        known.realise(chosen, shape, "fp32", "trn1")


def test_convolutions_have_no_other_precision():
    known, shape, point = named("cg_conv", (), (25, 1, 40))
    with pytest.raises(Infeasible, match="precision: the kernels compute in fp32"):
        known.realise(point, shape, "bf16", "trn2")


@pytest.mark.parametrize("channels", [1, 128, 1000])
@pytest.mark.parametrize("kernel", CG_KERNELS)
def test_the_defaults_of_convolutions_keep_the_rules_of_every_chip(kernel, channels):
    shape, known = LAYER | {"channels": channels, "ydegrees": 4}, kernels()[kernel]
    for target in TARGETS:
        point = known.default_point(shape, "fp32")
        assert known.realise(point, shape, "fp32", target) == known.default(shape, "fp32")
    call = known.example(shape, "fp32", known.default(shape, "fp32"), 1, sim.Spec)
    trace = sim.trace(known.function)(*call.args, **call.constants)
    assert 0 < trace.sbuf_high_water <= TARGETS["trn2"].sbuf_usable


@pytest.mark.parametrize("kernel", SHAPES)
def test_a_wrong_result_is_seen(kernel):
    known = kernels()[kernel]
    constants = known.default(SHAPES[kernel], "fp32")
    gate = known.gate(SHAPES[kernel], "fp32", constants, 1, random_fill(0))
    right = known.reference(*gate.args, **gate.constants)
    assert known.error(gate, right) < 1e-6
    assert known.error(gate, right * 1.001) > GATE
    assert known.error(gate, right[..., :1]) == float("inf")
    broken = right.copy()
    broken.flat[0] = float("nan")
    assert known.error(gate, broken) == float("inf")


@pytest.mark.slow
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_what_passes_the_capacity_rule_fits_the_chip(data):
    """The simulator counts the bytes that the traced kernel really takes, and refuses what is too much."""
    known = kernels()[data.draw(st.sampled_from(sorted(SHAPES)))]
    extents = {dim: data.draw(st.sampled_from([1, 127, 128, 640, 1000, 1300])) for dim in known.dims}
    precision = data.draw(st.sampled_from(["fp32", "bf16"]))
    values = {"blocks": [1, 2, 3], "chunks": [1, 2, 5], "group": [1, 2, 4], "rows": [128, 512, 1024], "hold": [0, 1]}
    values |= {"cols": [512, 1024, 4096], "batch": [1, 2, 8], "drains": [1, 8], "drainer": [0, 1, 2], "depth": [4, 32]}
    if "Z" in extents:
        extents["Z"] = min(extents["Z"], 130)
    point = {knob: data.draw(st.sampled_from(values[knob])) for knob in known.knobs(extents)}
    try:
        constants = known.realise(point, extents, precision, "trn2")
    except Infeasible:
        return
    call = known.example(extents, precision, constants, 1, sim.Spec)
    trace = sim.trace(known.function)(*call.args, **call.constants)
    assert 0 < trace.sbuf_high_water <= TARGETS["trn2"].sbuf_usable
    assert trace.executed["nc_matmul"] > 0


@given(
    nocc=st.integers(9, 99),
    nvir=st.integers(1, 3000),
    naux=st.integers(1, 9000),
    precision=st.sampled_from(["fp32", "bf16"]),
)
@settings(deadline=None)
def test_the_defaults_of_mp2_keep_the_rules_of_the_smallest_chip(nocc, nvir, naux, precision):
    shape = {"nocc": nocc, "nvir": nvir, "naux": naux}
    for name in ("mp2_energy", "mp2_gamma"):
        known = kernels()[name]
        point = known.default_point(shape, precision)
        if nocc * nvir <= 384:  # rows of Gamma: the default block of 512 is cut to fewer
            point["rows"] = min(point.get("rows", 0), 128)
        realised = known.realise(point, shape, precision, "trn1")
        assert realised["block"] == known.default(shape, precision)["block"]


@pytest.mark.parametrize(
    "kernel, shape, precision, target, message",
    [
        ("gem", {}, "fp32", "trn1", "found 'gem'"),
        ("gemm", {"M": 1, "N": 1}, "fp32", "trn1", "M, N, K, each at least 1"),
        ("gemm", {"M": 1, "N": 1, "K": 0}, "fp32", "trn1", "each at least 1"),
        ("gemm", {"M": 1, "N": 1, "K": 1}, "fp64", "trn1", "found 'fp64'"),
        ("gemm", {"M": 1, "N": 1, "K": 1}, "fp32", "trn9", "found 'trn9'"),
    ],
)
def test_unsound_requests(kernel, shape, precision, target, message):
    with pytest.raises(InputError, match=message):
        check(kernel, shape, precision, target)
