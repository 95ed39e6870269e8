"""The vendor's examples (aws-neuron-sdk, nki-samples) and nkipy's kernels, with expected values from NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from scripts.conformance.cases import Case, load

BF16 = ml_dtypes.bfloat16
CASES: list[Case] = []
Run = Callable[[Path], Any]


def case(source: str, kernel: str, shapes: str, *targets: str, **tolerances) -> Callable[[Run], Run]:
    """Register the decorated ``run(root)`` once for each target."""

    def register(run):
        CASES.extend(Case(source, kernel, shapes, target, run, **tolerances) for target in targets)
        return run

    return register


def simulate(kernel: Any, *args, **kwargs) -> list[Any]:
    """Run ``kernel`` on the simulator; the outputs as a list."""
    import nki

    out = nki.simulate(kernel)(*args, **kwargs)
    return list(out) if isinstance(out, (tuple, list)) else [out]


def normal(*shape: int, dtype: Any = np.float32, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def example(root: Path, name: str) -> ModuleType:
    return load(root / "nki/examples" / name)


# ---- matrix multiplication ------------------------------------------------------------------------------------------

SMALL_BLOCKS = {"TILES_IN_BLOCK_M": 2, "TILES_IN_BLOCK_N": 1, "TILES_IN_BLOCK_K": 2}
MATMULS: tuple[tuple[str, tuple[int, int, int], dict[str, int]], ...] = (
    ("nki_matmul_basic_", (64, 128, 512), {}),
    ("nki_matmul_tiled_", (256, 384, 512), {}),
    ("nki_matmul_tiled_", (128, 128, 512), {}),
    ("nki_matmul_hoist_load_", (384, 256, 1024), {}),
    ("nki_matmul_block_free_dimension_", (512, 256, 2048), {}),
    ("nki_matmul_fully_optimized_", (256, 512, 1024), SMALL_BLOCKS),
    ("nki_matmul_fully_optimized_", (2048, 1024, 1024), {}),
)
# These samples still pass the dtype that tensor_copy took before dst decided it.
OLD_COPY = "unexpected keyword argument 'dtype'"
OLD_COPIES = ("nki_matmul_basic_", "nki_matmul_tiled_", "nki_matmul_hoist_load_")


def _matmul(folder: str, kernel: str, m: int, k: int, n: int, options: dict[str, Any]):
    def run(root: Path):
        module = load(root / folder / "matrix_multiplication_nki_kernels.py")
        a_t, b = normal(k, m, dtype=BF16, seed=1), normal(k, n, dtype=BF16, seed=2)
        got = simulate(getattr(module, kernel), a_t, b, **options)
        return got, [a_t.astype(np.float64).T @ b.astype(np.float64)]

    return run


for _source, _folder in (
    ("sdk", "nki/examples/matrix_multiplication"),
    ("samples", "src/nki_samples/tutorials/matrix_multiplication"),
):
    for _kernel, (_m, _k, _n), _options in MATMULS:
        case(
            _source,
            _kernel,
            f"{_m}x{_k}x{_n} bf16",
            "trn1",
            "trn2",
            rtol=1e-2,
            atol=1e-4,
            refused=OLD_COPY if _source == "samples" and _kernel in OLD_COPIES else "",
        )(_matmul(_folder, _kernel, _m, _k, _n, _options))


# ---- scans, pooling, transposes, additions ---------------------------------------------------------------------------


def _mamba(version: str, batch: int, channels: int, seq: int, state: int):
    def run(root: Path):
        module = example(root, "fused_mamba/mamba_nki_kernels.py")
        delta, u = np.abs(normal(batch, channels, seq, seed=3)), normal(batch, channels, seq, seed=4)
        a = -np.abs(normal(channels, state, seed=5))
        b, c = normal(batch, state, seq, seed=6), normal(batch, state, seq, seed=8)
        got = simulate(getattr(module, version), delta, u, a, b, c)
        h, want = np.zeros((batch, channels, state)), np.empty((batch, channels, seq))
        for t in range(seq):
            h = np.exp(delta[:, :, None, t] * a) * h + (delta * u)[:, :, None, t] * b[:, None, :, t]
            want[:, :, t] = np.einsum("bcs,bs->bc", h, c[:, :, t])
        return got, [want]

    return run


for _version in ("mamba_v1", "mamba_v2", "mamba_v3"):
    case("sdk", _version, "1x256x512 state 16", "trn1", "trn2", rtol=1e-5)(_mamba(_version, 1, 256, 512, 16))
    case("sdk", _version, "2x128x512 state 3", "trn2", rtol=1e-5)(_mamba(_version, 2, 128, 512, 3))


def _pool(name: str, kernel: str, c: int, h: int, w: int, p: int, dtype: Any, reduce: Any):
    def run(root: Path):
        x = normal(c, h, w, dtype=dtype)
        got = simulate(getattr(example(root, name), kernel), x, p)
        windows = x.astype(np.float64).reshape(c, h // p, p, w // p, p)
        return got, [reduce(windows, axis=(2, 4))]

    return run


for _c, _h, _w, _p, _dtype, _label in (
    (2, 6, 6, 2, np.float16, "2x6x6/2 fp16"),
    (13, 9, 21, 3, np.float32, "13x9x21/3 fp32"),
    (128, 14, 14, 7, np.float32, "128x14x14/7 fp32"),
):
    case("sdk", "tensor_avgpool_kernel", _label, "trn1", "trn2", rtol=2e-3)(
        _pool("average_pool2d/average_pool2d_nki_kernels.py", "tensor_avgpool_kernel", _c, _h, _w, _p, _dtype, np.mean)
    )
    case("sdk", "index-case-3 maxpool", _label, "trn1", "trn2", rtol=1e-6)(
        _pool("index-case-3.py", "tensor_maxpool_kernel_", _c, _h, _w, _p, _dtype, np.max)
    )


def _transpose2d(p: int, x: int, y: int, dtype: Any):
    def run(root: Path):
        a = (np.arange(p * x * y) % 251 - 120).astype(dtype).reshape(p, x * y)
        got = simulate(example(root, "transpose2d/transpose2d_nki_kernels.py").tensor_transpose2D_kernel_, a, (x, y))
        return got, [a.reshape(p, x, y).transpose(0, 2, 1).reshape(p, x * y)]

    return run


case("sdk", "tensor_transpose2D_kernel_", "5x(3,4) int8", "trn1", "trn2")(_transpose2d(5, 3, 4, np.int8))
case("sdk", "tensor_transpose2D_kernel_", "128x(7,11) fp32", "trn1", "trn2")(_transpose2d(128, 7, 11, np.float32))


def _add(name: str, kernel: str, m: int, n: int, dtype: Any, source: str = "sdk"):
    def run(root: Path):
        a, b = normal(m, n, dtype=dtype, seed=1), normal(m, n, dtype=dtype, seed=2)
        module = example(root, name) if source == "sdk" else load(root / name)
        return simulate(getattr(module, kernel), a, b), [a.astype(np.float64) + b.astype(np.float64)]

    return run


case("sdk", "nki_tensor_add", "256x1024 bf16", "trn1", rtol=1e-2)(
    _add("tensor_addition/tensor_addition_nki_kernels.py", "nki_tensor_add", 256, 1024, BF16)
)
for _name in ("getting_started_torch.py", "getting_started_baremetal.py", "getting_started_jax.py"):
    case("sdk", f"{_name[:-3]} add", "4x3 fp16", "trn1", "trn2", rtol=1e-3)(
        _add(_name, "nki_tensor_add_kernel", 4, 3, np.float16)
    )
case("sdk", "simulate example (whole file)", "128x512 fp32", "trn2")(
    _add("simulate/nki_simulate_example.py", "add_kernel", 128, 512, np.float32)
)


@case("sdk", "layout-violation", "256x512 bf16", "trn1", "trn2", refused="partition")
def layout_violation(root: Path):
    return simulate(example(root, "layout-violation.py").tensor_exp_kernel_, normal(256, 512, dtype=BF16)), []


@case("sdk", "layout-pass exp", "128x512 bf16", "trn1", "trn2", rtol=1e-2)
def layout_pass(root: Path):
    x = normal(128, 512, dtype=BF16)
    return simulate(example(root, "layout-pass.py").tensor_exp_kernel_, x), [np.exp(x.astype(np.float64))]


@case("sdk", "index-case-1 split", "4x5 bf16", "trn1", "trn2", "trn3")
def index_split(root: Path):
    x = np.arange(20).reshape(4, 5).astype(BF16)
    return simulate(example(root, "index-case-1.py").tensor_split_kernel_, x), [x[:, ::2], x[:, 1::2]]


# ---- microscaling formats (trn3) -------------------------------------------------------------------------------------


def _mx(root: Path) -> tuple[ModuleType, ModuleType]:
    folder = root / "nki/deep-dives/src/mxfp-matmul"
    return load(folder / "mx_kernels.py", beside=True), load(folder / "mx_cpu_utils.py")


def _x4(dtype: Any) -> object:
    import nki.language as nl

    return getattr(nl, f"{np.dtype(dtype).name}_x4")


def _mx_offline(dtype: Any):
    def run(root: Path):
        kernels, cpu = _mx(root)
        _, _, stationary, s_scale = cpu.generate_stabilized_mx_data(dtype, (128, 128 * 4))
        _, _, moving, m_scale = cpu.generate_stabilized_mx_data(dtype, (128, 512 * 4))
        kernel = kernels.kernel_offline_quantized_mx_matmul
        got = simulate(kernel, stationary, s_scale, moving, m_scale, _x4(dtype))
        return got, [cpu.nc_matmul_mx_golden(stationary, moving, s_scale, m_scale, dtype, dtype)]

    return run


def _mx_quantize(dtype: Any, moving_dtype: Any):
    def run(root: Path):
        kernels, cpu = _mx(root)
        _, _, stationary, s_scale = cpu.generate_stabilized_mx_data(dtype, (128, 128 * 4))
        moving, _, _, _ = cpu.generate_stabilized_mx_data(moving_dtype, (128, 512 * 4))
        kernel = kernels.kernel_on_device_quantize_matmul_mx
        got = simulate(kernel, stationary, s_scale, moving.astype(BF16), _x4(dtype), _x4(moving_dtype))
        quantized, m_scale = cpu.quantize_mx_golden(moving, moving_dtype)
        return got, [cpu.nc_matmul_mx_golden(stationary, quantized, s_scale, m_scale, dtype, moving_dtype)]

    return run


def _mx_strided(dtype: Any, use_tensor_copy: bool, packed: bool):
    def run(root: Path):
        kernels, cpu = _mx(root)
        stationary, *_ = cpu.generate_stabilized_mx_data(dtype, (512, 128))
        moving, *_ = cpu.generate_stabilized_mx_data(dtype, (512, 512))
        name = "kernel_copy_strided_quantize_matmul_mx" + ("_packed_scale" if packed else "")
        args = stationary.astype(BF16), moving.astype(BF16), _x4(dtype), use_tensor_copy
        return simulate(getattr(kernels, name), *args), [stationary.T @ moving]

    return run


E5M2, E4M3, E2M1 = ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn
for _dtype in (E5M2, E4M3, E2M1):
    case("sdk", "mx offline", np.dtype(_dtype).name, "trn3", rtol=5e-2)(_mx_offline(_dtype))
for _pair in ((E2M1, E5M2), (E5M2, E5M2), (E4M3, E4M3)):
    _label = " @ ".join(np.dtype(d).name for d in _pair)
    case("sdk", "mx on-device quantize", _label, "trn3", rtol=5e-2)(_mx_quantize(*_pair))
for _copy in (True, False):
    for _packed in (True, False):
        _label = f"{'tensor_copy' if _copy else 'dma'}, {'packed' if _packed else 'separate'} scales"
        case("sdk", "mx copy strided", _label, "trn3", rtol=5e-2)(_mx_strided(E5M2, _copy, _packed))
case("sdk", "mx offline", "float8_e5m2", "trn2", refused="trn3")(_mx_offline(E5M2))


# ---- nkipy -----------------------------------------------------------------------------------------------------------


def _rmsnorm(rows: int, hidden: int, dtype: Any):
    def run(root: Path):
        module = load(root / "examples/models/gpt_oss/kernels/nki/rmsnorm.py")
        x, w = normal(rows, hidden, dtype=dtype), normal(hidden, dtype=dtype, seed=9)
        got = simulate(module.nki_rmsnorm_kernel, x, w, 1e-5)
        wide = x.astype(np.float64)
        return got, [wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * w.astype(np.float64)]

    return run


case("nkipy", "nki_rmsnorm_kernel", "128x512 fp32", "trn1", "trn2", rtol=1e-5)(_rmsnorm(128, 512, np.float32))
case("nkipy", "nki_rmsnorm_kernel", "131x384 bf16", "trn2", rtol=2e-2)(_rmsnorm(131, 384, BF16))


@case("nkipy", "simple_nki_kernel add", "128x512 fp32", "trn2", refused="index of `a_input`")
def simple_nki_kernel(root: Path):
    sys.modules.update({n: ModuleType(n) for n in ("nkipy", "nkipy.core", "nkipy.runtime")})
    vars(sys.modules["nkipy.core"])["nki_op"] = None
    vars(sys.modules["nkipy.runtime"]).update(DeviceKernel=None, DeviceTensor=None)
    module = load(root / "examples/playground/simple_nki_kernel.py")
    a, b = normal(128, 512, seed=1), normal(128, 512, seed=2)
    return simulate(module.nki_tensor_add, a, b), [a + b]
