"""Fitted three-index integrals B[i, a, Q] with (ia|jb) = sum_Q B[i, a, Q] B[j, b, Q].

    auxiliary_basis -> memory: plan -> shell_blocks: (mu nu|P) -> (ia|P) -> metric: (P|Q)^-1/2 -> Factors

`build` chooses among memory, disk and ranks, and `factors` defines the value `Factors`.
"""
