"""How the orbitals of the reference respond to a perturbation.

response: G[P], the change of the Fock matrix     general.py: of any SCF object; fitted.py: from fitted integrals
rotations: orbitals that mix -> equations         -> zvector: solved with the help of minimal.py
"""
