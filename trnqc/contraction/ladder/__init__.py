"""Particle-particle ladders, whose four-index integrals are made tile by tile and never stored whole.

tree -> pattern -> loops and tiles -> integrals of a tile -> run
"""
