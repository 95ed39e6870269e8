"""J and K by two programs with targets in memory between them, on simulated devices, against PySCF's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from pyscf import scf

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from tests.eri.test_cuda import CLOSE, SomeClasses, chain, density, devices, matches, molecule, of_classes
from trnqc.eri.classes import QuartetClass
from trnqc.eri.cuda import blocks, launches
from trnqc.eri.cuda.blocks import Kind, blocks_of
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.jk.batch import MEASURES, SCHWARZ
from trnqc.eri.jk.tasks import QuartetTask
from trnqc.eri.kernels.parameters import target_count
from trnqc.errors import InputError
from trnqc.jit.emulator import ORDERS

SPLIT = ("split",)
# Bytes of targets, from less than one vector to several rows.
BUDGETS = (1, 500, 150_000)


def planned(builder: CudaJKBuilder) -> launches.LaunchPlan:
    """The plan of the last pass that was planned."""
    return list(builder._residents[0]._plans.values())[-1][1]


@pytest.mark.parametrize("order", ORDERS)
def test_two_programs_give_what_one_gives(order):
    """Also for several devices, densities and kinds of pass, and for the second pass of a kind."""
    mol, there = molecule(), devices(2, order=order)
    builder = CudaJKBuilder(mol, devices=there, tiers=SPLIT)
    for _ in range(2):
        matches(builder, density(mol, 2))
    matches(builder, density(mol, sign=0), hermi=0)
    dm = density(mol)
    vj, vk = scf.hf.get_jk(mol, dm)
    np.testing.assert_allclose(builder.get_jk(dm, with_k=False)[0], vj, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(builder.get_jk(dm, with_j=False)[1], vk, rtol=0, atol=CLOSE)
    assert all(len(launch.steps) == 3 for launch in planned(builder).launches)


@pytest.mark.parametrize("classes", [{"2000", "2020"}, {"2220"}], ids=lambda classes: " ".join(sorted(classes)))
@pytest.mark.parametrize("cart", [False, True])
def test_d_functions(cart, classes):
    mol = molecule({"He": [[0, [0.7, 1.0]], [2, [0.9, 1.0]]]}, "He 0 0 0; He 0.4 0.3 1.5", cart=cart)
    builder, dm = SomeClasses(mol, classes, devices=devices(), tiers=SPLIT), density(mol)
    for ours, theirs in zip(builder.get_jk(dm), of_classes(mol, classes, dm)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)
        assert abs(theirs).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(("momenta", "classes"), [((2, 1), {"2121", "2211"}), ((3, 1, 0), {"3011", "3130"})])
def test_classes_of_high_order(momenta, classes):
    mol = molecule({"He": [[l, [0.7 + 0.1 * l, 1.0]] for l in momenta]}, "He 0 0 0; He 0.4 0.3 1.5")
    builder, dm = SomeClasses(mol, classes, devices=devices(), tiers=SPLIT), density(mol)
    for ours, theirs in zip(builder.get_jk(dm), of_classes(mol, classes, dm)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)
        assert abs(theirs).max() > 0.1


@pytest.mark.parametrize("class_", ["3000", "3030"])
def test_an_f_function(class_):
    mol = molecule({"He": [[3, [0.9, 1.0]], [0, [0.7, 1.0]]]}, "He 0 0 0; He 0.4 0.3 1.5")
    builder, dm = SomeClasses(mol, {class_}, devices=devices(), tiers=SPLIT), density(mol)
    for ours, theirs in zip(builder.get_jk(dm), of_classes(mol, {class_}, dm)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)
        assert abs(theirs).max() > 0.1


def test_general_contractions_keep_the_tiers_that_they_have():
    shared = [[0, [9.0, 0.1, 0.3], [1.3, 0.5, -0.4], [0.3, 0.6, 0.2]]]
    mol = molecule({"Be": shared, "H": [[0, [1.1, 0.5], [0.25, 0.6]]]}, "Be 0 0 0; H 0 0.3 1.3")
    builder = CudaJKBuilder(mol, devices=devices(), tiers=SPLIT)
    matches(builder, density(mol))
    assert {batch.cls.general: p.tier.split for batch, p in builder._kernels[0].items()} == {True: False, False: True}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("budget", BUDGETS)
def test_launches_are_cut_by_the_memory_of_targets(budget, count, monkeypatch):
    """Screening leaves out quartets of the long chain; ranges of ket pairs with slots end within those of launches."""
    for name, value in (("KETS", 28), ("FEWEST", 1)):
        monkeypatch.setattr(blocks, name, value)
    mol = chain(10)
    builder = CudaJKBuilder(mol, devices=devices(count), tiers=SPLIT)
    matches(builder, density(mol, 2))
    whole = len(planned(builder).launches)
    monkeypatch.setattr(launches, "TARGET_BYTES", budget)
    builder = CudaJKBuilder(mol, devices=devices(count), tiers=SPLIT)
    matches(builder, density(mol, 2))
    plan = planned(builder)
    one = 8 * target_count(QuartetClass(0, 0, 0, 0)) * 4
    assert 8 * plan.elements["targets"] <= max(budget, one)
    assert (len(plan.launches) > whole) == (budget < 1000)
    for launch in plan.launches:
        assert launch.rows * launch.arguments["row_vectors"] <= plan.elements["targets"] * 8 // one


def pairs(bounds: np.ndarray) -> SimpleNamespace:
    """A table of which only the Schwarz bounds, which fall, are read."""
    measures = np.zeros((len(bounds), MEASURES))
    measures[:, SCHWARZ] = sorted(bounds, reverse=True)
    return SimpleNamespace(measures=measures)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("most", [None, 1, 2, 5, 16, 1000])
@pytest.mark.parametrize("number", [1, 3])
def test_blocks_have_each_quartet_once_and_no_more_vectors_than_fit(most, number, same, monkeypatch):
    for name, value in (("ROWS", 20), ("KETS", 24), ("FEWEST", 2)):
        monkeypatch.setattr(blocks, name, value)
    rng, lanes = np.random.default_rng(0), 4
    ket = pairs(rng.random(61))
    bra = ket if same else pairs(rng.random(37))
    task = QuartetTask(bra, ket, QuartetClass(1, 0, 1, 0), 0, len(bra.measures), 1.0)
    kind = Kind(0, number, 2, 1, 1, True, True, 0.1)
    met = np.zeros((len(bra.measures), len(ket.measures)), int)
    for block in blocks_of(task, kind, lanes, 3, most):
        met[block.begin : block.end, block.ket_begin : block.ket_end] += 1
        assert block.ket_begin // 24 == (block.ket_end - 1) // 24
        vectors = -(-(block.end - block.begin) // number) * block.parts * -(-block.ket_part // lanes)
        assert most is None or vectors <= most
    wanted = np.outer(bra.measures[:, SCHWARZ], ket.measures[:, SCHWARZ]) >= kind.cutoff
    if same:
        wanted &= np.tri(len(ket.measures), dtype=bool)
    assert met.max() == 1 and (met[wanted] == 1).all()


def test_little_memory_means_fewer_targets():
    mol = molecule()
    (roomy,) = devices()
    matches(CudaJKBuilder(mol, devices=[roomy], tiers=SPLIT), density(mol))
    (small,) = devices(memory=roomy.most_used - 1)
    builder = CudaJKBuilder(mol, devices=[small], tiers=SPLIT)
    with pytest.warns(RuntimeWarning, match="blocks of threads at once"):
        matches(builder, density(mol))


def test_prepared_launches_are_one_graph():
    """The second and third build replay three programs, for densities of which the screening keeps other quartets."""
    mol, driver = chain(6), RecordingDriver()
    builder = CudaJKBuilder(mol, devices=[RecordedDevice(driver, lanes=4)], tiers=SPLIT)
    for scale in (1.0, 1e-9, 1.0):
        dm = scale * density(mol)
        for ours, theirs in zip(builder.get_jk(dm), scf.hf.get_jk(mol, dm)):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)
    assert driver.count("Graph.launch") == 2 and driver.count("captured launch") == driver.count("launch") == 3


def test_a_tier_that_is_not_known():
    with pytest.raises(InputError, match="tiers are names of registers, shared, memory, split, columns; found 'slit'"):
        CudaJKBuilder(chain(2), devices=devices(), tiers=("slit",))
