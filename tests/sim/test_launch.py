"""Launches: arguments, results, jit, and two cores."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from tests.sim.running import dry, run
from trnqc.errors import SimulationError
from trnqc.sim import Kernel, NkiValidationError, Spec, install, jit, last_trace, simulate, uninstall
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@jit
def doubled(x, factor=2.0):
    tile, out = nl.load(x), nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    nisa.dma_copy(out, tile)
    return out


def test_keywords_and_defaults():
    np.testing.assert_array_equal(simulate(doubled)(X), 2 * X)
    np.testing.assert_array_equal(simulate(doubled)(x=X, factor=3.0), 3 * X)
    with pytest.raises(TypeError, match="unexpected keyword argument 'scale'"):
        simulate(doubled)(X, scale=3.0)


def test_plain_functions_are_kernels_too():
    np.testing.assert_array_equal(simulate(doubled.func)(X), 2 * X)


def test_jit_keeps_the_name_and_refuses_old_arguments():
    assert isinstance(doubled, Kernel)
    assert doubled.__name__ == "doubled"
    with pytest.raises(SimulationError, match="set NEURON_PLATFORM_TARGET_OVERRIDE"):
        jit(platform_target="trn2")
    with pytest.warns(DeprecationWarning, match="ignores mode="):
        assert isinstance(jit(mode="auto")(doubled.func), Kernel)
    assert isinstance(jit(show_compiler_tb=True)(doubled.func), Kernel)
    with pytest.raises(TypeError, match=r"unexpected keyword arguments \['grid'\]"):
        jit(grid=1)


def test_direct_calls_ask_for_the_simulator(monkeypatch):
    monkeypatch.delenv("NKI_SIMULATOR", raising=False)
    with pytest.raises(SimulationError, match="was called directly, but the nki compiler is not installed here"):
        doubled(X)
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    np.testing.assert_array_equal(doubled(X), 2 * X)


def test_kernels_called_from_kernels_are_inlined():
    np.testing.assert_array_equal(run(lambda x: doubled(doubled(x)), X), 4 * X)


@pytest.mark.parametrize(
    "name", ["float32", "bfloat16", "float16", "int8", "uint8", "int32", "float8_e4m3fn", "float8_e5m2", "bool"]
)
def test_torch_tensors(name):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0]]).to(getattr(torch, name))

    def body(x):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out

    got = run(body, tensor)
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got.astype(np.float32), tensor.float().numpy())


def overwrite(x):
    nisa.dma_copy(x[0:1], nl.zeros((1, x.shape[1]), nl.float32))
    return x


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
def test_writes_to_arguments_reach_the_caller(layout):
    base = np.ones((4, 6), np.float32)
    array = {"contiguous": base, "transposed": base.T, "strided": base[:, ::2]}[layout]
    run(overwrite, array)
    assert (array[0] == 0).all()
    assert (array[1:] == 1).all()


def test_writes_to_torch_arguments_reach_the_caller():
    torch = pytest.importorskip("torch")
    tensor = torch.ones(4, 6)
    run(overwrite, tensor)
    assert (tensor[0] == 0).all()


def test_read_only_arguments_stay_as_they_are():
    array = np.ones((4, 6), np.float32)
    array.flags.writeable = False
    result = run(overwrite, array)
    assert (result[0] == 0).all()
    assert (array == 1).all()


def test_results_are_copies():
    x = X.copy()
    result = run(lambda x: x, x)
    result[0, 0] = 99
    assert x[0, 0] == 0


@dataclass
class Pair:
    left: object
    right: object


def test_arrays_inside_containers():
    def body(pair, table, pack):
        outs = {}
        for name, source in (("a", pair[0]), ("b", table["b"]), ("c", pack.left)):
            outs[name] = nl.ndarray(source.shape, source.dtype, nl.shared_hbm)
            nisa.dma_copy(outs[name], source)
        return outs

    got = run(body, (X, 5), {"b": X + 1}, Pair(X + 2, None))
    for k, name in enumerate("abc"):
        np.testing.assert_array_equal(got[name], X + k)


def test_several_results_come_as_a_tuple():
    got = run(lambda x: [x, x[1]], X)
    assert isinstance(got, tuple)
    np.testing.assert_array_equal(got[1], X[1])


def test_nothing_stays_running_after_an_error():
    with pytest.raises(NkiValidationError):
        run(lambda x: nl.ndarray((129, 1), nl.float32), X)
    np.testing.assert_array_equal(simulate(doubled)(X), 2 * X)


def test_kernels_do_not_start_kernels():
    with pytest.raises(SimulationError, match="a kernel is running already"):
        run(lambda x: simulate(doubled)(X), X)


def test_specs_are_for_traces():
    with pytest.raises(SimulationError, match="Spec is for traces"):
        simulate(doubled)(Spec((3, 4), nl.float32))


def test_high_precision_storage_is_not_offered(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    with pytest.raises(SimulationError, match="NKI_PRECISE_FP=0 is not offered"):
        simulate(doubled)(X)


# -- two cores --------------------------------------------------------------------------------------------------------


def halves(x):
    """Each core doubles its half of the rows; core 0 then reads what core 1 wrote."""
    core, rows = nl.program_id(0), x.shape[0] // nl.num_programs(0)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    both = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    tile = nl.load(x[nl.ds(core * rows, rows)])
    nisa.tensor_scalar(tile, tile, nl.multiply, 2.0)
    nisa.dma_copy(out[nl.ds(core * rows, rows)], tile)
    nisa.core_barrier(out, (0, 1))
    other = nl.load(out[nl.ds((1 - core) * rows, rows)])
    nisa.dma_copy(both[nl.ds(core * rows, rows)], other)
    nisa.core_barrier(both, (0, 1))
    return out, both


def test_two_cores_share_hbm():
    x = np.arange(48, dtype=np.float32).reshape(12, 4)
    out, both = run(halves, x, cores=2)
    np.testing.assert_array_equal(out, 2 * x)
    np.testing.assert_array_equal(both, np.roll(2 * x, 6, axis=0))
    assert last_trace().executed["core_barrier"] == 2


def test_barriers_need_two_cores():
    with pytest.raises(SimulationError, match=r"core_barrier needs a launch on two cores \(kernel\[2\]\)"):
        run(halves, np.zeros((12, 4), np.float32))


def test_an_error_on_one_core_ends_both():
    def body(x):
        if nl.program_id(0) == 1:
            nl.ndarray((129, 1), nl.float32)
        nisa.core_barrier(x, (0, 1))

    with pytest.raises(SimulationError, match="partition dimension 129 exceeds maximum 128"):
        run(body, X, cores=2)


def test_cores_must_allocate_alike():
    def body(x):
        rows = 2 + nl.program_id(0)
        out = nl.ndarray((rows, 4), nl.float32, nl.shared_hbm)
        nisa.core_barrier(out, (0, 1))
        return out

    with pytest.raises(SimulationError, match="cores disagree on shared HBM tensor number 0"):
        run(body, X, cores=2)


@pytest.mark.parametrize(("cores", "expected"), [(1, (0, 1, 0)), (2, (0, 2, 1))])
def test_programs(cores, expected):
    seen = []

    def body(x):
        if nl.program_id(0) == 0:
            seen.append((nl.program_id(0), nl.num_programs(0), nl.program_ndim()))

    run(body, X, cores=cores)
    assert seen == [expected]


@pytest.mark.parametrize("lnc", [0, 3, True, (2,)])
def test_launches_take_one_or_two_cores(lnc):
    with pytest.raises(SimulationError, match="takes 1 or 2 cores"):
        doubled[lnc]


# -- traces -----------------------------------------------------------------------------------------------------------


def test_a_trace_of_shapes_costs_no_data():
    """Far more memory than the machine has, were it touched."""
    trace = dry(doubled.func, Spec((128, 32768), ml_dtypes.bfloat16))
    assert dict(trace.static) == dict(trace.executed) == {"dma_copy": 2, "tensor_scalar": 1}
    assert trace.target == "trn2"
    assert trace.sbuf_high_water == 65536

    def big(x):
        out = nl.ndarray((10**6, 10**6), nl.float32, nl.shared_hbm)
        nisa.dma_copy(out[0:128, 0:64], x[10**5 : 10**5 + 128, 0:64])
        return out

    assert dry(big, Spec((10**6, 10**6), nl.float32)).executed["dma_copy"] == 1


def test_traces_check_every_rule():
    with pytest.raises(SimulationError, match="stationary free size must be at most 128"):
        dry(
            lambda x: nisa.nc_matmul(nl.ndarray((128, 4), nl.float32, nl.psum), nl.load(x), nl.load(x)),
            Spec((128, 129), nl.float32),
        )


def test_records_say_what_ran_where():
    def body(x):
        out, acc = nl.ndarray((1, 4), nl.float32, nl.shared_hbm), nl.zeros((64, 6), nl.float32, name="acc")

        def step(i):
            nisa.dma_copy(acc[32:64, 2:4], x.ap([[4, 32], [1, 2]], scalar_offset=i), name="load")

        nl.fori_loop(0, 3, step)
        nisa.dma_copy(out, acc[0:1, 0:4])
        return out

    trace = dry(body, Spec((40, 4), nl.float32), records=True)
    fill, load, leave = trace.records
    assert [(r.op, r.engine, r.id) for r in trace.records] == [
        ("memset", "vector", 0),
        ("dma_copy", "dma", 1),
        ("dma_copy", "dma", 2),
    ]
    assert load.name == "load"
    assert load.loops == ((1, 0),)
    assert fill.loops == leave.loops == ()
    region = load.outputs[0]
    assert (region.buffer, region.partitions, region.bytes, region.elements) == ("sbuf", (32, 64), (8, 16), 64)
    assert region.tile == fill.outputs[0].tile == trace.tiles[0].id
    assert trace.tiles[0].name == "acc"
    assert dry(body, Spec((40, 4), nl.float32)).records == ()


@pytest.mark.parametrize(
    "asked, configured, cores", [(None, "", 1), (None, "2", 2), (2, "2", 2), (2, "", 2), (1, "", 1)]
)
def test_nki_07_takes_the_number_of_cores_from_the_environment(monkeypatch, asked, configured, cores):
    kernel = jit(lambda x: x)
    monkeypatch.setenv("TRNQC_NKI", "0.7")
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", configured)
    assert (kernel if asked is None else kernel[asked]).lnc == cores
    monkeypatch.setenv("TRNQC_NKI", "0.6")
    assert (kernel if asked is None else kernel[asked]).lnc == (asked or 1)


def test_nki_07_refuses_another_number_of_cores_than_the_compiler_uses(monkeypatch):
    monkeypatch.setenv("TRNQC_NKI", "0.7")
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    with pytest.raises(SimulationError, match=r"kernel\[1\] must agree with NEURON_LOGICAL_NC_CONFIG=2"):
        simulate(jit(lambda x: x)[1])(np.ones((2, 2), np.float32))
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "4")
    with pytest.raises(SimulationError, match="NEURON_LOGICAL_NC_CONFIG must be 1 or 2, got '4'"):
        simulate(jit(lambda x: x))(np.ones((2, 2), np.float32))


def test_options_of_nki_07_are_accepted_there_only(monkeypatch):
    monkeypatch.setenv("TRNQC_NKI", "0.6")
    with pytest.raises(TypeError, match="compile_config"):
        jit(compile_config=None)
    monkeypatch.setenv("TRNQC_NKI", "0.7")
    install()
    try:
        from nki.compiler import CompileConfig, SpecializationConfig

        options = {
            "compile_config": CompileConfig(dead_code_elim=True),
            "specialization_config": SpecializationConfig(),
        }
        assert jit(**options)(lambda x: x).lnc == 1
    finally:
        uninstall()
