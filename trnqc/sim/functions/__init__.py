"""The functions of `nki.language`: tensors, loops, operators, and functions of tiles.

operators, tiles -> a few instructions each (`trnqc.sim.instructions`) -> tile
"""
