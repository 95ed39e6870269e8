"""Running plans: operands packed into their layouts, compiled kernels, results, and derivatives of networks."""
