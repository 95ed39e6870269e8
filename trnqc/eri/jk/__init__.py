"""Coulomb and exchange matrices from integrals that are never stored.

molecule -> screened shell pairs -> batches of quartets -> integrals digested into J and K -> matrices
"""
