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
POINTS = {
    "mp2_energy": [{"blocks": 1, "chunks": 1, "group": 3}, {"blocks": 3, "chunks": 2, "group": 1}],
    "mp2_gamma": [
        {"blocks": 1, "chunks": 1, "group": 3, "rows": 256, "depth": 4},
        {"blocks": 2, "chunks": 2, "group": 1, "rows": 256, "depth": 8},
    ],
    "gemm": [
        {"rows": 128, "cols": 512, "chunks": 1, "batch": 1, "hold": 1, "drains": 2, "drainer": 1},
        {"rows": 256, "cols": 512, "chunks": 3, "batch": 1, "hold": 0, "drains": 4, "drainer": 2},
    ],
    "batched_contraction": [
        {"rows": 128, "cols": 512, "chunks": 1, "batch": 2, "hold": 0, "drains": 4, "drainer": 2},
        {"rows": 128, "cols": 512, "chunks": 3, "batch": 1, "hold": 0, "drains": 4, "drainer": 2},
    ],
}
CASES = [(kernel, point) for kernel, points in POINTS.items() for point in points]


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
@pytest.mark.parametrize("kernel, point", CASES)
def test_realised_points_compute_the_reference(kernel, point, precision, target, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    known = kernels()[kernel]
    constants = known.realise(point, SHAPES[kernel], precision, target)
    gate = known.gate(SHAPES[kernel], precision, constants, 1, random_fill(0))
    assert known.error(gate, sim.simulate(known.function)(*gate.args, **gate.constants)) < GATE / 10


@pytest.mark.parametrize("window, depth, share", [(3, 1, 0), (25, 2, 40)])
@pytest.mark.parametrize("kernel", CG_KERNELS)
def test_realised_points_of_convolutions_compute_the_reference(kernel, window, depth, share, monkeypatch):
    """The example has the shape's graph; the gate has a window of two items and a smaller one."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    known = kernels()[kernel]
    point = {"window": window, "depth": depth, "share": share}
    constants = known.realise(point, LAYER, "fp32", "trn2")
    for launch in (known.gate, known.example):
        call = launch(LAYER, "fp32", constants, 1, random_fill(0))
        results = sim.simulate(known.function)(*call.args, **call.constants)
        assert known.error(call, results) < GATE / 10
    several = results if isinstance(results, tuple) else (results,)
    assert known.error(call, (*several[:-1], 1.001 * several[-1])) > GATE
    assert known.error(call, (*several, several[0])) == float("inf")


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


@pytest.mark.parametrize(
    "point, precision, rule",
    [
        ((43, 1, 40), "fp32", "window: 43 receivers, 25 fit"),
        ((25, 8, 40), "fp32", "depth: 8 tiles of an item, but windows have about 2"),
        ((25, 1, 101), "fp32", "share: 101"),
        ((25, 1, 40), "bf16", "precision: the kernels compute in fp32"),
    ],
)
def test_rules_of_convolutions_name_themselves(point, precision, rule):
    with pytest.raises(Infeasible, match=rule):
        kernels()["cg_conv"].realise(dict(zip(("window", "depth", "share"), point)), LAYER, precision, "trn2")


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


@pytest.mark.parametrize(
    "shape, point, rule",
    [
        ((9, 4000, 9000), (1, 1, 1), "SBUF: .* has 180224"),
        ((9, 1000, 900), (2, 2, 1), "PSUM: .* are in flight"),
        ((9, 200, 900), (2, 2, 2), "within a group"),
        ((9, 200, 900), (3, 1, 1), "no 3 blocks"),
        ((9, 200, 900), (1, 5, 1), "no 5 chunks"),
        ((9, 20, 90), (1, 1, 9), "no group of 9"),
        ((99, 672, 2304), (1, 1, 16), "program: 5184 products"),
    ],
)
def test_rules_name_themselves(shape, point, rule):
    known = kernels()["mp2_energy"]
    extents = dict(zip(known.dims, shape))
    with pytest.raises(Infeasible, match=rule):
        known.realise(dict(zip(known.knobs(extents), point)), extents, "fp32", "trn1")


@pytest.mark.parametrize(
    "point, rule",
    [
        ((1, 1, 9, 512, 16), "no group of 9"),
        ((1, 1, 8, 1024, 16), "a block of 1024 rows is larger than the 640 of all"),
        ((1, 2, 2, 512, 16), "within a group"),
    ],
)
def test_rules_of_gamma_name_themselves(point, rule):
    known = kernels()["mp2_gamma"]
    extents = {"nocc": 9, "nvir": 65, "naux": 900}
    with pytest.raises(Infeasible, match=rule):
        known.realise(dict(zip(known.knobs(extents), point)), extents, "fp32", "trn1")


def product_point(**changed):
    return {"rows": 128, "cols": 512, "chunks": 1, "batch": 1, "hold": 0, "drains": 4, "drainer": 2} | changed


@pytest.mark.parametrize(
    "point, rule",
    [
        (product_point(rows=2048, cols=4096, chunks=1, batch=1), "SBUF"),
        (product_point(rows=1024, cols=512, chunks=1), "SBUF"),
        (product_point(rows=512, cols=2048, chunks=4), "PSUM: 16 banks"),
        (product_point(hold=1, chunks=2), "b is held"),
        (product_point(batch=2), "1 products"),
    ],
)
def test_product_rules_name_themselves(point, rule):
    with pytest.raises(Infeasible, match=rule):
        kernels()["gemm"].realise(point, {"M": 4096, "N": 4096, "K": 4096}, "fp32", "trn1")


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
