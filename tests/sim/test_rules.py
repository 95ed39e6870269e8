"""One case for every rule that a kernel can break; messages name operand, rule, actual and allowed value."""

import operator
import re

import numpy as np
import pytest

from tests.sim.running import run
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

F32 = np.zeros((128, 64), np.float32)


def sb(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, nl.sbuf)


def ps(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, nl.psum)


def hbm(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, nl.shared_hbm)


REFUSED = {
    # what the vendor's simulator refuses too
    "one-dimensional tile": (lambda x: sb(128), "must have at least 2 dimensions (partition-dim and free-dim)"),
    "element counts": (
        lambda x: nisa.dma_copy(sb(128, 128), x[0:1, 0:4]),
        "dma_copy requires src and dst to have the same number of elements, got src=4, dst=16384",
    ),
    "matmul into sbuf": (
        lambda x: nisa.nc_matmul(sb(64, 64), sb(128, 64), sb(128, 64)),
        "dst must be in ['psum'], got sbuf",
    ),
    "matmul from psum": (
        lambda x: nisa.nc_matmul(ps(64, 64), ps(128, 64), sb(128, 64)),
        "stationary must be in ['sbuf'], got psum",
    ),
    "matmul from hbm": (
        lambda x: nisa.nc_matmul(ps(64, 64), sb(128, 64), x),
        "moving must be in ['sbuf'], got private_hbm",
    ),
    "copy to hbm": (
        lambda x: nisa.tensor_copy(hbm(128, 64), sb(128, 64)),
        "tensor_copy dst must be in ['sbuf','psum'], got shared_hbm",
    ),
    "contraction lengths": (
        lambda x: nisa.nc_matmul(ps(64, 64), sb(1, 64), sb(128, 64)),
        "Matmul contraction dimension mismatch: stationary[0]=1 != moving[0]=128",
    ),
    "slice past the end": (
        lambda x: sb(32, 4)[0:128],
        "on dimension 0: index range [0, 127] exceed dimension size of 32.",
    ),
    "big TensorE transpose": (
        lambda x: nisa.nc_transpose(ps(128, 1), sb(1, 256)),
        "Tensor engine transpose requires shape <= [128,128], got [1,256]",
    ),
    "int8 matmul": (
        lambda x: nisa.nc_matmul(ps(64, 64), sb(128, 64, dtype=nl.int8), sb(128, 64, dtype=nl.int8)),
        "nc_matmul stationary dtype int8 not supported",
    ),
    "reduced axes": (
        lambda x: nisa.tensor_reduce(sb(128, 3), nl.add, sb(128, 2, 3), axis=1),
        "tensor_reduce axis must be the last contiguous dim(s) of the tile",
    ),
    "partition axis": (lambda x: nisa.tensor_reduce(sb(1, 3), nl.add, sb(128, 3), axis=0), "axis must be the last"),
    "dma_transpose axes": (
        lambda x: nisa.dma_transpose(sb(64, 128), x, axes=(0, 1)),
        "dma_transpose axes must be one of [(1, 0), (2, 1, 0), (3, 1, 2, 0)], got (0, 1)",
    ),
    "empty dimension": (lambda x: sb(0, 32), "shape must be a tuple of positive integers, got (0,32)"),
    "reshape over partitions": (
        lambda x: sb(1, 32).reshape((4, 8)),
        "Partition dim size must be preserved, got 1 -> 4",
    ),
    # what the compiler or the chip refuses
    "129 partitions": (lambda x: sb(129, 1), "partition dimension 129 exceeds maximum 128"),
    "string buffer": (lambda x: nl.ndarray((1, 1), nl.float32, "sbuf"), "buffer must be nl.sbuf"),
    "float64": (lambda x: nl.ndarray((1, 1), "float64"), "dtype must be one of"),
    "int engine": (lambda x: nisa.tensor_copy(sb(1, 1), sb(1, 1), engine=5), "engine must be one of nisa.engine"),
    "moving 513 wide": (
        lambda x: nisa.nc_matmul(ps(64, 513), sb(128, 64), sb(128, 513)),
        "nc_matmul moving free size must be at most 512 on trn2, got 513",
    ),
    "129 columns stationary": (
        lambda x: nisa.nc_matmul(ps(128, 4), sb(128, 129), sb(128, 4)),
        "nc_matmul stationary free size must be at most 128, got 129",
    ),
    "matmul dst over two banks": (
        lambda x: nisa.nc_matmul(ps(64, 1024)[:, 400:600], sb(128, 64), sb(128, 200)),
        "nc_matmul dst must lie within one PSUM bank of 2048 bytes on trn2, got bytes [1600, 2400)",
    ),
    "matmul dst shape": (
        lambda x: nisa.nc_matmul(ps(64, 65), sb(128, 64), sb(128, 64)),
        "nc_matmul dst must be [64, 64]",
    ),
    "matmul dst bf16": (
        lambda x: nisa.nc_matmul(ps(64, 64, dtype=nl.bfloat16), sb(128, 64), sb(128, 64)),
        "nc_matmul dst dtype must be float32 on trn2, got bfloat16",
    ),
    "fp32 with bf16": (
        lambda x: nisa.nc_matmul(ps(64, 64), sb(128, 64), sb(128, 64, dtype=nl.bfloat16)),
        "pair only with each other, got stationary float32 and moving bfloat16",
    ),
    "OCP fp8 before trn3": (
        lambda x: nisa.nc_matmul(ps(4, 4), sb(8, 4, dtype=nl.float8_e4m3fn), sb(8, 4, dtype=nl.float8_e4m3fn)),
        "dtype float8_e4m3fn not supported on trn2",
    ),
    "double_row of bf16": (
        lambda x: nisa.nc_matmul(
            ps(4, 4),
            sb(8, 2, 4, dtype=nl.bfloat16),
            sb(8, 2, 4, dtype=nl.bfloat16),
            perf_mode=nisa.matmul_perf_mode.double_row,
        ),
        "double_row operands must be float8",
    ),
    "PE tile": (
        lambda x: nisa.nc_matmul(ps(4, 4), sb(8, 4), sb(8, 4), tile_size=(64, 128), tile_position=(32, 0)),
        "tile_position a multiple of it",
    ),
    "accumulate as int": (
        lambda x: nisa.nc_matmul(ps(4, 4), sb(8, 4), sb(8, 4), accumulate=1),
        "accumulate must be True or False, got 1",
    ),
    "start partition, 33 to 64": (
        lambda x: nisa.memset(sb(128, 4)[32:96], 0),
        "memset dst of 64 partitions must start at partition 0, 64, got 32",
    ),
    "start partition, up to 32": (
        lambda x: nisa.memset(sb(128, 4)[16:20], 0),
        "memset dst of 4 partitions must start at partition 0, 32, 64, 96, got 16",
    ),
    "start partition, over 64": (
        lambda x: nisa.memset(sb(128, 4)[32:128], 0),
        "memset dst of 96 partitions must start at partition 0, got 32",
    ),
    "partition step": (lambda x: sb(128, 4)[0:128:2], "slice on the partition dimension must have step 1, got 2"),
    "ap partition step": (
        lambda x: sb(16, 32).ap([[64, 8], [1, 32]]),
        "ap partition step must be the free size of the tensor, 32, got 64",
    ),
    "ap leaves its partition": (
        lambda x: nisa.memset(sb(16, 32).ap([[32, 8], [1, 16]], offset=20), 0),
        "leaves the 32 elements of a partition",
    ),
    "ap past the end": (
        lambda x: nisa.dma_copy(sb(128, 65), x.ap([[64, 128], [1, 65]])),
        "covers elements [0, 8192] of 8192",
    ),
    "free stride": (
        lambda x: nisa.memset(sb(8, 2, 33000, dtype=nl.uint8)[:, :, 0], 0),
        "memset dst free pattern must have counts up to 65535 and strides up to 32767, got [[33000, 2]]",
    ),
    "rank": (
        lambda x: nisa.memset(sb(8, 1, 1, 1, 1, 1), 0),
        "memset dst must have at most 5 dimensions, got shape (8, 1, 1, 1, 1, 1)",
    ),
    "two PSUM inputs": (
        lambda x: nisa.tensor_tensor(sb(8, 8), ps(8, 8), ps(8, 8), nl.add),
        "tensor_tensor data1 and data2 cannot both be in psum",
    ),
    "two PSUM inputs of a fused one": (
        lambda x: nisa.scalar_tensor_tensor(sb(8, 8), ps(8, 8), nl.add, 1.0, nl.add, ps(8, 8)),
        "scalar_tensor_tensor data and operand1 cannot both be in psum",
    ),
    "broadcast": (
        lambda x: nisa.tensor_tensor(sb(8, 8), sb(8, 8), sb(8, 1), nl.add),
        "must have the same number of elements per partition (nothing is broadcast), got (8, 8) and (8, 1)",
    ),
    "partition counts": (
        lambda x: nisa.tensor_tensor(sb(8, 8), sb(8, 8), sb(4, 16), nl.add),
        "must have the same partition dimension, got 8 and 4",
    ),
    "GpSimd on PSUM": (
        lambda x: nisa.tensor_copy(sb(8, 8), ps(8, 8), engine=nisa.engine.gpsimd),
        "tensor_copy src must be in ['sbuf'], got psum (GpSimd does not reach it)",
    ),
    "power on PSUM": (
        lambda x: nisa.tensor_tensor(sb(8, 8), ps(8, 8), sb(8, 8), nl.power),
        "tensor_tensor data1 must be in ['sbuf'], got psum (nl.power runs on GpSimd)",
    ),
    "DMA from PSUM": (
        lambda x: nisa.dma_copy(hbm(8, 8), ps(8, 8)),
        "dma_copy src must be in ['sbuf','private_hbm','shared_hbm'], got psum",
    ),
    "compute on HBM": (lambda x: nisa.memset(x, 0), "memset dst must be in ['sbuf','psum'], got private_hbm"),
    "array for a tile": (lambda x: nisa.tensor_copy(sb(8, 8), F32), "tensor_copy src must be a tensor, got ndarray"),
    "bf16 operand tile": (
        lambda x: nisa.tensor_scalar(sb(8, 8), sb(8, 8), nl.add, sb(8, 1, dtype=nl.bfloat16)),
        "tensor_scalar operand0 tile must be float32, got bfloat16",
    ),
    "operand tile shape": (
        lambda x: nisa.tensor_scalar(sb(8, 8), sb(8, 8), nl.add, sb(8, 2)),
        "operand0 must be a number or a (8, 1) tile, got shape (8, 2)",
    ),
    "bitwise with arithmetic": (
        lambda x: nisa.tensor_scalar(
            sb(8, 8, dtype=nl.int32), sb(8, 8, dtype=nl.int32), nl.bitwise_and, 1, op1=nl.add, operand1=1.0
        ),
        "op0 and op1 must both be bitwise or both arithmetic",
    ),
    "bitwise on floats": (
        lambda x: nisa.tensor_tensor(sb(8, 8), sb(8, 8), sb(8, 8), nl.bitwise_and),
        "data1 must be an integer tile for nl.bitwise_and, got float32",
    ),
    "operand without operator": (
        lambda x: nisa.tensor_scalar(sb(8, 8), sb(8, 8), nl.add, 1.0, operand1=2.0),
        "operand1 must be None without op1",
    ),
    "operand of a unary": (
        lambda x: nisa.tensor_scalar(sb(8, 8), sb(8, 8), nl.abs, 2.0),
        "operand0 of the unary nl.abs must be None or 0, got 2.0",
    ),
    "division": (
        lambda x: nisa.tensor_tensor(sb(8, 8), sb(8, 8), sb(8, 8), nl.divide),
        "op must be an ALU operator of nki.language, got nl.divide; multiply by nisa.reciprocal",
    ),
    "function as ALU operator": (
        lambda x: nisa.tensor_tensor(sb(8, 8), sb(8, 8), sb(8, 8), np.add),
        "op must be an ALU operator of nki.language, got <ufunc 'add'>",
    ),
    "comparison as reduction": (
        lambda x: nisa.tensor_reduce(sb(8, 1), nl.equal, sb(8, 8), axis=1),
        "op must be a reduction operator",
    ),
    "ALU operator on ScalarE": (
        lambda x: nisa.activation(sb(8, 8), nl.add, sb(8, 8)),
        "activation op must be an activation function of nki.language, got nl.add",
    ),
    "bf16 scale tile": (
        lambda x: nisa.activation(sb(8, 8), nl.exp, sb(8, 8), scale=sb(8, 1, dtype=nl.bfloat16)),
        "activation scale tile must be float32, got bfloat16",
    ),
    "reduction on ScalarE": (
        lambda x: nisa.activation_reduce(sb(8, 8), nl.exp, sb(8, 8), nl.maximum, sb(8, 1)),
        "activation_reduce reduce_op must be one of nl.add, got nl.maximum",
    ),
    "ScalarE arithmetic": (
        lambda x: nisa.tensor_scalar(sb(8, 8), sb(8, 8), nl.subtract, 1.0, engine=nisa.engine.scalar),
        "tensor_scalar on the scalar engine does only multiply then add, multiply, or add",
    ),
    "memset of the wrong kind": (
        lambda x: nisa.memset(sb(8, 8, dtype=nl.int32), 0.5),
        "memset value of a int32 tile must be an integer within it, got 0.5",
    ),
    "memset out of range": (lambda x: nisa.memset(sb(8, 8, dtype=nl.uint8), 256), "must be an integer within it"),
    "transpose dtype": (
        lambda x: nisa.nc_transpose(ps(64, 32), sb(32, 64, dtype=nl.bfloat16)),
        "nc_transpose dst dtype must be that of data, bfloat16, got float32",
    ),
    "VectorE transpose": (
        lambda x: nisa.nc_transpose(sb(33, 32), sb(32, 33)),
        "Vector engine transpose requires shape <= [32,32], got [32,33]",
    ),
    "hwdge cast": (
        lambda x: nisa.dma_copy(sb(128, 64, dtype=nl.bfloat16), x, dge_mode=nisa.dge_mode.hwdge),
        "dma_copy with hwdge cannot cast, got src float32, dst bfloat16",
    ),
    "DMA engine": (
        lambda x: nisa.dma_copy(sb(128, 64), x, engine=nisa.engine.sync),
        "engine must be sync or scalar with dge_mode hwdge, got sync with unknown",
    ),
    "dma_compute operator": (
        lambda x: nisa.dma_compute(sb(128, 64), [x, x], nl.multiply),
        "dma_compute does only nl.add with scales 1.0",
    ),
    "PSUM address": (
        lambda x: nl.ndarray((8, 8), nl.float32, nl.psum, address=(0, 1024)),
        "PSUM address must start on a bank (a multiple of 2048), got 1024",
    ),
    "output on chip": (lambda x: sb(8, 8), "kernel outputs must be in ['shared_hbm'], got `"),
    "private output": (lambda x: nl.ndarray((8, 8), nl.float32, nl.hbm), "got `` in private_hbm"),
    "number returned": (lambda x: 1, "a kernel returns tensors, got int 1"),
    "register from a tensor": (lambda x: nisa.register_alloc(sb(1, 1)), "register_alloc x must be None or an int"),
    "unset register": (
        lambda x: nl.fori_loop(0, nisa.register_alloc(), lambda i: None),
        "register is read before anything was moved or loaded into it",
    ),
    "float register": (
        lambda x: nisa.register_load(nisa.register_alloc(), sb(1, 1)),
        "register_load src must be an integer tensor, got float32",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    body, message = REFUSED[case]
    with pytest.raises(SimulationError, match=re.escape(message)):
        run(body, F32)


GENERATION = {
    "constant bias": (
        lambda x: nisa.activation(sb(8, 8), nl.exp, nl.zeros((8, 8), nl.float32), bias=1.0),
        "trn1",
        "trn2",
        "activation bias must be a (8, 1) tile on trn1",
    ),
    "bias of a reciprocal": (
        lambda x: nisa.activation(
            sb(8, 8), nl.reciprocal, nl.ones((8, 8), nl.float32), bias=nl.zeros((8, 1), nl.float32)
        ),
        "trn1",
        "trn2",
        "activation with nl.reciprocal takes no bias on trn1",
    ),
    "copy on ScalarE": (
        lambda x: nisa.tensor_copy(sb(8, 8), sb(8, 8), engine=nisa.engine.scalar),
        "trn1",
        "trn2",
        "tensor_copy on the scalar engine needs trn2 or later",
    ),
    "hwdge": (
        lambda x: nisa.dma_copy(sb(128, 64), x, dge_mode=nisa.dge_mode.hwdge),
        "trn1",
        "trn2",
        "dge_mode hwdge needs trn2 or later, got trn1",
    ),
    "wide moving": (
        lambda x: nisa.nc_matmul(ps(64, 1024), sb(128, 64), sb(128, 1024)),
        "trn2",
        "trn3",
        "at most 512 on trn2, got 1024",
    ),
    "bf16 product": (
        lambda x: nisa.nc_matmul(ps(64, 4, dtype=nl.bfloat16), sb(128, 64), sb(128, 4)),
        "trn2",
        "trn3",
        "must be float32 on trn2, got bfloat16",
    ),
    "32-row PE tiles": (
        lambda x: nisa.nc_matmul(ps(4, 4), sb(8, 4), sb(8, 4), tile_size=(32, 32), tile_position=(32, 96)),
        "trn1",
        "trn2",
        "tile_size must be of (64, 128) on trn1",
    ),
    "absolute maximum": (
        lambda x: nisa.tensor_tensor(sb(8, 8), sb(8, 8), sb(8, 8), nl.abs_max),
        "trn2",
        "trn3",
        "op nl.abs_max needs gen4, got trn2",
    ),
    "DMA priority": (
        lambda x: nisa.dma_copy(sb(128, 64), x, priority=1),
        "trn2",
        "trn3",
        "dma_copy priority must be 0 to 3 and needs trn3",
    ),
    "200 KiB": (lambda x: nisa.memset(sb(128, 51200), 0), "trn1", "trn2", "takes 204800 bytes per partition; trn1 has"),
}


@pytest.mark.parametrize("case", GENERATION)
def test_refused_by_the_older_generation_only(case):
    body, older, newer, message = GENERATION[case]
    with pytest.raises(SimulationError, match=re.escape(message)):
        run(body, F32, target=older)
    run(body, F32, target=newer)


TYPE_ERRORS = {
    "product of tensors": (lambda x: sb(4, 4) * sb(4, 4), r"unsupported operand type\(s\) for \*: 'NkiTensor'"),
    "sum in place": (lambda x: operator.iadd(sb(4, 4), 1), r"unsupported operand type\(s\) for \+=: 'NkiTensor'"),
    "with an array": (lambda x: F32 * x, r"unsupported operand type\(s\) for \*: 'numpy.ndarray' and 'NkiTensor'"),
    "assignment": (lambda x: sb(4, 4).__setitem__(..., 0), "cannot be assigned to"),
    "iteration": (lambda x: list(sb(4, 4)), "'NkiTensor' object is not iterable"),
    "as an array": (lambda x: np.asarray(sb(4, 4)), "cannot become a NumPy array"),
    "register as a number": (lambda x: range(nisa.register_alloc(3)), "no value while the kernel is being built"),
    "register as a condition": (lambda x: not nisa.register_alloc(3), "no value while the kernel is being built"),
    "unknown keyword": (
        lambda x: nisa.tensor_copy(dst=sb(4, 4), src=sb(4, 4), mask=None),
        "got an unexpected keyword argument 'mask'",
    ),
    "dst left out": (lambda x: nisa.tensor_copy(src=sb(4, 4)), "missing 1 required positional argument: 'dst'"),
    "dtype= of old times": (lambda x: nisa.tensor_copy(sb(4, 4), sb(4, 4), dtype=nl.float32), "'dtype'"),
}


@pytest.mark.parametrize("case", TYPE_ERRORS)
def test_python_refuses(case):
    body, message = TYPE_ERRORS[case]
    with pytest.raises(TypeError, match=message):
        run(body, F32)


def test_instructions_return_nothing():
    def body(x):
        assert nisa.memset(sb(4, 4), 0) is None
        assert nisa.dma_copy(sb(128, 64), x) is None

    run(body, F32)


def test_instructions_need_a_kernel():
    with pytest.raises(SimulationError, match="only inside a running kernel"):
        nl.ndarray((4, 4), nl.float32)


def test_dma_may_start_at_any_partition():
    def body(x):
        tile, out = nl.zeros((128, 64), nl.float32), hbm(3, 64)
        nisa.dma_copy(tile[17:20], x[1:4])
        nisa.dma_copy(out, tile[17:20])
        return out

    x = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    np.testing.assert_array_equal(run(body, x), x[1:4])
