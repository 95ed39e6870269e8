"""Electron repulsion integrals by Head-Gordon-Pople recurrences, generated for the shells at hand, up to J and K.

shell class -> recurrence graph -> schedule -> program (gen) -> compiled kernel (jit) -> integrals, J, K
"""
