"""J and K on simulated devices, which run the CUDA text of GPUs with checks of memory, against PySCF's."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from pyscf import gto, scf

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from tests.mp2.thread_ranks import on_threads, same
from trnqc.eri.api import get_jk
from trnqc.eri.cuda import blocks, forms
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.slots import slots_of
from trnqc.eri.cuda.tiers import candidates
from trnqc.eri.jk.batch import PLACE_A, PLACE_B
from trnqc.eri.shells.pairs import quartet_class
from trnqc.errors import BackendUnavailable, CompilerError, InputError, MemoryLimit
from trnqc.jit.device import cuda_devices
from trnqc.jit.emulator import ORDERS
from trnqc.jit.simulated_device import SimulatedDevice

WATER = "O 0 0 0.1; H 0 0.75 -0.45; H 0 -0.7 -0.5"
# All integrals times density below the cutoff together.
CLOSE = 1e-10


def molecule(basis="sto-3g", atom=WATER, **more) -> gto.Mole:
    return gto.M(atom=atom, basis=basis, verbose=0, spin=None, **more)


def chain(atoms: int) -> gto.Mole:
    return molecule(atom="; ".join(f"H 0 {n % 3} {0.9 * n}" for n in range(atoms)))


def density(mol: gto.Mole, *count: int, sign: int = 1) -> np.ndarray:
    dm = np.random.default_rng(0).normal(size=(*count, mol.nao_nr(), mol.nao_nr()))
    return dm + sign * dm.swapaxes(-1, -2) if sign else dm


def devices(count: int = 1, **more) -> list[SimulatedDevice]:
    return [SimulatedDevice(f"device {n}", lanes=4, **more) for n in range(count)]


def matches(builder: CudaJKBuilder, dm: np.ndarray, hermi: int = 1, omega=None) -> None:
    for ours, theirs in zip(builder.get_jk(dm, hermi), scf.hf.get_jk(builder.mol, dm, hermi, omega=omega)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)


def test_ranks_share_the_work_and_all_have_the_sum():
    mol, dm = molecule(), density(molecule(), 2)
    CudaJKBuilder(mol, devices=devices()).build()
    results = on_threads(2, lambda ranks: np.array(CudaJKBuilder(mol, devices=devices(), ranks=ranks).get_jk(dm)))
    np.testing.assert_allclose(same(results), scf.hf.get_jk(mol, dm), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("count", [1, 2])
def test_devices_share_the_work(count):
    mol, there = molecule(), devices(count)
    builder = CudaJKBuilder(mol, devices=there)
    matches(builder, density(mol, 2))
    matches(builder, density(mol, sign=0), hermi=0)
    matches(builder, density(mol, sign=-1), hermi=2)
    matches(builder, np.stack([density(mol, sign=0), density(mol)]), hermi=1)
    assert all(device.launches > 3 for device in there)
    assert builder.ran_on == "generated CUDA, " + ", ".join(f"1 x {device.name}" for device in there)


def test_j_alone_and_k_alone():
    mol = molecule("6-31g", "H 0 0 0; He 0 0 1.4", charge=1)
    builder, dm = CudaJKBuilder(mol, devices=devices()), density(mol)
    vj, vk = scf.hf.get_jk(mol, dm)
    np.testing.assert_allclose(builder.get_jk(dm, with_k=False)[0], vj, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(builder.get_jk(dm, with_j=False)[1], vk, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("omega", [0.4, -0.4])
def test_range_separation(omega):
    mol = molecule("6-31g", "H 0 0 0; He 0 0 1.4", charge=1)
    matches(CudaJKBuilder(mol, omega=omega, devices=devices()), density(mol), omega=omega)


def test_general_contractions():
    shared = [[0, [9.0, 0.1, 0.3], [1.3, 0.5, -0.4], [0.3, 0.6, 0.2]], [1, [2.0, 0.4], [0.4, 0.7]]]
    mol = molecule({"Be": shared, "H": [[0, [1.1, 0.5], [0.25, 0.6]]]}, "Be 0 0 0; H 0 0.3 1.3")
    matches(CudaJKBuilder(mol, devices=devices()), density(mol))


class SomeClasses(CudaJKBuilder):
    """J and K from the quartets of some classes alone, by their digits."""

    def __init__(self, mol: gto.Mole, classes: set[str], **more) -> None:
        super().__init__(mol, **more)
        self.wanted = classes
        # Bounds of pairs that no quartet has would need kernels, which take long to compile.
        sides = {digits[side] for digits in classes for side in (slice(2), slice(2, 4))}
        same = [quartet_class(pairs, pairs, self.operator.name) for pairs in self._pairs]
        self._pairs = tuple(pairs for pairs, cls in zip(self._pairs, same) if cls.digits[:2] in sides)

    def _build_devices(self, batches):
        super()._build_devices([batch for batch in batches if batch.cls.digits in self.wanted])

    def _own_tasks(self, tables):
        return [task for task in super()._own_tasks(tables) if task.cls.digits in self.wanted]


def of_classes(mol: gto.Mole, classes: set[str], dm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """J and K from PySCF's integrals of some classes alone."""
    eri, begins = mol.intor("int2e"), mol.ao_loc_nr()
    for shells in itertools.product(range(mol.nbas), repeat=4):
        pairs = (sorted(map(mol.bas_angular, pair), reverse=True) for pair in (shells[:2], shells[2:]))
        if "".join(str(l) for pair in sorted(pairs, reverse=True) for l in pair) not in classes:
            eri[np.ix_(*(range(begins[s], begins[s + 1]) for s in shells))] = 0
    return np.einsum("pqrs,sr->pq", eri, dm), np.einsum("prsq,rs->pq", eri, dm)


