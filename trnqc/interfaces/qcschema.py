"""DF-MP2 by the schema of the MolSSI for quantum chemistry (QCSchema), with the models of QCElemental.

AtomicInput -> Job -> SinglePoint -> AtomicResult, or FailedOperation
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyscf.data.nist import BOHR

from trnqc.errors import InputError, MemoryLimit, NotConverged, TrnqcError, UnsupportedError
from trnqc.interfaces.method import SinglePoint, check_method, job_of_settings, single_point
from trnqc.interfaces.packages import optional
from trnqc.mp2.job import Job
from trnqc.mp2.reference.molecule import Geometry
from trnqc.version import __version__

DRIVERS = ("energy", "gradient", "properties")
# The type in a FailedOperation of each class of error; the first class that fits counts.
ERROR_TYPES = (
    (MemoryLimit, "resource_error"),
    (NotConverged, "convergence_error"),
    (InputError, "input_error"),
    (UnsupportedError, "input_error"),
    (TrnqcError, "execution_error"),
)


def run(input_data: Any, *, threads: int | None = None, memory: float | None = None) -> Any:
    """Run a calculation.

    Parameters
    ----------
    input_data
        An AtomicInput of version 1 or 2, or a dict of one. The method is "mp2", "scs-mp2" or "sos-mp2", the basis set
        is a name, and the driver is "energy", "gradient" or "properties". The keywords are settings of
        `trnqc.mp2.job.Job`, such as {"frozen": 0, "density_fit": False}.
    threads
        Number of threads, unless the keywords have it.
    memory
        Bytes that the calculation may add to the process, unless the keywords have it.

    Returns
    -------
    AtomicResult or FailedOperation
        Of the version of the input. The result has the energies by spin, and with the drivers "gradient" and
        "properties" the dipole moment by the relaxed density. Its extras contain the `MP2Result` as a dict.

    Raises
    ------
    BackendUnavailable
        If QCElemental is absent.
    InputError
        If the version of the schema is neither 1 nor 2. Other errors are returned as FailedOperation.
    """
    models = optional("qcelemental.models.v2")
    version = _version(input_data)
    try:
        request = _as_version_2(input_data, version)
        driver = str(getattr(request.specification.driver, "value", request.specification.driver))
        job = _job(request, {"threads": threads, "memory": memory})
        point = _computed(request, driver, job)
        answer = models.AtomicResult(
            input_data=request,
            molecule=request.molecule,
            return_result=_answer(driver, point),
            properties=_properties(point),
            provenance={"creator": "trnqc", "version": __version__, "routine": "trnqc.interfaces.qcschema.run"},
            extras={"trnqc": point.mp2.result.to_dict()} if point.mp2.result else {},
        )
    except (TrnqcError, ValueError) as error:  # Models raise a subclass of ValueError for wrong input.
        answer = failure(input_data, error)
    return answer.convert_v(version)


def failure(input_data: Any, error: Exception) -> Any:
    """The FailedOperation of version 2 that describes an error."""
    models = optional("qcelemental.models.v2")
    kind = next((name for cls, name in ERROR_TYPES if isinstance(error, cls)), "input_error")
    data = input_data if isinstance(input_data, Mapping) else input_data.model_dump()
    return models.FailedOperation(
        input_data=dict(data), error={"error_type": kind, "error_message": f"{type(error).__name__}: {error}"}
    )


def _version(input_data: Any) -> int:
    """The version of the schema; dicts of version 2 have a specification."""
    if isinstance(input_data, Mapping):
        version = 2 if "specification" in input_data else input_data.get("schema_version", 1)
    else:
        version = getattr(input_data, "schema_version", None)
        if version is None:
            raise InputError(f"an AtomicInput or a dict of one was expected, got {type(input_data).__name__}")
    if version not in (1, 2):
        raise InputError(f"schema_version: expected 1 or 2, found {version!r}")
    return int(version)


def _as_version_2(input_data: Any, version: int) -> Any:
    if isinstance(input_data, Mapping):
        models = optional(f"qcelemental.models.v{version}")
        try:
            input_data = models.AtomicInput(**input_data)
        except Exception as error:  # Models raise errors of many classes for wrong input, and some by accident.
            raise InputError(f"a dict of an AtomicInput was expected: {error!r}") from error
    return input_data.convert_v(2)


def _job(request: Any, machine: Mapping[str, Any]) -> Job:
    basis = request.specification.model.basis
    if not isinstance(basis, str):
        raise InputError(f"the name of a basis set was expected in model.basis, got {type(basis).__name__}")
    settings = {name: value for name, value in machine.items() if value is not None}
    settings |= {"basis": basis} | dict(request.specification.keywords)
    return job_of_settings(settings, _geometry(request.molecule))


def _geometry(molecule: Any) -> Geometry:
    """The molecule with PySCF's labels of ghost atoms, in Angstrom."""
    if molecule.molecular_charge != round(molecule.molecular_charge):
        raise InputError(f"the charge of the molecule must be an integer, got {molecule.molecular_charge}")
    symbols = tuple(
        symbol if real else f"GHOST-{symbol}" for symbol, real in zip(molecule.symbols.tolist(), molecule.real)
    )
    coordinates = tuple(tuple(row) for row in (molecule.geometry * BOHR).tolist())
    spin = round(molecule.molecular_multiplicity) - 1
    return Geometry(molecule.name, symbols, coordinates, round(molecule.molecular_charge), spin)


def _computed(request: Any, driver: str, job: Job) -> SinglePoint:
    if driver not in DRIVERS:
        raise UnsupportedError(f"the driver must be one of {', '.join(DRIVERS)}, got {driver!r}")
    method = check_method(request.specification.model.method)
    return single_point(job, method, gradient=driver == "gradient", dipole=driver != "energy")


def _answer(driver: str, point: SinglePoint) -> Any:
    if driver == "properties":
        return {"dipole": point.dipole.tolist() if point.dipole is not None else None}
    return point.energy if driver == "energy" else point.gradient


def _properties(point: SinglePoint) -> dict[str, Any]:
    """The properties that are known, by their names in the schema; energies in Hartree, dipoles in e Bohr."""
    mp2, result = point.mp2, point.mp2.result
    assert result is not None
    mol, mf = mp2.mol, mp2._scf
    alpha, beta = mol.nelec
    properties = {
        "calcinfo_nbasis": mol.nao_nr(),
        "calcinfo_nmo": result.sizes.nmo,
        "calcinfo_nalpha": alpha,
        "calcinfo_nbeta": beta,
        "calcinfo_natom": mol.natm,
        "nuclear_repulsion_energy": float(mol.energy_nuc()),
        "return_energy": point.energy,
        "return_gradient": point.gradient,
        "scf_total_energy": mp2.e_hf,
        "scf_iterations": mf.cycles,
        "scf_dipole_moment": mf.dip_moment(mol, mf.make_rdm1(), unit="AU", verbose=0).tolist(),
        "mp2_same_spin_correlation_energy": result.e_corr_ss,
        "mp2_opposite_spin_correlation_energy": result.e_corr_os,
        "mp2_singles_energy": result.e_singles,
        "mp2_doubles_energy": result.e_corr_os + result.e_corr_ss,
        "mp2_correlation_energy": result.e_corr,
        "mp2_total_energy": result.e_tot,
        "mp2_dipole_moment": None if point.dipole is None else point.dipole.tolist(),
    }
    return {name: value for name, value in properties.items() if value is not None}
