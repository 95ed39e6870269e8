"""SCF whose matrices stay on a simulated GPU: PySCF's numbers and cycles, copies, and what stays on the host."""

from __future__ import annotations

import re

import numpy as np
import pytest
from pyscf import dft, gto, scf

import trnqc
from tests.backends.simulated_cuda import RecordedCuda
from trnqc import backends
from trnqc.eri.cuda import forms, launches
from trnqc.eri.cuda.scf import matrices
from trnqc.eri.cuda.scf.programs import ScfPrograms
from trnqc.eri.cuda.tiers import candidates
from trnqc.eri.jk.layout import block_maxima
from trnqc.errors import BackendUnavailable, NotConverged
from trnqc.jit.simulated_device import SimulatedDevice
from trnqc.pyscf import resident

WATER = "O 0 0 0.1; H 0 0.75 -0.45; H 0 -0.7 -0.5"
DIMER = f"{WATER}; O 0 2.9 0.2; H 0.75 3.3 -0.2; H -0.7 3.4 -0.1"
GENERAL = [[0, [9.0, 0.1, 0.3], [1.3, 0.5, -0.4], [0.3, 0.6, 0.2]]]
STAYS = "all matrices stay there"


def molecule(atom=WATER, basis="sto-3g", **more) -> gto.Mole:
    return gto.M(atom=atom, basis=basis, verbose=0, **more)


def chain(atoms: int, **more) -> gto.Mole:
    return molecule("; ".join(f"H 0 {n % 3} {0.9 * n}" for n in range(atoms)), **more)


@pytest.fixture
def device(monkeypatch) -> SimulatedDevice:
    """The only device that backend="cuda" finds."""
    device = SimulatedDevice(lanes=4)
    monkeypatch.setattr(backends, "devices", lambda name: (device,))
    return device


def pair(make):
    """PySCF's object and the same one with backend="cuda", both after their SCF."""
    theirs, ours = make(), trnqc.accelerate(make(), backend="cuda")
    for mf in (theirs, ours):
        mf.init_guess = "1e"
    theirs.kernel()
    ours.kernel()
    return theirs, ours