# Angular momenta with the classes that are computed of them.
CLASSES = [((2, 0), {"2000", "2020"}), ((3, 0), {"3000", "3030"}), ((2, 1), {"2110", "2121", "2211"})]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("momenta", "classes"), [CLASSES[0], *(pytest.param(*c, marks=pytest.mark.slow) for c in CLASSES[1:])]
)
def test_classes_beyond_p(momenta, classes, order):
    mol = molecule({"He": [[l, [0.7 + 0.1 * l, 1.0]] for l in {*momenta, 0}]}, "He 0 0 0; He 0.4 0.3 1.5")
    builder, dm = SomeClasses(mol, classes, devices=devices(order=order)), density(mol)
    for ours, theirs in zip(builder.get_jk(dm), of_classes(mol, classes, dm)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)
        assert abs(theirs).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("cart", [False, True])
def test_d_functions(cart):
    mol = molecule({"Ne": [[0, [1.1, 1.0]], [2, [0.8, 1.0]]]}, "Ne 0 0 0; Ne 0.4 0.3 1.5", cart=cart)
    matches(CudaJKBuilder(mol, devices=devices()), density(mol))


@pytest.mark.parametrize(("rows", "kets", "items"), [(1, 4, 1), (3, 7, 1), (1000, 8, 1000), (1000, 1000, 1000)])
def test_short_queues_and_small_blocks(rows, kets, items, monkeypatch):
    """Rows of one and two vectors of ket pairs, several for each bra pair, and launches of few rows."""
    for name, value in (("ROWS", rows), ("KETS", kets), ("ITEMS", items), ("FEWEST", 1)):
        monkeypatch.setattr(blocks, name, value)
    mol = chain(5)
    matches(CudaJKBuilder(mol, devices=devices(2)), density(mol))


def test_launches_and_copies_do_not_depend_on_the_number_of_quartets():
    """A second call copies densities, launches a graph of two kernels, and waits only at the end.

    Beyond `blocks.ROWS` times `blocks.KETS` quartets of a class, there are two more kernels for each so many.
    """
    counts = []
    for atoms in (3, 7):
        mol, driver = chain(atoms), RecordingDriver()
        builder = CudaJKBuilder(mol, devices=[RecordedDevice(driver, lanes=4)])
        for _ in range(3):
            driver.calls.clear()
            matches(builder, density(mol))
        assert sum(call.launches for call in driver.calls) == 2
        names = [call.name for call in driver.calls if call.name not in ("Device.set_current", "Stream.sync")]
        counts.append({name: names.count(name) for name in names})
    (after,) = {n for n, name in enumerate(names) if name == "Graph.launch"}
    assert "cuMemcpyDtoHAsync" not in names[:after] and "cuMemcpyHtoDAsync" not in names[after:]
    waits = {"cuStreamSynchronize": 2, "Buffer.fill": 2}
    assert counts[0] == counts[1] == {"Graph.launch": 1, "cuMemcpyHtoDAsync": 4, "cuMemcpyDtoHAsync": 2} | waits


