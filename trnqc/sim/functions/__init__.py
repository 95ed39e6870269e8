"""The functions of `nki.language`: tensors, loops, operators, and functions of tiles, a few instructions each."""
