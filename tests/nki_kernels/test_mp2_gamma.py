"""The kernel of Gamma against its reference and against plain sums, and its instruction counts."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_kernels import mp2_gamma_plan as gamma_plan
from nki_kernels import mp2_plan as plan
from nki_kernels.lang import nki
from nki_kernels.mp2_gamma import mp2_gamma, reference_mp2_gamma
from nki_kernels.mp2_gamma_plan import GammaTiles, Sides
from nki_kernels.mp2_plan import tile_list
from trnqc import sim

# Largest error over the largest element of Gamma: factors and amplitudes are rounded to 24, 16 and 8 bits.
RELATIVE = {"fp32": 2e-6, "bf16x6": 2e-6, "bf16x3": 4e-5, "bf16": 2e-2}
DIRECT, EXCHANGE = 1.5, 0.5


class Problem:
    """Random factors and energies (Hartree) of the orbitals of a launch."""

    def __init__(self, sides: Sides, naux: int):
        rng = np.random.default_rng([sides.nocc_left, sides.nvir_left, sides.nocc_right, naux])
        self.sides, self.naux = sides, naux
        self.left = rng.normal(size=(sides.nocc_left, sides.nvir_left, naux)) * 0.1
        self.right = rng.normal(size=(sides.nocc_right, sides.nvir_right, naux)) * 0.1 if sides.nocc_right else None
        self.eps_left, self.eps_right = (-np.sort(rng.uniform(0.5, 1, n)) for n in (sides.nocc_left, sides.nocc_right))
        self.vir_left, self.vir_right = (np.sort(rng.uniform(0.1, 2, n)) for n in (sides.nvir_left, sides.nvir_right))
        if sides.partners:
            self.vir_right = self.vir_left
        self.exchange = EXCHANGE if sides.partners else 0.0

    def arguments(self, tiles: GammaTiles, precision: str = "fp32", cores: int = 1):
        lists = gamma_plan.launch_lists(self.sides, self.eps_left, self.eps_right, tiles, cores)
        factors = gamma_plan.pack_sides(self.left, self.right, self.sides, tiles, precision)
        energies = gamma_plan.pack_energies(self.vir_left, self.vir_right, tiles.pairs)
        mix = gamma_plan.mix(DIRECT, self.exchange)
        return (*factors, *energies, mix, *lists.arrays), gamma_plan.constants(self.sides, tiles)

    def gamma(self) -> np.ndarray:
        right = self.left if self.right is None else self.right
        eps_right = self.eps_left if self.right is None else self.eps_right
        T = np.einsum("iaq,jbq->iajb", self.left, right)
        e_occ = self.eps_left[:, None, None, None] + eps_right[:, None]
        t = T / (e_occ - self.vir_left[:, None, None] - self.vir_right)
        mixed = DIRECT * t - (self.exchange * t.transpose(0, 3, 2, 1) if self.exchange else 0)
        gammas = [np.einsum("iajb,jbq->iaq", mixed, right)]
        if self.right is not None:
            gammas.append(np.einsum("iajb,iaq->jbq", mixed, self.left))
        return np.concatenate([gamma.reshape(-1, self.naux) for gamma in gammas])


def check(sides: Sides, naux: int, tiles: GammaTiles | None = None, precision: str = "fp32", cores: int = 1):
    problem = Problem(sides, naux)
    tiles = tiles or gamma_plan.choose_tiles(sides.nvir, naux, 4)
    args, constants = problem.arguments(tiles, precision, cores)
    plain, reference = problem.gamma(), reference_mp2_gamma(*args, **constants)
    result = nki.simulate(mp2_gamma if cores == 1 else mp2_gamma[cores])(*args, **constants)
    assert result.shape == plain.shape and result.dtype == np.float32
    scale = np.abs(plain).max()
    assert np.abs(reference - plain).max() <= RELATIVE[precision] * scale
    assert np.abs(result - reference).max() <= (2e-6 if precision == "fp32" else 2e-4) * scale
    assert np.abs(result - plain).max() <= RELATIVE[precision] * scale


SETS = [
    pytest.param(1, 1, 1, id="one of each"),
    pytest.param(2, 5, 7, id="tiny"),
    pytest.param(3, 128, 128, id="exactly one tile"),
    pytest.param(4, 129, 130, id="one over a tile"),
    pytest.param(5, 127, 257, id="prime, one over two tiles"),
    pytest.param(2, 509, 140, id="prime nvir of caffeine"),
    pytest.param(2, 700, 129, id="two runs of columns, two banks of squares"),
]


@pytest.mark.parametrize("nocc, nvir, naux", SETS)
def test_one_set_of_orbitals(nocc, nvir, naux):
    check(Sides(nocc, nvir), naux)


@pytest.mark.parametrize("n, m, nvir, naux", [(1, 1, 1, 1), (2, 3, 5, 7), (1, 2, 130, 140), (9, 2, 20, 30)])
def test_two_blocks_of_one_set(n, m, nvir, naux):
    check(Sides(n, nvir, m, nvir), naux)


@pytest.mark.parametrize(
    "left, right, naux", [((1, 1), (1, 2), 1), ((2, 5), (3, 7), 7), ((2, 130), (1, 129), 140), ((1, 520), (1, 127), 20)]
)
def test_two_spins(left, right, naux):
    check(Sides(*left, *right, partners=False), naux)


@pytest.mark.parametrize("precision", ["bf16x6", "bf16x3", "bf16"])
@pytest.mark.parametrize("sides", [Sides(3, 150), Sides(2, 150, 1, 150), Sides(2, 150, 1, 131, False)], ids=str)
def test_split_precision(sides, precision):
    check(sides, 140, precision=precision)


@pytest.mark.parametrize("rows, cols, depth", [(128, 512, 1), (256, 20, 2), (512, 30, 16), (1024, 512, 1)])
def test_blocks_of_the_second_product(rows, cols, depth):
    check(Sides(7, 60), 30, GammaTiles(plan.Mp2Tiles(60, 30, 60, 1, 3), rows, cols, depth))


@pytest.mark.parametrize(
    "nvir, naux, block, kchunk, group",
    [(300, 140, 128, 2, 2), (257, 150, 128, 2, 1), (520, 300, 256, 2, 1), (300, 520, 256, 3, 1), (100, 260, 100, 1, 1)],
)
def test_blocks_of_virtuals_and_streamed_factors(nvir, naux, block, kchunk, group):
    tiles = GammaTiles(plan.Mp2Tiles(nvir, naux, block, kchunk, group), 512, 1024, 2)
    check(Sides(3, nvir), naux, tiles)
    check(Sides(1, nvir, 2, max(nvir - 60, 1), False), naux, tiles)


@pytest.mark.parametrize("sides", [Sides(5, 140), Sides(2, 140, 3, 139, False)], ids=str)
def test_two_cores_share_the_work(monkeypatch, sides):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    check(sides, 130, GammaTiles(plan.Mp2Tiles(140, 130, 140, 2, 2), 128, 130, 2), cores=2)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_every_generation_accepts_it(monkeypatch, target):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    check(Sides(2, 140), 130)
    check(Sides(1, 140), 130, precision="bf16x3")


@given(data=st.data())
@settings(deadline=None, max_examples=25)
def test_any_size(data):
    nvir, naux = data.draw(st.integers(1, 140)), data.draw(st.integers(1, 140))
    nocc, others = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 3))
    partners = others == 0 or data.draw(st.booleans())
    nvir_right = nvir if partners else data.draw(st.integers(1, 140))
    sides = Sides(nocc, nvir, others, nvir_right if others else 0, partners)
    pairs = plan.choose_tiles(sides.nvir, naux, 4, group=data.draw(st.integers(1, 3)))
    check(sides, naux, GammaTiles(pairs, data.draw(st.sampled_from([128, 256])), 512, data.draw(st.integers(1, 3))))


def test_the_scaled_energy_is_gamma_times_b():
    """sum_iajb T t~ = sum_iaQ Gamma B: E_os and E_ss scaled, without any further product."""
    problem = Problem(Sides(3, 20), 30)
    args, constants = problem.arguments(gamma_plan.choose_tiles(20, 30, 4))
    T = np.einsum("iaq,jbq->iajb", problem.left, problem.left)
    e = problem.eps_left[:, None, None, None] + problem.eps_left[:, None]
    R = T / (e - problem.vir_left[:, None, None] - problem.vir_left)
    energy = DIRECT * np.vdot(R, T) - EXCHANGE * np.vdot(R, T.transpose(0, 3, 2, 1))
    gamma = np.asarray(nki.simulate(mp2_gamma)(*args, **constants), np.float64)
    assert abs(np.vdot(gamma, problem.left.reshape(-1, 30)) - energy) < 1e-6 * abs(energy)


def traced(sides: Sides, naux: int, precision: str = "fp32"):
    """A dry run: counts and capacity without arithmetic."""
    tiles = gamma_plan.choose_tiles(sides.nvir, naux, 4)
    args, constants = gamma_plan.shapes(sides, naux, tiles, precision, 1, sim.Spec)
    return sim.trace(mp2_gamma)(*args, **constants)


def needed_matmuls(sides: Sides, naux: int, products: int = 1) -> int:
    """Tiles of T, each unordered pair once, and tiles of the second product, which do not end where an orbital does."""

    def ceil(a: int, b: int) -> int:
        return -(-a // b)

    cols = gamma_plan.choose_tiles(sides.nvir, naux, 4).cols
    runs = naux // cols * ceil(cols, 512) + ceil(naux % cols, 512)
    n, m = sides.nocc_left, sides.nocc_right
    if sides.partners:
        tiles = tile_list(sides.nvir_left, sides.nvir_left, True)
        diagonal = sum(tile[4] for tile in tiles)
        right = len(tiles) - diagonal
        pairs, same = (n * m, 0) if m else (n * (n - 1) // 2, n)
        first = pairs * (diagonal + 2 * right) + same * (diagonal + right)
    else:
        first = n * m * len(tile_list(sides.nvir_left, sides.nvir_right, False))
    second = ceil(sides.left, 128) * ceil(sides.right, 128) * runs * (2 if m else 1)
    return products * (ceil(naux, 128) * first + second)


@pytest.mark.parametrize("precision, products", [("fp32", 1), ("bf16x3", 3)])
@pytest.mark.parametrize("sides", [Sides(16, 160), Sides(16, 160, 16, 160), Sides(16, 160, 16, 144, False)], ids=str)
def test_no_product_is_wasted(sides, precision, products):
    assert traced(sides, 1030, precision).executed["nc_matmul"] == needed_matmuls(sides, 1030, products)


def test_program_does_not_grow_with_occupied_orbitals():
    """The same remainders of the second product: 16 and 64 orbitals of 160 virtuals are 2048 rows times 1.25 and 5."""
    small, large = traced(Sides(16, 160), 140), traced(Sides(80, 160), 140)
    assert small.static == large.static
    assert large.executed["nc_matmul"] == needed_matmuls(Sides(80, 160), 140) > 20 * small.executed["nc_matmul"]


SHAPES = [
    pytest.param(Sides(64, 448), 1536, id="medium"),
    pytest.param(Sides(32, 672), 2304, id="a block of large"),
    pytest.param(Sides(32, 672, 32, 672), 2304, id="two blocks of large"),
    pytest.param(Sides(37, 509), 1434, id="caffeine"),
    pytest.param(Sides(32, 448, 31, 449, False), 1536, id="two spins"),
]


@pytest.mark.parametrize("sides, naux", SHAPES)
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_large_shapes_fit_and_do_no_needless_product(monkeypatch, target, sides, naux):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    trace = traced(sides, naux)
    assert trace.executed["nc_matmul"] == needed_matmuls(sides, naux)
    assert sum(trace.static.values()) < 20000


def test_several_thousand_virtuals(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert sum(traced(Sides(4, 2800), 9000).static.values()) < 30000


@given(nocc=st.integers(1, 40), nvir=st.integers(1, 30), others=st.integers(0, 20), most=st.integers(2000, 200_000))
@settings(deadline=None)
def test_blocks_hold_every_pair_once_and_fit(nocc, nvir, others, most):
    sides = Sides(nocc, nvir, others, nvir if others else 0)
    seen = np.zeros((nocc, others or nocc), int)
    launches = list(gamma_plan.blocks(sides, most))
    for part, left, right in launches:
        assert part.elements <= most
        assert part.nocc_left == left.stop - left.start
        if right is None:
            seen[left, left] += 1
        else:
            assert part.nocc_right == right.stop - right.start
            seen[left, right] += 1
            if not others:
                seen[right, left] += 1
    assert np.array_equal(seen, np.ones_like(seen))


def test_too_many_amplitudes_are_refused():
    with pytest.raises(ValueError, match=r"4161798144 amplitudes in one launch, 2147483647 are allowed"):
        gamma_plan.launch_lists(Sides(96, 672), -np.ones(96), np.zeros(0), gamma_plan.choose_tiles(672, 2304, 4), 1)
    with pytest.raises(ValueError, match="one pair has 20000 amplitudes, 1000 are allowed"):
        list(gamma_plan.blocks(Sides(3, 100), 1000))


def test_bf16_operands_are_rounded_amplitudes_too():
    """The amplitudes of the split have both parts in memory: with the high part alone the error would be bf16's."""
    problem = Problem(Sides(3, 40), 30)
    args, constants = problem.arguments(gamma_plan.choose_tiles(40, 30, 4), "bf16x3")
    assert args[0].dtype == args[1].dtype == ml_dtypes.bfloat16 and len(args[1]) == 2
    error = np.abs(nki.simulate(mp2_gamma)(*args, **constants) - problem.gamma()).max() / np.abs(problem.gamma()).max()
    assert 1e-8 < error < RELATIVE["bf16x3"]