def test_a_graph_gives_what_its_launches_give_for_every_density():
    """The first build launches kernel by kernel; later ones replay one graph, which the screening does not change."""
    mol, driver = molecule(), RecordingDriver()
    builder = CudaJKBuilder(mol, devices=[RecordedDevice(driver, lanes=4)])
    alone = CudaJKBuilder(mol, devices=[RecordedDevice(RecordingDriver(graphs=False), lanes=4)])
    with pytest.warns(
        RuntimeWarning, match=r"recorded 0: launches cannot be captured .*CUDA_ERROR_NOT_SUPPORTED.*cuda-c"
    ):
        alone.get_jk(density(mol)), alone.get_jk(density(mol))
    for scale in (1.0, 1e-9, 1.0, 3.0):
        dm = scale * density(mol)
        found, expected = np.array(builder.get_jk(dm)), np.array(alone.get_jk(dm))
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found, 3.0 * np.array(scf.hf.get_jk(mol, density(mol))), rtol=0, atol=CLOSE)
    assert driver.count("Graph.launch") == 3 and driver.count("captured launch") == driver.count("launch") > 2


@pytest.mark.parametrize("recorded", [False, True])
def test_another_kind_of_pass_and_larger_buffers_are_captured_anew(recorded):
    """Prepared launches hold addresses, and a simulated device refuses those of arrays that have been released."""
    mol, driver = molecule(), RecordingDriver()
    device = RecordedDevice(driver, lanes=4) if recorded else devices()[0]
    builder = CudaJKBuilder(mol, devices=[device])
    for _ in range(2):
        matches(builder, density(mol))
    run, _ = builder.resident_run(1)
    matches(builder, density(mol, 3))
    run.launch()
    run.release()
    for dm in (density(mol), density(mol), density(mol), density(mol, 3)):
        matches(builder, dm)
    free = device.free_memory()
    matches(builder, density(mol, 3))
    assert device.free_memory() == free
    # The second of two, the second and third of three, and the second of two builds in a row.
    assert driver.count("Graph.launch") == 4 * recorded


def test_a_pass_that_is_left_after_its_launches_ends_before_the_next_one():
    """What it reads is overwritten by the next pass, for which its memory is kept."""
    mol, driver = chain(3), RecordingDriver()
    builder = CudaJKBuilder(mol, devices=[RecordedDevice(driver, lanes=4)])
    run, _ = builder.resident_run(1)
    driver.calls.clear()
    run.release()
    assert not driver.count("Stream.sync")
    run, _ = builder.resident_run(1)
    run.launch()
    driver.calls.clear()
    run.release()
    assert driver.count("Stream.sync") == run.device.streams
    with pytest.raises(InputError, match="given back"):
        run.launch()


def test_gpus_of_two_generations_share_the_work():
    mol, drivers = chain(4), [RecordingDriver(capability=n) for n in (80, 90)]
    builder = CudaJKBuilder(mol, devices=[RecordedDevice(driver, lanes=4) for driver in drivers])
    matches(builder, density(mol))
    assert all(driver.count("launch") == 2 for driver in drivers)


def test_a_generation_without_a_compiler_is_one_error():
    device = RecordedDevice(RecordingDriver(capability=120), lanes=4)
    with warnings.catch_warnings(), pytest.raises(BackendUnavailable, match=r"compute capability 12\.0, but NVRTC"):
        warnings.simplefilter("error")
        CudaJKBuilder(chain(2), devices=[device]).build()


def test_one_quartet_and_a_prime_number_of_pairs():
    for atoms in (1, 2):
        mol = chain(atoms)
        matches(CudaJKBuilder(mol, devices=devices()), density(mol))


def test_nan_is_refused():
    mol = chain(2)
    with pytest.raises(InputError, match=r"finite|NaN|nan"):
        CudaJKBuilder(mol, devices=devices()).get_jk(np.full((2, 2), np.nan))


