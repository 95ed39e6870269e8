"""PySCF: its tests of Hartree-Fock, Kohn-Sham, gradients, Hessians, response and density fitting."""

from __future__ import annotations

from scripts.peers.peer import Exclusion, Peer

FOLDERS = {
    "scf": "rhf uhf h2o addons stability jk response_function h2o_vdz diis bz",
    "grad": "rhf uhf rohf rks uks roks tdrhf_grad tdrks_grad tduks_grad casscf",
    "df": "df_jk df_grad df_hessian",
    "tdscf": "tdrhf tdrks tduhf tduks tdrks_vv10",
    "hessian": "rhf uhf rks uks vv10_hessian",
    "dft": "h2o he numint grids",
    "qmmm": "grad_mm itrf",
    "solvent": "pcm pcm_grad pcm_hessian ddcosmo ddcosmo_grad smd_grad pcm_tdscf pol_embed",
    "mcscf": "casci newton_casscf mc1step n2_df addons bz_df",
    "x2c": "x2c x2c_grad x2c_hess",
}

# Tests that read `mf._eri`, which the direct way does not keep, need no place here: they fail under its control too.
EXCLUSIONS = (
    Exclusion(
        r"qmmm/test/test_itrf\.py::KnowValues::test_energy$|dft/test/test_h2o\.py::KnownValues::test_to_(hf|ks)$",
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
