"""The choice of a kernel's form for GPUs, what ptxas makes of it, and that every form computes the same."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from tests.eri import quartets
from trnqc import jit
from trnqc.eri.classes import QuartetClass
from trnqc.eri.cuda.batch import work_recipe
from trnqc.eri.cuda.forms import first_sound
from trnqc.eri.cuda.tiers import (
    MOST_WARPS,
    MULTIPROCESSOR_SHARED,
    REGISTER_VALUES,
    RESERVED_SHARED,
    SHARED_BYTES,
    SHARED_LANES,
    Tier,
    absurd,
    candidates,
    live,
    tile_beside,
)
from trnqc.eri.jk.batch import Batch
from trnqc.eri.kernels.parameters import parameters, target_count
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.gen import Array, emit_cuda
from trnqc.jit.device import BuiltKernel
from trnqc.jit.nvcc import ABSURD_SPILL

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="needs the CUDA compiler")


def of(digits: str, **more) -> QuartetClass:
    return QuartetClass(*map(int, digits), **more)


@pytest.mark.parametrize(
    "digits, first",
    [
        ("0000", "registers"),
        ("1010", "registers"),
        ("1111", "registers"),
        ("2110", "registers"),
        ("2111", "shared"),
        ("2121", "memory"),
        ("3232", "columns"),
    ],
)
def test_the_first_choice(digits, first):
    assert next(candidates(of(digits))).name == first


@pytest.mark.parametrize("digits", ["1000", "1111", "2020", "2111", "2210", "2121"])
def test_forms_keep_the_rules(digits):
    cls = of(digits)
    results = list(candidates(cls))
    names = [tier.name for tier in results]
    assert names[-1] == "columns" and len({(t.name, t.accumulate) for t in results}) == len(results)
    h, draws = target_count(cls), results[0].variant.draws
    assert ("registers" in names) == (h + live(cls.shells, draws) <= REGISTER_VALUES)
    assert ("shared" in names) == (h * 8 * SHARED_LANES <= SHARED_BYTES)


class Told:
    """A device that builds nothing: its kernels have the stacks and resident warps that it is told, by their tiers."""

    name, most_lanes = "told", 1024

    def __init__(self, **told: tuple[int, int]) -> None:
        self.told, self.built = told, []

    def build(self, recipe, lanes, *, accumulate="fence", min_blocks=0) -> BuiltKernel:
        word = "targets" if recipe.name.startswith("targets") else recipe.name.rpartition("_")[2]
        self.built.append(word)
        stack, warps = self.told.get("atomic" if accumulate == "atomic" else word, (0, 0))
        return BuiltKernel(recipe.signatures[0], lanes, None, stack, warps=warps)


@pytest.mark.parametrize(
    ("digits", "told", "chosen", "tried"),
    [
        ("2111", {"shared": (0, 7)}, "shared", ["shared"]),
        ("2111", {"shared": (0, 0)}, "shared", ["shared"]),
        ("2111", {"shared": (0, 4), "memory": (0, 8)}, "memory", ["shared", "memory"]),
        ("2111", {"shared": (0, 4), "memory": (8, 8), "atomic": (0, 4)}, "shared", ["shared", "memory", "memory"]),
        # Of two that move nothing, the one with more warps, although neither has enough of them.
        ("2111", {"shared": (0, 4), "memory": (0, 5), "atomic": (0, 4)}, "memory", ["shared", "memory", "memory"]),
        # The targets of (22|11) between two programs are 279 numbers, which are written and read.
        ("2211", {"memory": (16, 8), "atomic": (24, 8)}, "memory", ["memory", "memory"]),
        ("2211", {"memory": (4464, 8), "atomic": (4464, 8)}, "memory", ["memory", "memory", "targets", "split"]),
        ("2211", {"memory": (4465, 8), "atomic": (4465, 8)}, "split", ["memory", "memory", "targets", "split"]),
        (
            "2211",
            dict.fromkeys(("memory", "atomic"), (ABSURD_SPILL + 1, 8)),
            "split",
            ["memory"] * 2 + ["targets", "split"],
        ),
    ],
)
def test_the_form_moves_least_beside_registers_and_then_has_the_most_warps(digits, told, chosen, tried):
    device = Told(**told)
    programs, _ = first_sound(device, Batch(of(digits)))
    assert programs.tier.name == chosen and device.built[: len(tried)] == tried
    assert (programs.targets is None) == (chosen != "split")
    assert [word for word in device.built[len(tried) :] if word != "columns"] == ["sph"]


def test_the_worse_of_two_programs_counts():
    for worse in ("targets", "split"):
        device = Told(memory=(5000, 8), atomic=(5000, 8), **{worse: (600, 8)})
        assert first_sound(device, Batch(of("2211")))[0].tier.name == "memory"


def test_tiers_by_name():
    device = Told(memory=(0, 8))
    programs, _ = first_sound(device, Batch(of("2211")), ("split", "registers"))
    assert programs.tier.split and device.built == ["targets", "split", "sph"]
    general = first_sound(Told(memory=(0, 8)), Batch(of("1010", general=True)), ("split",))
    assert general[0].tier.name == "memory"


def test_general_contractions_need_memory():
    assert {tier.name for tier in candidates(of("1010", general=True))} == {"memory", "columns"}


def test_a_large_stack_is_a_failure():
    assert absurd(ABSURD_SPILL + 1) and not absurd(316)


@pytest.mark.parametrize("targets", [0, 13824, 20736, 36864, SHARED_BYTES])
def test_a_tile_beside_targets_costs_no_block(targets):
    room = MULTIPROCESSOR_SHARED // (targets + RESERVED_SHARED)
    tile = 8 * tile_beside(targets)
    assert targets + tile <= SHARED_BYTES
    assert MULTIPROCESSOR_SHARED // (targets + tile + RESERVED_SHARED) >= min(room, MOST_WARPS)
    assert (tile == 0) == (targets == SHARED_BYTES)


@needs_nvcc
def test_a_program_with_digestion_does_not_spill():
    cls = of("2111")
    tier = next(candidates(cls))
    recipe = work_recipe(Batch(cls), tier)
    text = emit_cuda(*recipe.functions(), lanes=tier.lanes, accumulate=tier.accumulate)
    kernel = jit.compile_cuda(text, name="tier", arch="sm_80").kernel(recipe.name)
    assert tier.tile > 0 and kernel.spill_stores == 0


def integrals(cls: QuartetClass, tier: Tier) -> tuple[np.ndarray, np.ndarray]:
    function = quartet_function(cls, tier.form, tier.variant)
    library = jit.library(jit.Recipe.of(function, name="tier"), quartets.LANES, quartets.QUICK)
    rng = np.random.default_rng(cls.shells)
    moles = [quartets.random_shells(rng, l, n, 2, 1, False) for l, n in zip(cls.shells, (1, 1, 5, 5))]
    bra, ket = quartets.pairs(moles[:2]), quartets.pairs(moles[2:])
    inputs = quartets.arguments(cls, bra, ket)
    names = [p.name if isinstance(p, Array) else p.attr for p in parameters(cls).all]
    getattr(library, cls.name)(*(inputs[name] for name in names))
    return inputs["out"][..., : len(ket)], quartets.libcint(moles[:2], moles[2:], cls)


@pytest.mark.parametrize("digits", ["1000", "1111", "2110"])
def test_every_form_gives_libcints_integrals(digits):
    cls = of(digits)
    for tier in candidates(cls):
        if tier.accumulate == "fence":
            ours, theirs = integrals(cls, tier)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12, err_msg=tier.name)


@needs_nvcc
@pytest.mark.parametrize(
    "digits, registers, arch",
    [("1111", 255, "sm_80"), ("2111", 255, "sm_80"), ("2111 memory", 128, "sm_80"), ("2111", 255, "sm_90")],
)
def test_chosen_kernels_do_not_spill(digits, registers, arch):
    digits, _, name = digits.partition(" ")
    cls = of(digits)
    tier = next(t for t in candidates(cls) if t.name == (name or t.name))
    text = emit_cuda(quartet_function(cls, tier.form, tier.variant), lanes=tier.lanes, accumulate=tier.accumulate)
    kernel = jit.compile_cuda(text, name="tier", arch=arch).kernel(cls.name)
    assert (kernel.spill_stores, kernel.spill_loads) == (0, 0)
    assert kernel.registers <= registers
