"""What a tensor product is: irreps, coupling coefficients, paths with their modes and normalisation, graphs."""
