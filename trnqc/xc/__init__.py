"""Exchange and correlation by quadrature: the densities and potentials of density functionals on grids of points.

points -> blocks of near points with their significant functions (blocks.py) -> AO values of a block (ao.py)
       -> densities (densities.py) -> derivatives of the functional (libxc) -> potential (potential.py, quadrature.py)
blocks, changes of the density -> changes of the potential (response.py)
blocks, density matrices -> forces of the exchange-correlation energy (forces.py)
density on points -> sums over pairs of points -> nonlocal correlation (vv10.py)
atomic grids -> weights of the partition of space (programs/partition.py) -> points and weights of a molecule (grids.py)

What other modules build on:

- `blocks.Blocks.of(mol, points, weights, order)` divides points into blocks and screens functions and their derivatives
  up to `order`. Each `PointBlock` has a range of points (`span`), and the significant atomic orbitals (`functions`). A
  grid point is `Blocks.index` of a point in a block; padding has weight 0.
- `ao.AtomicOrbitals(blocks, order)` evaluates them: `aos(block, aos.buffer())` is an array [component, function, point]
  in PySCF's order of derivatives. It may be called on several threads, each with a buffer of its own.
- `quadrature.Quadrature(blocks, kind, threads)` makes passes over the blocks: `densities` returns the density variables
  of density matrices on all points, and `potentials` the matrices of derivatives that a function of the caller makes of
  the densities of each block, such as those of a functional or of its second derivatives times a trial density.
- `numint.NumInt` is PySCF's NumInt with this quadrature.
- `ao.programs_for(mol, order)` are the programs that this needs, to be compiled beforehand or in the background.
"""