def same(theirs, ours) -> None:
    assert (ours.converged, ours.cycles) == (theirs.converged, theirs.cycles)
    assert type(ours.converged) is bool
    assert ours.e_tot == pytest.approx(theirs.e_tot, abs=1e-9)
    np.testing.assert_allclose(ours.mo_energy, theirs.mo_energy, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(ours.mo_occ, theirs.mo_occ)
    np.testing.assert_allclose(ours.make_rdm1(), theirs.make_rdm1(), rtol=0, atol=1e-6)
    assert ours.mo_coeff.shape == theirs.mo_coeff.shape
    assert ours.scf_summary == pytest.approx(theirs.scf_summary, abs=1e-6)


CASES = {
    "water": lambda: scf.RHF(molecule()),
    "both spins": lambda: scf.UHF(chain(5, spin=1)),
    "J and K of whole densities": lambda: scf.RHF(chain(4)).set(direct_scf=False),
    "no extra cycle": lambda: scf.RHF(chain(4)).set(conv_check=False),
    "few cycles": lambda: scf.UHF(chain(5, spin=1)).set(max_cycle=3),
    "small space of DIIS": lambda: scf.UHF(chain(5, spin=1)).set(diis_space=2),
    "DIIS from the start": lambda: scf.UHF(chain(5, spin=1)).set(diis_start_cycle=0),
    "DIIS late": lambda: scf.UHF(chain(5, spin=1)).set(diis_start_cycle=4),
    "no DIIS": lambda: scf.RHF(chain(4)).set(diis=False),
    "no electron of a spin": lambda: scf.UHF(chain(2, spin=2)),
    "no virtual orbital": lambda: scf.RHF(molecule("He 0 0 0")),
    "threshold of the gradient": lambda: scf.RHF(chain(4)).set(conv_tol_grad=1e-7, conv_tol=1e-6),
    "general contractions": lambda: scf.RHF(molecule("He 0 0 0; He 0 0.4 1.5", {"He": GENERAL})),
    "another hcore": lambda: scf.RHF(chain(4)).x2c(),
    "range separation": lambda: scf.RHF(chain(4).set(omega=0.4)),
}


@pytest.mark.parametrize("case", CASES)
def test_numbers_and_cycles_are_those_of_pyscf(device, case):
    theirs, ours = pair(CASES[case])
    same(theirs, ours)
    assert STAYS in ours.ran_on and "eigenvectors by SciPy on simulated" in ours.ran_on


def test_two_programs_with_little_room_for_targets_between_them(device, monkeypatch):
    monkeypatch.setattr(forms, "candidates", lambda cls: [tier for tier in candidates(cls) if tier.split])
    counts = []
    for room in (launches.TARGET_BYTES, 300):
        monkeypatch.setattr(launches, "TARGET_BYTES", room)
        before = device.launches
        theirs, ours = pair(CASES["both spins"])
        same(theirs, ours)
        assert STAYS in ours.ran_on
        counts.append(device.launches - before)
    assert counts[1] > counts[0]


def test_a_second_scf_starts_from_the_density_of_the_first_and_takes_no_more_memory(device):
    theirs, ours = pair(lambda: scf.RHF(chain(4)))
    # Tables and buffers of J and K are kept.
    used = device.used
    for mf in (theirs, ours):
        mf.kernel()
    assert device.used == used
    same(theirs, ours)
    ours.kernel(dm0=2 * np.eye(4) / 4)
    assert ours.e_tot == pytest.approx(theirs.e_tot, abs=1e-9)


@pytest.mark.slow
def test_water_dimer_cation(device):
    same(*pair(lambda: scf.UHF(molecule(DIMER, charge=1, spin=1))))


@pytest.mark.slow
@pytest.mark.parametrize("cart", [False, True])
@pytest.mark.parametrize("charge", [0, 1])
def test_d_functions(device, cart, charge):
    basis = {"Be": [[0, [9.0, 1.0]], [0, [1.1, 1.0]], [0, [0.2, 1.0]], [2, [0.8, 1.0]]]}
    options = {"basis": basis, "cart": cart, "charge": charge, "spin": charge}
    theirs, ours = pair(lambda: scf.HF(molecule("Be 0 0 0; Be 0.4 0.3 2.5", **options)).to_uhf())
    same(theirs, ours)
    assert STAYS in ours.ran_on


def test_more_cycles_than_vectors_of_diis(device):
    """A threshold that takes more cycles than DIIS has vectors, so that old ones are replaced."""
    theirs, ours = pair(lambda: scf.UHF(chain(5, spin=1)).set(diis_space=3, conv_tol=1e-12))
    assert theirs.cycles > 6
    assert abs(ours.cycles - theirs.cycles) <= 1 and ours.e_tot == pytest.approx(theirs.e_tot, abs=1e-10)


@pytest.mark.parametrize("kind", [scf.RHF, scf.UHF])
def test_the_code_of_gpus(kind, monkeypatch):
    """With an emulation of cuBLAS and cuSOLVER that reads and writes at addresses."""
    (gpu,) = RecordedCuda().gpus()
    monkeypatch.setattr(backends, "devices", lambda name: (gpu.device,))
    monkeypatch.setattr(matrices, "with_libraries", lambda device: gpu)
    theirs, ours = pair(lambda: kind(chain(5, spin=1) if kind is scf.UHF else chain(4)))
    same(theirs, ours)
    assert "products by cuBLAS 130000 on recorded 0 (sm_80), eigenvectors by cuSOLVER on recorded 0" in ours.ran_on


def copied(device: SimulatedDevice, make, **more) -> tuple[float, ...]:
    """Uploads, their bytes, downloads and their bytes of one more cycle."""
    counts = []
    for cycles in (2, 3):
        mf = trnqc.accelerate(make(), backend="cuda").set(max_cycle=cycles, conv_tol=0, init_guess="1e", **more)
        before = vars(device.staging.counts).copy()
        mf.kernel()
        assert STAYS in mf.ran_on
        counts.append([vars(device.staging.counts)[name] - number for name, number in before.items()])
    return tuple(last - first for first, last in zip(*counts))


@pytest.mark.parametrize(("kind", "spins"), [(scf.RHF, 1), (scf.UHF, 2)])
def test_a_cycle_copies_no_matrix(device, kind, spins):
    """Up go the weights of DIIS; down come orbital energies, and sums with all 8 places of DIIS."""
    for atoms in (2, 6):
        uploads, up, downloads, down = copied(device, lambda n=atoms: kind(chain(n)))
        assert (uploads, downloads) == (1, 2)
        # The last cycle of the two has one vector of DIIS more.
        assert up == 8 * 2
        assert down == 8 * (spins * atoms + 3 * spins + 2 + 8)


def test_a_file_of_the_user_is_written_in_each_cycle(device, tmp_path):
    """The file that PySCF makes for itself is written once, at the end; the copies for that of a user are counted."""
    n, path = 4, str(tmp_path / "orbitals")
    own = copied(device, lambda: scf.RHF(chain(n)))
    users = copied(device, lambda: scf.RHF(chain(n)), chkfile=path)
    assert np.subtract(users, own).tolist() == [0, 0, 1, 8 * n * n]
    for options in ({"chkfile": path}, {}):
        ours = trnqc.accelerate(scf.RHF(chain(n)), backend="cuda").set(**options).run()
        state = scf.chkfile.load_scf(ours.chkfile)[1]
        assert state["e_tot"] == pytest.approx(ours.e_tot, abs=1e-12)
        for name in ("mo_energy", "mo_coeff", "mo_occ"):
            np.testing.assert_array_equal(state[name], getattr(ours, name))


def method(base, name):
    """A class of a user with a method of its own, which does what that of PySCF does."""
    return type("Mine", (base,), {name: lambda self, *a, **k: getattr(base, name)(self, *a, **k)})


def attribute(name, value):
    return lambda: scf.RHF(chain(2)).set(**{name: value})


def replaced(name):
    mf = scf.RHF(chain(2))
    setattr(mf, name, getattr(mf, name))
    return mf


METHODS = ("get_fock", "get_occ", "eig", "get_veff", "get_jk", "get_grad", "make_rdm1", "energy_elec", "dump_chk")
HOST = {
    **{f"Mine.{n}": (lambda n=n: method(scf.hf.RHF, n)(chain(2)), f"{n} is that of .*Mine") for n in METHODS},
    **{n: (lambda n=n: replaced(n), f"{n} of this object") for n in ("get_occ", "get_fock", "energy_tot")},
    "a functional": (lambda: dft.RKS(chain(2), xc="hf"), r"is that of pyscf\.dft"),
    "open shells of one set": (lambda: scf.ROHF(chain(3, spin=1)), r"pyscf\.scf\.rohf"),
    "one electron": (lambda: scf.UHF(chain(1, spin=1)), r"scf is that of pyscf\.scf\.uhf\.HF1e"),
    "symmetry": (lambda: scf.RHF(chain(2, symmetry=True)), r"pyscf\.scf\.hf_symm"),
    "density fitting": (lambda: scf.RHF(chain(2)).density_fit(auxbasis={"H": [[0, [1.0, 1.0]]]}), r"pyscf\.df"),
    "fractional occupation": (lambda: scf.addons.frac_occ(scf.RHF(chain(2))), "get_occ"),
    "smearing": (lambda: scf.addons.smearing(scf.RHF(chain(2)), sigma=0.01), "is that of"),
    "level shift": (attribute("level_shift", 0.3), "level_shift is set"),
    "damping": (attribute("damp", 0.2), "damp"),
    "damping of DIIS": (attribute("diis_damp", 0.2), "diis_damp is set"),
    "callback": (attribute("callback", lambda envs: None), "callback reads"),
    "criterion": (attribute("check_convergence", lambda envs: envs["norm_gorb"] < 1e-5), "check_convergence reads"),
    "another DIIS": (attribute("DIIS", scf.diis.ADIIS), "DIIS is not CDIIS"),
    "a DIIS object": (lambda: scf.RHF(chain(2)).set(diis=scf.diis.CDIIS()), "DIIS object was given"),
    "integrals": (lambda: scf.RHF(chain(2)).set(_eri=chain(2).intor("int2e", aosym="s8")), "integrals were given"),
    "no cycle": (attribute("max_cycle", 0), "no cycles"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", HOST)
def test_what_does_not_run_on_the_gpu(case):
    make, reason = HOST[case]
    assert re.search(reason, resident.why_not(trnqc.accelerate(make(), backend="cuda")))


@pytest.mark.parametrize("case", ["Mine.get_fock", "get_occ", "level shift", "callback", "a functional"])
def test_an_scf_on_the_host_says_so(device, case):
    make, reason = HOST[case]
    theirs, ours = pair(make)
    assert ours.e_tot == pytest.approx(theirs.e_tot, abs=1e-8)
    head, _, why = ours.ran_on.partition("; the other matrices on the host: ")
    assert head == "generated CUDA, 1 x simulated" and re.search(reason, why)


def test_linear_dependence_stays_on_the_host(device):
    theirs, ours = pair(lambda: scf.RHF(molecule("H 0 0 0; H 0 0 1e-4")))
    assert ours.e_tot == pytest.approx(theirs.e_tot, abs=1e-8)
    assert ours.ran_on.endswith("functions depend linearly on each other")


def test_densities_that_are_not_symmetric_or_of_another_kind(device):
    mol = chain(2)
    dm = scf.RHF(mol).run().make_rdm1()
    for first, reason in ((dm + np.triu(dm, 1), "not a real symmetric"), (dm + 0j, "not a real symmetric")):
        ours = trnqc.accelerate(scf.RHF(mol), backend="cuda")
        assert ours.kernel(dm0=first) == pytest.approx(scf.RHF(mol).kernel(dm0=first), abs=1e-9)
        assert reason in ours.ran_on


def test_several_gpus_and_missing_libraries(device, monkeypatch):
    mf = scf.RHF(chain(2))
    expected = mf.kernel()

    def missing(device):
        raise BackendUnavailable("the bindings of cuBLAS cannot be imported")

    monkeypatch.setattr(matrices, "with_libraries", missing)
    ours = trnqc.accelerate(scf.RHF(chain(2)), backend="cuda")
    assert ours.kernel() == pytest.approx(expected, abs=1e-9)
    assert ours.ran_on.endswith("on the host: the bindings of cuBLAS cannot be imported")
    monkeypatch.setattr(backends, "devices", lambda name: (device, SimulatedDevice(lanes=4)))
    ours = trnqc.accelerate(scf.RHF(chain(2)), backend="cuda")
    assert ours.kernel() == pytest.approx(expected, abs=1e-9)
    assert ours.ran_on.endswith("on the host: 2 GPUs share J and K")


def test_too_little_memory_leaves_matrices_on_the_host(device, monkeypatch):
    ours = trnqc.accelerate(scf.RHF(chain(4)), backend="cuda")
    expected = ours.kernel()
    assert STAYS in ours.ran_on
    monkeypatch.setattr(device, "memory", device.used + 2000)
    used = device.used
    assert ours.kernel(dm0=ours.get_init_guess()) == pytest.approx(expected, abs=1e-9)
    assert "on the host: simulated has" in ours.ran_on and device.used == used


def test_eigenvectors_that_do_not_converge_are_an_error(device, monkeypatch):
    ours = trnqc.accelerate(scf.RHF(chain(2)), backend="cuda")
    ours.kernel()
    used = device.used
    monkeypatch.setattr(matrices.Gpu, "solvers", property(lambda self: Stuck()), raising=False)
    with pytest.raises(NotConverged, match="stuck: 3 off-diagonal elements of a Fock matrix of 2 functions"):
        ours.kernel(dm0=ours.make_rdm1())
    assert device.used == used


class Stuck:
    eigen_label = "stuck"

    def eigenvectors(self, a, values):
        return 3


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("scale", [0.01, 3.0])
def test_largest_elements(device, count, scale):
    """Of shells with one to six functions, on fewer and on more lanes than pairs of shells."""
    mol = molecule("He 0 0 0; He 0 0 1", {"He": [[0, [1.0, 1.0]], [1, [1.0, 1.0, 0.5], [0.3, 0.2, 1.0]]]})
    n, begins = mol.nao_nr(), np.asarray(mol.ao_loc_nr(), np.int64)
    dm = scale * np.random.default_rng(count).normal(size=(count, n, n))
    programs, shells = ScfPrograms(device), mol.nbas
    held = [device.upload(x) for x in (begins, dm, np.zeros((shells, shells)), np.full(4, 7.0))]
    numbers = {"shells": shells, "n": n, "count": count, "widest": int(np.diff(begins).max())}
    programs("maxima", shells**2, **numbers, begins=held[0], dm=held[1], dm_max=held[2])
    programs("largest", shells**2, shells=shells, dm_max=held[2], reals=held[3])
    np.testing.assert_array_equal(device.download(held[2]), block_maxima(mol, dm))
    assert device.download(held[3]).tolist() == [7.0, 7.0, 7.0, min(1.0, 4 * abs(dm).max())]
