"""Kernels of nki-library, run by the library's own tests with their inputs, PyTorch references and tolerances.

A test of the library builds inputs from its parameters and hands kernel, inputs and expected outputs to a manager,
which compiles and runs on the device. Here the manager runs ``nki.simulate`` instead. Which parameter sets are run is
chosen below by size, so that one case stays within a minute or two.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from scripts.conformance import shims
from scripts.conformance.cases import Case


@dataclass(frozen=True)
class Pick:
    """Parameter sets of one test: places in the product of its ``parametrize`` marks, or values for a sweep's names.

    ``replaced``, (module, constant, name in nki.isa), replaces a constant of the library that current nki refuses.
    """

    module: str
    test: str
    places: tuple[int, ...] = (0,)
    values: tuple[tuple[tuple[str, object], ...], ...] = ()
    target: str = "trn2"
    refused: str = ""
    refused_07: str = ""
    replaced: tuple[str, str, str] | None = None


def sweep(module: str, test: str, *sets: dict[str, Any], **options) -> Pick:
    return Pick(module, test, (), tuple(tuple(s.items()) for s in sets), **options)


# What the library of that date does and current versions of nki, or Python itself, do not take.
RAW_ENUM = "dge_mode must be nisa.dge_mode."  # an integer for an enumeration member
STATIC_DMA = ("core.subkernels.norm_tkg_utils", "_DGE_MODE_NONE", "dge_mode.none")
OVER_SBUF = "sbuf holds"  # tiles beyond SBUF, every tile charged on all partitions; the compiler packs or spills them
OLD_LOOP = "nl.dynamic_range does not exist in NKI 0.7"
MISSING_FIELD = "argument: 'remainderIFused'"  # of a dataclass

# Tests of microscaling kernels need the vendor's packed NumPy dtypes and are not among them.
PICKS = (
    Pick("core.cumsum.test_cumsum", "test_cumsum_fast", (0, 1, 2)),
    sweep(
        "core.cumsum.test_cumsum",
        "test_cumsum_sweep",
        {"batch": 256, "hidden": 4096, "ndim": 2, "seq_len": 1, "dtype": np.float32},
        {"batch": 3, "hidden": 257, "ndim": 3, "seq_len": 7, "dtype": np.float32},
    ),
    Pick("core.max.test_cascaded_max", "test_cascaded_max_unit", tuple(range(14))),
    Pick("core.max.test_cascaded_max_utils", "test_folded_load_store_full_batch", tuple(range(14))),
    Pick("core.max.test_cascaded_max_utils", "test_folded_load_store_partial_batch", tuple(range(13))),
    sweep(
        "core.embeddings.test_rope",
        "test_rope_sweep",
        {"d_head": 64, "B": 1, "n_heads": 1, "S": 16, "contiguous_layout": True, "relayout_in_sbuf": False},
        {"d_head": 128, "B": 8, "n_heads": 8, "S": 128, "contiguous_layout": False, "relayout_in_sbuf": False},
        {"d_head": 128, "B": 1, "n_heads": 8, "S": 16, "contiguous_layout": False, "relayout_in_sbuf": True},
    ),
    Pick("core.max.test_cascaded_max_utils", "test_folded_load_oversized_sb", tuple(range(7))),
    Pick("core.embeddings.test_rope", "test_rope_manual", (0,), refused=OVER_SBUF),
    Pick("core.embeddings.test_rope_hf", "test_rope_hf_lnc", tuple(range(12))),
    Pick("core.embeddings.test_rope_hf", "test_rope_hf_cache", (0, 5)),
    Pick("core.rmsnorm.test_rmsnorm_quant", "test_rmsnorm_quant_lnc_unit", (0, 2, 5, 9, 10)),
    Pick("core.rmsnorm.test_rmsnorm_quant", "test_rmsnorm_quant_vnc_unit", (0, 2)),
    Pick("core.subkernels.test_rmsnorm_tkg", "test_rmsnorm_tkg_unit", (0,), refused=RAW_ENUM),
    Pick("core.subkernels.test_rmsnorm_tkg", "test_rmsnorm_tkg_unit", (0, 1, 2, 3, 4, 5, 7), replaced=STATIC_DMA),
    Pick("core.subkernels.test_layernorm_tkg", "test_layernorm_tkg_unit", (0,), refused=RAW_ENUM),
    Pick("core.subkernels.test_layernorm_tkg", "test_layernorm_tkg_unit", (0, 1, 2, 4), replaced=STATIC_DMA),
    Pick("core.subkernels.test_find_nonzero_indices", "test_find_nonzero_indices_fast", (0, 1)),
    Pick("core.subkernels.test_find_nonzero_indices", "test_find_nonzero_indices_with_col_start_fast", (0, 1)),
    Pick("core.subkernels.test_indexed_flatten", "test_indexed_flatten_fast", (0, 1, 3, 5)),
    Pick("core.subkernels.test_indexed_flatten", "test_indexed_flatten_row_offsets_start", (0, 1)),
    Pick("core.utils.test_cross_partition_copy", "test_cross_partition_copy", tuple(range(20))),
    Pick("core.utils.test_tp_broadcast", "test_tp_broadcast", (0, 1, 2, 3)),
    Pick("core.utils.test_tensor_view", "test_slice", (0, 9, 23)),
    Pick("core.utils.test_tensor_view", "test_reshape", tuple(range(0, 30, 3))),
    Pick("core.utils.test_tensor_view", "test_permute", (0, 3, 6, 9)),
    Pick("core.utils.test_tensor_view", "test_broadcast", (0, 4, 8)),
    Pick("core.utils.test_tensor_view", "test_chain", tuple(range(0, 26, 3))),
    Pick("core.utils.test_tensor_view", "test_negative_chain", tuple(range(6))),
    Pick("core.utils.test_tensor_view", "test_dynamic_select", tuple(range(11))),
    Pick("core.output_projection.test_output_proj_cte", "test_output_proj_cte_bf16_unit", (0, 1, 5, 6, 7)),
    Pick("core.output_projection.test_output_proj_cte", "test_output_proj_cte_static_fp8_unit", (0, 5)),
    Pick("core.output_projection.test_output_proj_tkg", "test_output_proj_tkg_unit", (1, 2, 4)),
    Pick("core.output_projection.test_output_proj_tkg", "test_output_proj_tkg_sweep_manual", (0, 1)),
    Pick("core.qkv.test_qkv_cte", "test_qkv_cte_accuracy_unit", (0, 2, 3, 5, 7, 11, 12)),
    Pick("core.qkv.test_qkv_cte", "test_qkv_cte_fused_rope_unit", (0, 4, 9)),
    Pick("core.qkv.test_qkv_cte", "test_qkv_cte_block_kv_cache", (0, 1, 2)),
    Pick("core.qkv.test_qkv_cte", "test_qkv_cte_fp8_kv_cache_quantization", (0, 1, 3)),
    Pick("core.qkv.test_qkv_cte", "test_qkv_cte_no_dma_transpose_unit", (5, 10)),
    Pick("core.qkv.test_qkv_cte", "test_qkv_cte_static_quantization", (0,), refused="perf_mode must be one of"),
    Pick("core.router_topk.test_router_topk", "test_router_topk", (0, 6, 12)),
    Pick("core.topk.test_topk", "test_topk_unit", (0, 6, 8)),
    Pick("core.topk.test_topk", "test_topk_unsorted", (0, 1, 2)),
    Pick("core.attention.test_attention_bwd", "test_attention_bwd_sequence_packing", (0, 1, 2, 5, 6)),
    Pick("core.attention.test_attention_bwd", "test_attention_bwd_fast", (0, 6)),
    Pick("core.attention.test_attention_cte", "test_attention_cte_no_cp_unit", (0, 1)),
    Pick("core.attention.test_attention_cte", "test_attention_cte_seq_pack_unit", (0,)),
    Pick("core.attention.test_attention_cte", "test_attention_cte_cp_apc_klr_unit", (0,)),
    Pick("core.attention.test_attention_cte", "test_attention_cte_no_cp_vnc_gqa_unit", (0,)),
    Pick("core.attention.test_attention_tkg", "test_attn_tkg_fast", tuple(range(0, 200, 20))),
    Pick("core.attention.test_attention_tkg", "test_attn_tkg_slow", (0, 14)),
    Pick("core.attention.test_gen_mask_tkg", "test_flat_kv", (0, 1, 4, 8)),
    Pick("core.attention.test_gen_mask_tkg", "test_block_kv", (0, 3, 7)),
    Pick("core.attention.test_gen_mask_tkg", "test_swa", (0, 4, 8)),
    Pick("core.attention.test_gen_mask_tkg", "test_active_mask", (0, 6, 12)),
    Pick("core.attention.test_gen_mask_tkg", "test_fa_tiling_with_active_mask", (0, 3, 6)),
    Pick("core.mlp.test_mlp_cte", "test_mlp_cte_unit", (0,), refused="unexpected indent"),
    Pick("core.moe.moe_cte.test_moe_cte", "test_moe_blockwise_mm_kernel_lnc2", (13,)),
    Pick("core.moe.moe_tkg.test_moe_tkg", "test_moe_tkg_bfloat16", (2,), refused=MISSING_FIELD),
    Pick("experimental.conv.test_conv1d", "test_conv1d_basic", tuple(range(30))),
    Pick("experimental.conv.test_conv1d", "test_conv1d_whisper", (0, 1, 2, 3)),
    Pick("experimental.conv.test_depthwise_conv1d", "test_depthwise_conv1d_fast", (0, 1, 2, 3)),
    Pick("experimental.conv.test_depthwise_conv1d", "test_depthwise_conv1d_all", (0, 6, 12, 18, 24)),
    Pick("experimental.benchmark.test_find_nonzero_indices_with_count", "test_find_nonzero_indices_unit", (0, 9, 18)),
    sweep(
        "experimental.dynamic_shapes.test_dynamic_elementwise_add",
        "test_dynamic_elementwise_add_fast",
        {"m_dim": 128, "h_dim": 512},
        {"m_dim": 256, "h_dim": 1024},
        refused_07=OLD_LOOP,
    ),
)


class Manager:
    """What the library's tests call to run a kernel; keeps what it got and what was expected."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.expected: list[Any] = []
        self.rtol, self.atol = 0.0, 0.0

    def execute(self, job) -> None:
        import nki

        os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = job.compiler_input.platform_target.get_compile_target()
        cores = job.compiler_input.logical_nc_config
        inputs = {name.removesuffix(".must_alias_input"): value for name, value in (job.kernel_input or {}).items()}
        kernel = job.kernel_func if hasattr(job.kernel_func, "__getitem__") else nki.jit(job.kernel_func)
        out = nki.simulate(kernel[cores] if cores > 1 else kernel)(**inputs)
        out = list(out) if isinstance(out, (tuple, list)) else [out]
        check = job.validation_args
        golden = getattr(check.golden_output, "golden", check.golden_output)
        if golden is None:  # the kernel holds its own assertions
            return
        for got, want in zip(out, golden.values(), strict=True):
            validator = getattr(want, "validator", None)
            if validator is not None:
                ok = validator(logfile=None).validate(np.asarray(got, want.output_ndarray.dtype))
                got, want = np.array([float(ok)]), np.array([1.0])
            self.results.append(got)
            self.expected.append(want)
        self.rtol, self.atol = check.relative_accuracy, check.absolute_accuracy


