"""Second derivatives of exchange-correlation energies, and what a coupled-perturbed SCF needs of them.

densities -> AO values of a block -> density and its derivatives by atoms (block_densities.py)
          -> Hessian blocks (block_terms.py), derivatives of the potential's matrix (quadrature.py)
          -> response to changes of orbitals (response.py)
          -> derivatives for points that move with the atoms (moving_grid.py)
"""
