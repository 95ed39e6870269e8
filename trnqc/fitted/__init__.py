"""What density-fitted integrals of J, K and MP2 share: the metric, rows on disk and over ranks, and their memory.

    (P|Q) -> metric: M with (P|Q)^-1 = M M^T -> fitted integrals -> disk, ranks: where they are kept -> rows, read ahead

Both kinds of integrals are rows of fitted functions Q. Those of J and K [naux, pairs mu nu] are fitted by columns, and
the factors of MP2 [ia, naux] by rows.
"""