@dataclass(frozen=True)
class LibraryRun:
    """Callable of a Case: runs one parameter set of one of the library's tests."""

    pick: Pick
    place: int
    values: tuple[tuple[str, object], ...]

    def __call__(self, root: Path):
        manager = Manager()
        test, owner = find(root, self.pick)
        if self.pick.replaced:
            module, constant, name = self.pick.replaced
            value = functools.reduce(getattr, name.split("."), importlib.import_module("nki.isa"))
            setattr(importlib.import_module(f"nkilib_src.nkilib.{module}"), constant, value)
        values = dict(self.values) or parameters(test)[self.place]
        test(owner, **fixtures(test, manager) | values) if owner else test(**fixtures(test, manager) | values)
        return manager


def find(root: Path, pick: Pick) -> tuple[Any, Any]:
    """The test function and an instance of its class, if it has one."""
    shims.install()
    for path in (str(root), str(root / "src")):
        if path not in sys.path:
            sys.path.insert(0, path)
    module = importlib.import_module(f"test.integration.nkilib.{pick.module}")
    if hasattr(module, pick.test):
        return getattr(module, pick.test), None
    for cls in vars(module).values():
        if inspect.isclass(cls) and cls.__module__ == module.__name__ and hasattr(cls, pick.test):
            return getattr(cls, pick.test), cls()
    raise LookupError(f"{module.__name__} has no test {pick.test}")


