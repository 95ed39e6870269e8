"""opt_einsum: its tests of `contract`, with `trnqc.einsum` in its place."""

from __future__ import annotations

from scripts.peers.peer import Exclusion, Peer

EXCLUSIONS = (
    Exclusion(
        r"test_input\.py::test_type_errors$",
        "text as `out` names a new file for the result in trnqc.einsum, so that out='test' is no error of type",
    ),
)

PEER = Peer(
    name="opt_einsum",
    repository="https://github.com/dgasmith/opt_einsum",
    tag="v{version}",
    files=tuple(f"opt_einsum/tests/test_{name}.py" for name in ("contract", "edge_cases", "input", "blas")),
    swap="scripts.peers.swap.opt_einsum",
    ways={"einsum": {"PEERS_SWAP": "einsum"}},
    exclusions=EXCLUSIONS,
)
