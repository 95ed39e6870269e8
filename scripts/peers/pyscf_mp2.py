"""PySCF: its tests of density-fitted MP2 with RHF and UHF references, in both of its implementations."""

from __future__ import annotations

from scripts.peers.peer import Exclusion, Peer

EXCLUSIONS = (Exclusion(r"test_dfmp2_pbc$", "periodic systems, which trnqc.DFMP2 refuses with an error"),)

PEER = Peer(
    name="pyscf_mp2",
    distribution="pyscf",
    module="pyscf",
    repository="https://github.com/pyscf/pyscf",
    tag="v{version}",
    files=tuple(f"pyscf/mp/test/test_{name}.py" for name in ("dfmp2", "dfmp2_native", "dfump2", "dfump2_native")),
    swap="scripts.peers.swap.pyscf_mp2",
    ways={"ours": {}},
    exclusions=EXCLUSIONS,
    arguments=("-k", "not _high_cost and not _skip"),
)