def parameters(test: object) -> list[dict[str, Any]]:
    """The parameter sets of the test's ``parametrize`` marks, the last mark varying slowest."""
    marks = [m for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"]
    axes = []
    for mark in reversed(marks):
        names = mark.args[0]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        rows = [getattr(row, "values", row) for row in mark.args[1]]
        axes.append([dict(zip(names, row if len(names) > 1 else [one(row)], strict=True)) for row in rows])
    return [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*axes)]


def one(row: object) -> object:
    return row[0] if isinstance(row, tuple) and len(row) == 1 else row


def fixtures(test: Any, manager: Manager) -> dict[str, Any]:
    """What pytest would inject, of the fixtures that the test names."""
    from test.utils.common_dataclasses import Platforms
    from test.utils.metrics_collector import NoopMetricsCollector

    known = {
        "test_manager": lambda: manager,
        "collector": NoopMetricsCollector,
        "platform_target": lambda: Platforms(os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"]),
        "is_negative_test_case": lambda: False,
        "request": lambda: SimpleNamespace(node=SimpleNamespace(callspec=SimpleNamespace(id=""))),
    }
    return {name: known[name]() for name in inspect.signature(test).parameters if name in known}


def cases() -> Iterator[Case]:
    for pick in PICKS:
        label = f"{pick.module.rsplit('.test_', 1)[-1]}.{pick.test.removeprefix('test_')}"
        refusals: dict[str, Any] = {"refused": pick.refused, "refused_07": pick.refused_07}
        for place in pick.places:
            note = f", {pick.replaced[1]} = {pick.replaced[2]}" if pick.replaced else ""
            yield Case("library", label, f"set {place}{note}", pick.target, LibraryRun(pick, place, ()), **refusals)
        for place, values in enumerate(pick.values):
            shapes = " ".join(f"{k}={getattr(v, '__name__', v)}" for k, v in values)
            yield Case("library", label, shapes, pick.target, LibraryRun(pick, place, values), **refusals)
