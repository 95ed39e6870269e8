"""Second derivatives of exchange-correlation energies on a fixed grid, and what a coupled-perturbed SCF needs of them.

densities -> AO values of a block -> density and its derivatives by atoms (block_densities.py)
          -> Hessian blocks, derivatives of the potential's matrix, response to densities (quadrature.py)
"""
