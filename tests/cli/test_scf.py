"""``trnqc scf``: the numbers of PySCF, every task, the files, and one clear error where a job is not possible."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pyscf import df, dft, gto, scf
from pyscf.data.nist import AMU2AU, BOHR, HARTREE2EV, HARTREE2WAVENUMBER
from pyscf.gw import rpa, urpa
from pyscf.hessian import thermo

from trnqc import DH, RPA
from trnqc.interfaces.optimization import GeometryStep, Optimization
from trnqc.mp2.reference.molecule import Geometry

H2 = "2\n\nH 0 0 0\nH 0 0 {}\n"
WATER = "3\n\nO 0 0 0.117\nH 0 0.757 -0.470\nH 0 -0.757 -0.470\n"
SMALL = ("--basis", "sto-3g", "--threads", "1")


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def to(name, text):
        path = tmp_path / name
        path.write_text(text)
        return path

    return to


def mole(**options):
    atoms = "O 0 0 0.117; H 0 0.757 -0.470; H 0 -0.757 -0.470"
    return gto.M(**{"atom": atoms, "basis": "sto-3g", "verbose": 0} | options)


def result_of(trnqc, *words):
    status, out, err = trnqc("scf", *words, *SMALL, "--json", "-")
    assert status == 0, err
    return json.loads(out)


# Kernels up to the g functions of whole fitting sets take long to compile: but for one job PySCF computes instead.
@pytest.mark.parametrize(
    "words, peer, kernels",
    [
        (["--direct"], lambda: scf.RHF(mole()), "wait"),
        (["--xc", "pbe0"], lambda: dft.RKS(mole(), xc="pbe0").density_fit(), "cached"),
        (["--xc", "pbe0"], lambda: dft.RKS(mole(), xc="pbe0").density_fit(), "wait"),
        (
            ["--charge", "1", "--xc", "b3lyp"],
            lambda: dft.UKS(mole(charge=1, spin=1), xc="b3lyp").density_fit(),
            "cached",
        ),
        (["--charge", "1", "--reference", "rohf"], lambda: scf.ROHF(mole(charge=1, spin=1)).density_fit(), "cached"),
    ],
    ids=["direct", "fitted", "fitted, compiled", "open shell", "restricted open shell"],
)
def test_numbers_are_those_of_pyscf(trnqc, write, monkeypatch, words, peer, kernels):
    monkeypatch.setenv("TRNQC_KERNELS", kernels)
    found, mf = result_of(trnqc, write("water.xyz", WATER), *words, "--gradient"), peer().run()
    assert found["e_tot"] == pytest.approx(mf.e_tot, abs=2e-8)
    assert sum(found["parts"].values()) == pytest.approx(found["e_tot"], abs=1e-9)
    assert found["dipole"] == pytest.approx(mf.dip_moment(verbose=0), abs=1e-4)
    assert np.array(found["gradient"]) == pytest.approx(mf.nuc_grad_method().kernel(), abs=1e-5)
    assert len(found["charges"]["Mulliken"]) == 3
    total = -sum(found["charges"]["Mulliken"]) + ("--charge" in words)
    assert total == pytest.approx(0, abs=1e-8)
    if mf.mol.spin:
        assert found["spin_square"] == pytest.approx(mf.spin_square()[0], abs=1e-5)


@pytest.mark.parametrize("charge", [0, 1], ids=["restricted", "unrestricted"])
def test_double_hybrids_are_those_of_dh(trnqc, write, charge):
    words = ("--xc", "b2-plyp", "--dispersion", "d3bj", "--charge", charge, "--gradient")
    found = result_of(trnqc, write("water.xyz", WATER), *words)
    mf = dft.KS(mole(charge=charge, spin=charge), xc="0.53*HF + 0.47*B88, 0.73*LYP").density_fit()
    dh = DH(mf, "B2PLYP", frozen=1, disp="d3bj").run()
    gradients = dh.nuc_grad_method()
    assert found["method"] == "B2PLYP-D3BJ/sto-3g"
    assert found["e_tot"] == pytest.approx(dh.e_tot, abs=2e-8)
    assert found["correlation"]["e_scf"] == pytest.approx(mf.e_tot, abs=2e-8)
    assert found["correlation"]["frozen"] == [1] * (1 + charge)
    assert sum(found["parts"].values()) == pytest.approx(found["e_tot"], abs=1e-9)
    assert np.array(found["gradient"]) == pytest.approx(gradients.kernel(), abs=1e-5)
    density = gradients.relaxation.density.rdm1(ao_repr=True)
    relaxed = scf.hf.dip_moment(mf.mol, density, verbose=0)
    assert found["relaxed_dipole"] == pytest.approx(relaxed, abs=1e-4)
    assert found["relaxed_dipole"] != pytest.approx(found["dipole"], abs=1e-3)


def test_a_double_hybrid_with_another_functional_for_the_energy(trnqc, write):
    found = result_of(trnqc, write("water.xyz", WATER), "--xc", "xyg3", "--all-electron", "--direct")
    assert found["e_tot"] == pytest.approx(DH(mole(), "XYG3").kernel(), abs=2e-8)
    assert sum(found["parts"].values()) == pytest.approx(found["e_tot"], abs=1e-9)


def test_double_hybrids_find_optima(trnqc, write):
    words = ("--xc", "b2plyp", "--optimize", "--html", "h2.html")
    found = result_of(trnqc, write("h2.xyz", H2.format(0.8)), *words)
    (_, _, z1), (_, _, z2) = found["geometry"]["coordinates"]
    energy = {k: DH(mole(atom=f"H 0 0 0; H 0 0 {abs(z2 - z1) + k * 0.01}"), "B2PLYP").kernel() for k in (-1, 0, 1)}
    assert energy[0] < min(energy[-1], energy[1])


@pytest.mark.parametrize("charge, peer", [(0, rpa.RPA), (1, urpa.URPA)], ids=["restricted", "unrestricted"])
def test_rpa_is_that_of_pyscf(trnqc, write, charge, peer):
    words = ("--xc", "pbe", "--rpa", "--charge", charge, "--all-electron", "--basis", "6-31g", "--json", "-")
    status, out, err = trnqc("scf", write("water.xyz", WATER), *words)
    assert status == 0, err
    found = json.loads(out)
    mf = dft.KS(mole(charge=charge, spin=charge, basis="6-31g"), xc="pbe").density_fit().run()
    reference = peer(mf)
    reference.with_df = df.DF(mf.mol, RPA(mf).auxiliary_basis().auxmol.basis)
    reference.kernel()
    assert found["method"] == "RPA@PBE/6-31g"
    assert found["parts"]["RPA correlation"] == pytest.approx(reference.e_corr, abs=1e-7)
    assert found["e_tot"] == pytest.approx(reference.e_tot, abs=2e-7)


def test_rpa_of_hartree_fock_adds_to_its_energy(trnqc, write):
    found = result_of(trnqc, write("water.xyz", WATER), "--rpa")
    expected = RPA(mole().RHF().density_fit().run(), frozen=1).run()
    assert found["e_tot"] == pytest.approx(expected.e_tot, abs=2e-8)
    assert found["e_tot"] == pytest.approx(found["correlation"]["e_scf"] + found["correlation"]["e_corr"], abs=1e-10)


def test_vibrations_and_excited_states_are_those_of_pyscf(trnqc, write, monkeypatch):
    monkeypatch.setenv("TRNQC_KERNELS", "cached")  # Kernels of Hessians take a minute to compile, and have tests.
    found = result_of(trnqc, write("water.xyz", WATER), "--direct", "--frequencies", "--tddft", "2", "--triplets")
    mf = scf.RHF(mole()).run()
    expected = thermo.harmonic_analysis(mf.mol, mf.Hessian().kernel(), imaginary_freq=False)
    assert found["vibrations"]["wavenumbers"] == pytest.approx(list(expected["freq_wavenumber"]), abs=0.1)
    energies = thermo.thermo(mf, expected["freq_au"])
    assert found["vibrations"]["thermochemistry"]["Gibbs energy"][0] == pytest.approx(energies["G_tot"][0], abs=1e-6)
    states = mf.TDHF().set(nstates=2, singlet=False)
    states.kernel()
    energies = [state["energy"] for state in found["excitations"]["states"]]
    assert found["excitations"]["ran_on"].startswith("double precision: the molecule is small")
    assert energies == pytest.approx(list(states.e * HARTREE2EV), abs=1e-4)


def test_the_response_of_the_grid_is_in_gradients_optima_and_vibrations(trnqc, write):
    """Of hydrogen, whose kernels are compiled soon."""
    words = ("--xc", "m06l", "--grid", "0", "--conv-tol", "1e-11", "--optimize", "--frequencies")
    found = result_of(trnqc, write("h2.xyz", H2.format(0.9)), *words, "--grid-response")

    def forces(length):
        atoms = f"H 0 0 0; H 0 0 {length}"
        mf = dft.RKS(gto.M(atom=atoms, basis="sto-3g", unit="Bohr", verbose=0), xc="m06l").density_fit()
        mf.grids.level = 0
        return mf.run(conv_tol=1e-13).nuc_grad_method().set(grid_response=True).kernel()[1, 2]

    start, end = (np.array(found["geometry"]["coordinates"])[n] for n in (0, 1))
    length = np.linalg.norm(end - start) / BOHR
    assert abs(forces(length)) < 5e-5
    constant = (forces(length + 1e-3) - forces(length - 1e-3)) / 2e-3
    # PySCF takes the mean mass of the isotopes.
    expected = (constant / (1.008 * AMU2AU / 2)) ** 0.5 * HARTREE2WAVENUMBER
    assert found["vibrations"]["wavenumbers"] == pytest.approx([expected], abs=0.05)
    fixed = result_of(trnqc, write("h2.xyz", H2.format(0.9)), *words)
    assert abs(fixed["vibrations"]["wavenumbers"][0] - found["vibrations"]["wavenumbers"][0]) > 1


@pytest.mark.parametrize("xc, charge", [("hf", 0), ("pbe", 0), ("pbe", 1)], ids=["RHF", "RKS", "UKS"])
def test_infrared_intensities_are_derivatives_of_the_dipole(trnqc, write, monkeypatch, xc, charge):
    monkeypatch.setenv("TRNQC_KERNELS", "cached")
    words = ("--xc", xc, "--charge", charge, "--frequencies", "--conv-tol", "1e-11", "--html", "water.html")
    found = result_of(trnqc, write("water.xyz", WATER), *words)
    mol = mole(charge=charge, spin=charge)
    amu = np.array([15.99491462, 1.00782503, 1.00782503])  # 16O and 1H; the mean masses differ by less than 0.03 %.
    modes = np.array(found["vibrations"]["modes"])
    # The derivative along a mode of unit length is divided by the root of its reduced mass.
    for mode, intensity in zip(modes, found["vibrations"]["intensities"]):
        step, dipoles = 2e-3, []
        for sign in (1, -1):
            moved = mol.set_geom_(mol.atom_coords() + sign * step * mode, unit="Bohr", inplace=False)
            mf = (moved.HF() if xc == "hf" else moved.KS(xc=xc)).density_fit().set(conv_tol=1e-12).run()
            density = mf.make_rdm1() if charge == 0 else mf.make_rdm1().sum(axis=0)
            electrons = np.einsum("xij,ij->x", moved.intor("int1e_r"), density)
            dipoles.append(moved.atom_charges() @ moved.atom_coords() - electrons)
        derivative = (dipoles[0] - dipoles[1]) / (2 * step)
        mass = amu @ np.square(mode).sum(axis=1)
        # 1 (Debye/Angstrom)^2/amu is 42.2561 km/mol; 1 e is 4.80320 Debye/Angstrom.
        assert intensity == pytest.approx(42.2561 * 4.80320**2 * derivative @ derivative / mass, rel=0.01, abs=0.01)
    assert found["units"]["intensities"] == "km/mol"


def test_a_saddle_point_has_imaginary_frequencies_and_says_so(trnqc, write, monkeypatch):
    monkeypatch.setenv("TRNQC_KERNELS", "cached")
    linear = write("linear.xyz", "3\n\nO 0 0 0\nH 0 0 0.95\nH 0 0 -0.95\n")
    status, out, err = trnqc("scf", linear, *SMALL, "--frequencies")
    assert status == 0
    assert "2 imaginary frequencies" in err
    assert "-" in out[out.index("Vibrations") : out.index("Thermochemistry")]


def test_an_optimisation_gives_a_minimum_and_its_files(trnqc, write, tmp_path):
    words = ("--optimize", "--frequencies", "--tddft", "1", "--html", "h2.html", "--molden", "h2.molden")
    files = ("--cube", "homo", "density", "--trajectory", "steps.xyz", "--xyz", "last.xyz", "--checkpoint", "h2.chk")
    status, out, err = trnqc("scf", write("h2.xyz", H2.format(0.8)), *SMALL, *words, *files)
    assert status == 0 and "Optimised geometry" in out
    assert (tmp_path / "steps.xyz").read_text().count("energy=") == err.count("largest force")
    assert "forces:R:3" in (tmp_path / "last.xyz").read_text()
    assert (tmp_path / "h2.molden").read_text().startswith("[Molden Format]")
    assert (tmp_path / "h2-homo.cube").exists() and (tmp_path / "h2-density.cube").exists()
    page = (tmp_path / "h2.html").read_text()
    data = json.loads(page.split('id="molecule">')[1].split("</script>")[0])
    assert len(data["frames"]) > 1 and data["bonds"] == [[0, 1]] and len(data["modes"]) == 1
    assert page.count("<title>infrared spectrum") == 1 and page.count("<title>absorption spectrum") == 1
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "these parts with PySCF, estimated" in page and "whole SCF here" in page


def test_gradients_and_optima_with_seminumerical_exchange(trnqc, write):
    words = ("--direct", "--exchange", "seminumerical")
    found = result_of(trnqc, write("h2.xyz", H2.format(0.8)), *words, "--gradient")
    exact = gto.M(atom="H 0 0 0; H 0 0 0.8", basis="sto-3g", verbose=0).RHF().run().nuc_grad_method().kernel()
    assert "points" in found["ran_on"]
    assert 0 < abs(np.array(found["gradient"]) - exact).max() < 1e-4
    optimum = result_of(trnqc, write("h2.xyz", H2.format(0.8)), *words, "--optimize")
    assert abs(np.array(optimum["gradient"])).max() < 4.5e-4


def test_a_checkpoint_begins_with_converged_orbitals(trnqc, write):
    path = write("water.xyz", WATER)
    first = result_of(trnqc, path, "--checkpoint", "water.chk")
    second = result_of(trnqc, path, "--checkpoint", "water.chk")
    assert len(second["cycles"]) < len(first["cycles"])
    assert second["e_tot"] == pytest.approx(first["e_tot"], abs=1e-8)
    status, _, err = trnqc("scf", write("h2.xyz", H2.format(0.8)), *SMALL, "--checkpoint", "water.chk")
    assert status == 2 and "expected those of H H" in err


def test_frames_give_a_list(trnqc, write):
    path = write("curve.xyz", H2.format(0.7) + H2.format(0.8) + "\n")
    found = result_of(trnqc, path)
    assert [one["geometry"]["name"] for one in found] == ["curve-1", "curve-2"]
    assert "curve-2" in trnqc("scf", path, *SMALL)[1]


def test_solvents_lower_the_energy_of_a_polar_molecule(trnqc, write):
    path = write("water.xyz", WATER)
    gas = result_of(trnqc, path)
    pcm = result_of(trnqc, path, "--solvent", "water", "--solvent-model", "c-pcm")
    mf = mole().RHF().density_fit().PCM()
    mf.with_solvent.method, mf.with_solvent.eps = "C-PCM", 78.355
    assert pcm["e_tot"] == pytest.approx(mf.kernel(), abs=2e-8)
    assert pcm["e_tot"] < gas["e_tot"] - 1e-3


@pytest.mark.parametrize(
    "words, message",
    [
        (["--xc", "b3lpy"], "unknown functional 'b3lpy'"),
        (["--xc", "b2plyp", "--frequencies"], "B2PLYP has no Hessian"),
        (["--xc", "b2-plyp", "--tddft", "1"], "excited states of B2PLYP"),
        (["--xc", "b2plyp", "--rpa"], "leave out --rpa"),
        (["--xc", "b2plyp", "--charge", "1", "--reference", "rohf"], "use --reference uhf"),
        (["--xc", "dsd-blyp", "--solvent", "water"], "leave out --solvent"),
        (["--xc", "xyg3", "--dispersion", "d3bj"], "no d3bj parameters for 'xyg3'"),
        (["--xc", "wb97m(2)", "--optimize"], "no gradient"),
        (["--xc", "pbe", "--rpa", "--gradient"], "RPA has no gradient"),
        (["--xc", "pbe", "--rpa", "--dispersion", "d4"], "RPA contains dispersion"),
        (["--xc", "pbe", "--frozen", "1"], "pbe correlates no orbitals"),
        (["--solvent", "watr"], "did you mean water"),
        (["--spin", "2", "--reference", "rhf"], "use uhf or rohf"),
        (["--charge", "1", "--triplets", "--tddft", "1"], "closed shell"),
        (["--tda"], "which is missing"),
        (["--trajectory", "a.xyz"], "which is missing"),
        (["--grid", "12"], "0 to 9"),
        (["--xc", "pbe", "--grid-response"], "add --gradient, --optimize or --frequencies"),
        (["--grid-response", "--gradient"], "Hartree-Fock has no quadrature grid"),
        (["--xc", "b2plyp", "--grid-response", "--gradient"], "the gradient of b2plyp is that on a fixed grid"),
        (["--xc", "pbe", "--scf", "pyscf", "--grid-response", "--frequencies"], "PySCF's Hessian has no response"),
        (["--xc", "wb97m_v", "--grid-response", "--frequencies"], "wb97m_v has nonlocal correlation"),
        (["--xc", "nothing", "--grid-response", "--frequencies"], "unknown functional 'nothing'"),
        (["--max-cycle", "1"], "allow more by --max-cycle"),
        (["--exchange", "seminumerical", "--frequencies"], "no Hessian"),
        (["--exchange", "seminumerical", "--xc", "b2plyp", "--gradient"], "double hybrids"),
        (["--tddft", "-1"], "must not be negative"),
        (["--html", "no/such/place.html"], "cannot be written"),
    ],
)
def test_what_is_not_possible_is_one_error(trnqc, write, words, message):
    status, out, err = trnqc("scf", write("water.xyz", WATER), *SMALL, *words)
    assert (status, out) == (2, "")
    assert message in err and err.count("\n") == 1


def test_a_geometry_that_does_not_converge_keeps_its_best(trnqc, write, monkeypatch):
    monkeypatch.setenv("TRNQC_KERNELS", "cached")
    status, out, err = trnqc("scf", write("water.xyz", WATER), *SMALL, "--optimize", "--max-steps", "1")
    assert status == 0 and "has not converged after 1 steps" in err and "Geometry of step 1" in out


def test_the_best_geometry_is_the_last_only_if_the_optimisation_has_converged():
    def step(energy):
        geometry = Geometry("H", ("H",), ((energy, 0.0, 0.0),))
        return GeometryStep(geometry, energy, np.zeros((1, 3)), 1.0)

    steps = tuple(map(step, (-1.0, -1.2, -1.1)))
    stopped, converged = Optimization(steps, converged=False), Optimization(steps, converged=True)
    assert (stopped.best, stopped.geometry.coordinates) == (2, ((-1.2, 0.0, 0.0),))
    assert (converged.best, converged.geometry.coordinates) == (3, ((-1.1, 0.0, 0.0),))
    assert not converged.warnings and "results are those of step 2" in stopped.warnings[0]
    assert stopped.to_dict()["geometry_converged"] is False
