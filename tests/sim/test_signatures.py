"""Names, argument order and defaults of the interface: a kernel written for the stand-in must fit the vendor's package."""

# ruff: noqa: E501

import inspect

import pytest

from trnqc.sim.nki import isa, language

# As `inspect` prints them without annotations, enumeration members by name.
ISA = """
nc_matmul(dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False, accumulate=None, tile_position=(), tile_size=(), perf_mode=matmul_perf_mode.none, name=None)
nc_transpose(dst, data, engine=engine.unknown, name=None)
dma_copy(dst, src, priority=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, engine=engine.unknown, name=None)
dma_transpose(dst, src, axes=None, priority=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error, name=None)
dma_compute(dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=oob_mode.error, name=None)
tensor_copy(dst, src, engine=engine.unknown, name=None)
memset(dst, value, engine=engine.unknown, name=None)
nc_stream_shuffle(dst, src, shuffle_mask, name=None)
iota(dst, pattern, offset=0, channel_multiplier=0, name=None)
local_gather(dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, name=None)
nc_n_gather(dst, data, indices, name=None)
tensor_tensor(dst, data1, data2, op, engine=engine.unknown, name=None)
tensor_scalar(dst, data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, engine=engine.unknown, name=None)
scalar_tensor_tensor(dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, name=None)
tensor_reduce(dst, op, data, axis, negate=False, keepdims=False, name=None)
tensor_scalar_reduce(dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False, reduce_cmd=reduce_cmd.reset_reduce, reduce_init=None, reduce_res_negate=False, name=None)
tensor_scalar_cumulative(dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reduce_cmd.reset_reduce, name=None)
tensor_partition_reduce(dst, op, data, name=None)
tensor_tensor_scan(dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None)
activation(dst, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle, name=None)
activation_reduce(dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0, name=None)
reciprocal(dst, data, name=None)
select_reduce(dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_op=nl.maximum, reverse_pred=False, name=None)
tensor_copy_predicated(dst, src, predicate, reverse_pred=False, name=None)
affine_select(dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=nl.equal, offset=0, name=None)
bn_stats(dst, data, name=None)
bn_aggr(dst, data, name=None)
topk(val_dst, idx_dst, src, n, name=None)
exponential(dst, src, max_value=0.0, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_init=0.0, name=None)
core_barrier(data, cores, engine=engine.gpsimd, name=None)
register_alloc(x=None)
register_move(dst, src)
register_load(dst, src)
register_store(dst, src)
scalar_load(src)
scalar_store(dst, value)
"""

LANGUAGE = """
ndarray(shape, dtype, buffer=sbuf, name='', address=None)
zeros(shape, dtype, buffer=sbuf, name='')
ones(shape, dtype, buffer=sbuf, name='')
full(shape, fill_value, dtype, buffer=sbuf, name='')
zeros_like(x, dtype=None, buffer=None, name='')
empty_like(x, dtype=None, buffer=None, name='')
load(src, dtype=None)
store(dst, value)
load_transpose2d(src, dtype=None)
copy(x, dtype=None)
transpose(x, dtype=None)
matmul(x, y, transpose_x=False)
broadcast_to(x, shape, dtype=None)
expand_dims(x, axis)
sum(x, axis, dtype=None, keepdims=False)
softmax(x, axis=-1, dtype=None)
rms_norm(x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None)
where(condition, x, y, dtype=None)
add(x, y, dtype=None)
exp(x, dtype=None)
ds(start, size)
program_id(axis=0)
num_programs(axes=0)
program_ndim()
shared_constant(constant)
shared_identity_matrix(n, dtype=uint8, dst=None)
device_print(print_prefix, tensor)
no_reorder()
rand(shape, dtype, buffer=sbuf, name='')
fori_loop(lower, upper, body_fun, step=1)
while_loop(init, body_fun)
dynamic_range(start, stop=None, step=1)
affine_range(start, stop=None, step=1)
"""

TENSOR = """
slice(self, dim, start, end, step=1)
select(self, dim, index)
permute(self, dims)
broadcast(self, dim, size)
expand_dim(self, dim)
squeeze_dim(self, dim)
reshape_dim(self, dim, shape)
flatten_dims(self, start_dim, end_dim)
reshape(self, shape)
rearrange(self, src_pattern, dst_pattern, fixed_sizes=None)
view(self, dtype)
ap(self, pattern, offset=None, scalar_offset=None, vector_offset=None, indirect_dim=0, dtype=None)
vector_select(self, dim, vector_offset)
get_pattern(self)
is_contiguous(self)
is_indirect(self)
"""


def shown(value):
    if hasattr(type(value), "__members__"):
        kind = type(value).__name__
        return value.name if kind == "MemoryRegion" else f"{kind}.{value.name}"
    return repr(value)


def signature(function):
    parts = []
    for p in inspect.signature(function).parameters.values():
        assert p.kind is p.POSITIONAL_OR_KEYWORD
        parts.append(p.name if p.default is p.empty else f"{p.name}={shown(p.default)}")
    return f"{getattr(function, '__name__', '')}({', '.join(parts)})"


CASES = [(isa, line) for line in ISA.split("\n") if line]
CASES += [(language, line) for line in LANGUAGE.split("\n") if line]
CASES += [(language.NkiTensor, line) for line in TENSOR.split("\n") if line]


@pytest.mark.parametrize(("where", "expected"), CASES, ids=[line.split("(")[0] for _, line in CASES])
def test_signature(where, expected):
    assert signature(getattr(where, expected.split("(")[0])) == expected


NAMES = """
bool_ int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 tfloat32 float32 float8_e4m3 float8_e5m2 float8_e4m3fn
float8_e8m0fnu float8_e5m2_x4 float8_e4m3fn_x4 float4_e2m1fn_x4 sbuf psum hbm private_hbm shared_hbm tile_size
NKIObject gelu_apprx_tanh gelu_apprx_sigmoid is_hbm is_on_chip is_psum is_sbuf bypass average prelu
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_names_of_the_language(name):
    assert hasattr(language, name)


def test_hbm_means_private_hbm():
    assert language.hbm is language.private_hbm


def test_members_of_the_enumerations():
    assert [m.name for m in isa.reduce_cmd] == ["idle", "reset", "reduce", "reset_reduce", "load_reduce"]
    assert {m.name for m in isa.engine} == {"tensor", "vector", "scalar", "gpsimd", "dma", "sync", "unknown"}
    assert {m.name for m in isa.dge_mode} == {"unknown", "swdge", "hwdge", "none"}
    assert {m.name for m in isa.oob_mode} == {"error", "skip"}
    assert {m.name for m in isa.matmul_perf_mode} == {"none", "double_row"}
    assert {m.name for m in isa.nc_version} == {"gen2", "gen3", "gen4"}
    assert (isa.scalar_engine, isa.vector_engine, isa.gpsimd_engine) == (
        isa.engine.scalar,
        isa.engine.vector,
        isa.engine.gpsimd,
    )


def test_there_are_no_64_bit_formats():
    assert not hasattr(language, "float64")
    assert not hasattr(language, "int64")
