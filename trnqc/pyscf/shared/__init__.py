"""What the ranks of a job compute together for the SCF objects of rank 0: J and K, quadratures and their gradients.

    rank 0: PySCF's loop -> density -> ask -> J, K, potential       the others: serve -> the same call -> ...

attach      the SCF object of rank 0 that asks all ranks
fitting     density fitting on rank 0 whose integrals lie on all ranks
builders    J, K and their derivatives without stored integrals, on rank 0
quadrature  integrals of density functionals, on rank 0
work        what each rank does when rank 0 asks
calls       how rank 0 asks and the others serve
"""
