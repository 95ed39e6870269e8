"""Correlation energies of ring diagrams, which cost N^4: scaled opposite-spin MP2 and the random-phase approximation.

    Factors of each spin -> gram_matrices (sum over ia of weighted B[i, a, P] B[i, a, Q]) -> traces -> energy

gram         the sums over orbital pairs that all ring diagrams are made of
quadrature   exponential sums for the denominators of MP2, with a bound on their error
energies     the two energies, from factors
methods      the method objects
"""