def test_little_memory_means_fewer_workers_and_then_an_error():
    mol = molecule()
    (roomy,) = devices()
    builder = CudaJKBuilder(mol, devices=[roomy])
    matches(builder, density(mol))
    assert builder.notes == []
    (small,) = devices(memory=roomy.most_used - 1)
    builder = CudaJKBuilder(mol, devices=[small])
    with pytest.warns(RuntimeWarning, match="blocks of threads at once"):
        matches(builder, density(mol))
    (tiny,) = devices(memory=20_000)
    with pytest.raises(MemoryLimit, match="device 0 has"):
        CudaJKBuilder(mol, devices=[tiny]).get_jk(density(mol))


class Failing(SimulatedDevice):
    """Some forms of kernels cannot be built here, or only with a stack that tells of a compiler that gave up."""

    def __init__(self, rejected: tuple[str, ...], lost: tuple[str, ...] = ()) -> None:
        super().__init__("failing", lanes=4)
        self.rejected, self.lost, self.kept = rejected, lost, []

    def build(self, recipe, lanes, **options):
        if recipe.name.endswith(self.rejected):
            raise CompilerError("out of patience")
        built = super().build(recipe, lanes, **options)
        if recipe.name.endswith(self.lost):
            object.__setattr__(built, "stack", 60_000)
        else:
            self.kept.append(recipe.name)
        return built


def test_forms_that_fail_are_followed_by_the_next():
    mol = molecule("6-31g", "H 0 0 0; He 0 0 1.4", charge=1)
    device = Failing(rejected=("_registers",), lost=("_shared",))
    builder = CudaJKBuilder(mol, devices=[device])
    with pytest.warns(RuntimeWarning, match="the next form is used"):
        matches(builder, density(mol))
    assert len(builder.notes) == 2
    assert "out of patience" in builder.notes[0]
    assert "60000 bytes" in builder.notes[1]
    assert device.kept == ["work_jk_eri_0000_sph_tile_memory", "screen_jk_eri_0000_sph"]


def test_when_all_forms_fail_the_reasons_are_told():
    mol = molecule("6-31g", "H 0 0 0; He 0 0 1.4", charge=1)
    device = Failing(rejected=("_registers", "_shared", "_memory", "_split", "_columns"))
    with pytest.raises(CompilerError, match=r"no form of jk_eri_0000_sph .* registers: out of patience"):
        CudaJKBuilder(mol, devices=[device]).build()


def test_no_devices_and_no_gpu():
    mol = molecule()
    with pytest.raises(InputError, match="threads is an argument for the CPU"):
        CudaJKBuilder(mol, threads=2, devices=devices())
    with pytest.raises(InputError, match="at least one device"):
        CudaJKBuilder(mol, devices=[])
    try:
        cuda_devices()
    except BackendUnavailable:
        with pytest.raises(BackendUnavailable, match=r"GPU|CUDA"):
            get_jk(mol, density(mol), backend="cuda")
    else:
        matches(CudaJKBuilder(mol), density(mol))


@pytest.mark.parametrize("elements", [0, 3, 20])
def test_tiles_without_room_for_all_sums(elements, monkeypatch):
    """Sums that have no place in the tile are added to memory, and all of them where there is no tile."""
    monkeypatch.setattr(forms, "candidates", lambda cls: (replace(t, tile=elements) for t in candidates(cls)))
    monkeypatch.setattr(blocks, "KETS", 8)
    mol = chain(5)
    builder = CudaJKBuilder(mol, devices=devices(order="random"))
    matches(builder, density(mol, 2))
    (launch, *_) = builder._residents[0]._plans.popitem()[1][1].launches
    assert ("slots_c" in launch.arguments) == (elements > 0)
    assert not elements or launch.arguments["slots_c"] < 5


def test_shells_that_are_met_most_often_have_slots_first():
    builder = CudaJKBuilder(chain(4), devices=devices())
    builder.get_jk(np.eye(4))
    (table,) = {task.ket for task in builder._tasks[1]}
    slots = slots_of(table, 5, alike=True)
    for n, begin in enumerate(range(0, len(table), 5)):
        places = table.places[begin : begin + 5, [PLACE_A, PLACE_B]]
        shells = slots.shells[slots.begins[0][n] :][: slots.counts[0][n]]
        np.testing.assert_array_equal(shells[slots.of_pairs[begin : begin + 5]], places)
        times = [(places == shell).sum() for shell in shells]
        assert times == sorted(times, reverse=True)
        assert sorted(shells) == sorted(set(places.ravel()))
