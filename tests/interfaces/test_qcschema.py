"""QCSchema in and out, of both versions, alone and by QCEngine."""

from __future__ import annotations

import sys

import pytest
from pyscf import gto, scf

import trnqc
from trnqc.errors import BackendUnavailable

qcelemental = pytest.importorskip("qcelemental")
qcengine = pytest.importorskip("qcengine")
v2 = qcelemental.models.v2

H2 = {"symbols": ["H", "H"], "geometry": [0, 0, 0, 0, 0, 1.4]}


def version_1(driver="energy", molecule=H2, method="mp2", basis="6-31g", **keywords):
    return {"molecule": molecule, "driver": driver, "model": {"method": method, "basis": basis}, "keywords": keywords}


def version_2(**options):
    old = version_1(**options)
    return {"molecule": old.pop("molecule"), "specification": old}


@pytest.fixture(scope="module")
def peer():
    mol = gto.M(atom="H 0 0 0; H 0 0 1.4", unit="Bohr", basis="6-31g", verbose=0)
    return trnqc.DFMP2(trnqc.accelerate(scf.RHF(mol).density_fit()).run(conv_tol=1e-11)).run()


@pytest.mark.parametrize("form", ["dict", "model"])
@pytest.mark.parametrize("version", [1, 2])
def test_energy_of_both_versions(peer, version, form):
    data = (version_1 if version == 1 else version_2)()
    if form == "model":
        data = getattr(qcelemental.models, f"v{version}").AtomicInput(**data)
    result = trnqc.qcschema.run(data)
    assert (result.success, result.schema_version) == (True, version)
    assert result.return_result == pytest.approx(peer.e_tot, abs=1e-9)
    assert result.properties.mp2_correlation_energy == pytest.approx(peer.e_corr, abs=1e-9)
    assert result.properties.mp2_opposite_spin_correlation_energy == pytest.approx(peer.e_corr_os, abs=1e-9)
    assert result.properties.mp2_same_spin_correlation_energy == pytest.approx(0, abs=1e-12)
    assert result.properties.scf_total_energy == pytest.approx(peer.e_hf, abs=1e-9)
    assert result.properties.nuclear_repulsion_energy == pytest.approx(1 / 1.4)
    assert (result.properties.calcinfo_nbasis, result.properties.calcinfo_nalpha) == (4, 1)
    assert result.provenance.creator == "trnqc"
    assert trnqc.MP2Result.from_dict(result.extras["trnqc"]).e_tot == result.properties.mp2_total_energy


def test_gradient(peer):
    result = trnqc.qcschema.run(v2.AtomicInput(**version_2(driver="gradient")))
    assert result.return_result == pytest.approx(peer.nuc_grad_method().kernel(), abs=1e-6)
    assert result.properties.return_gradient == pytest.approx(result.return_result)


def test_dipole_of_an_ion_with_a_ghost_and_of_a_radical():
    molecule = {"symbols": ["O", "H", "He"], "geometry": [0, 0, 0, 0, 0, 1.83, 0, 0, 6], "real": [True, True, False]}
    anion = molecule | {"molecular_charge": -1, "molecular_multiplicity": 1}
    result = trnqc.qcschema.run(version_1("properties", anion, basis="sto-3g"))
    assert result.success, result.error
    assert result.return_result["dipole"] == pytest.approx(result.properties.mp2_dipole_moment)
    assert (result.properties.calcinfo_nbasis, result.properties.calcinfo_nalpha) == (7, 5)
    radical = molecule | {"molecular_multiplicity": 2}
    result = trnqc.qcschema.run(version_1("energy", radical, basis="sto-3g"))
    assert (result.properties.calcinfo_nalpha, result.properties.calcinfo_nbeta) == (5, 4)


def test_scaled_methods_and_keywords(peer):
    assert trnqc.qcschema.run(version_1(method="SCS-MP2")).return_result == pytest.approx(peer.e_tot_scs, abs=1e-9)
    result = trnqc.qcschema.run(version_1(method="ri-mp2", density_fit=False, frozen=0))
    assert "conventional" in result.extras["trnqc"]["system"]["scf"]


@pytest.mark.parametrize(
    ("request_", "kind", "words"),
    [
        (version_1(method="ccsd"), "input_error", "the method must be one of mp2, scs-mp2, sos-mp2, got 'ccsd'"),
        (version_1(driver="hessian"), "input_error", "the driver must be one of energy, gradient, properties"),
        (version_1(basis="nonsense"), "input_error", "no basis set 'nonsense'"),
        (version_1(basis=None), "input_error", "name of a basis set"),
        (version_1(frozne=1), "input_error", "did you mean 'frozen'"),
        (version_1(max_cycle=1), "convergence_error", "has not converged"),
        (version_1(memory=1e3), "resource_error", "memory"),
        ({"driver": "energy"}, "input_error", "molecule"),
        (version_2(driver="hessian"), "input_error", "driver"),
    ],
)
def test_errors_are_failed_operations(request_, kind, words):
    result = trnqc.qcschema.run(request_)
    assert (result.success, result.error.error_type) == (False, kind)
    assert words in result.error.error_message
    assert isinstance(
        result, getattr(qcelemental.models, f"v{2 if 'specification' in request_ else 1}").FailedOperation
    )


@pytest.mark.parametrize("version", [1, 2])
def test_qcengine_runs_it(peer, version):
    trnqc.qcengine.register()
    trnqc.qcengine.register()
    data = getattr(qcelemental.models, f"v{version}").AtomicInput(**(version_1 if version == 1 else version_2)())
    result = qcengine.compute(data, "trnqc", raise_error=True, task_config={"ncores": 1, "memory": 1})
    assert result.return_result == pytest.approx(peer.e_tot, abs=1e-9)
    assert result.schema_version == version
    failed = qcengine.compute(version_1(method="ccsd"), "trnqc")
    assert (failed.success, failed.error.error_type) == (False, "input_error")


def test_absent_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "qcelemental.models.v2", None)
    with pytest.raises(BackendUnavailable, match=r"'qcelemental' is needed and cannot be.*'trnqc\[qcschema\]'"):
        trnqc.qcschema.run(version_1())
