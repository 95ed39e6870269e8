"""What a MACE model computes for each atom: linear layers, symmetric contractions, gates and readouts, and reverse.

description -> `plan` (places of features in memory, packed weights) -> `forward`, `reverse` (programs of a layer)

Features are stored [node][component][channel], the channels of a component filled up to whole vectors. Atoms are sorted
by element, and a program computes a block of atoms of one element.
"""
