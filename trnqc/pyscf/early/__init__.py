"""Early cycles of an SCF that take less time and end where accurate ones would: an SCF converges on accurate ones only.

precision   fitted J and K in reduced precision
screening   direct J and K that leave out larger integrals
quadrature  exchange and correlation on coarse grids
gradient    the orbital gradient, which decides when early cycles end
"""
