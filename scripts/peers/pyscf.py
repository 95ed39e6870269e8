"""PySCF: its tests of SCF, gradients, Hessians, response, density fitting, solvents, QM/MM, X2C and CASSCF."""

from __future__ import annotations

from scripts.peers.peer import Exclusion, Peer

FOLDERS = {
    "scf": "rhf uhf h2o h2o_vdz addons stability jk response_function",
    "grad": "rhf uhf rohf roks rks uks tdrhf_grad",
    "df": "df_jk df_grad df_hessian",
    "tdscf": "tdrhf tdrks tduhf tduks",
    "hessian": "rhf uhf rks uks vv10_hessian",
    "dft": "h2o he numint grids",
    "qmmm": "grad_mm itrf",
    "solvent": "pcm pcm_grad pcm_hessian pcm_tdscf smd ddcosmo ddcosmo_grad",
    "mcscf": "casci newton_casscf mc1step n2_df bz_df addons",
    "x2c": "x2c",
}

# Tests that read `mf._eri`, which the direct way does not keep, need no place here: they fail under its control too.
EXCLUSIONS = (
    Exclusion(
        r"qmmm/test/test_itrf\.py::KnowValues::test_energy$|dft/test/test_h2o\.py::KnownValues::test_to_(hf|ks)$"
        r"|x2c/test/test_x2c\.py::KnownValues::test_undo_x2c$"
        r"|solvent/test/test_ddcosmo\.py::KnownValues::test_ddcosmo_scf$",
        "compares classes or their names, and accelerated objects are of a class with a layer on top",
    ),
)

PEER = Peer(
    name="pyscf",
    repository="https://github.com/pyscf/pyscf",
    tag="v{version}",
    files=tuple(f"pyscf/{folder}/test/test_{name}.py" for folder, names in FOLDERS.items() for name in names.split()),
    swap="scripts.peers.swap.pyscf",
    ways={"memory": {"PEERS_SWAP": "accelerate"}, "direct": {"PEERS_SWAP": "accelerate,direct"}},
    controls={"direct": {"PEERS_SWAP": "direct"}},
    exclusions=EXCLUSIONS,
    # PySCF's own choice of tests, from the pytest.ini of its tree.
    arguments=("-k", "not _high_cost and not _skip"),
)
