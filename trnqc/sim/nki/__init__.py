"""The modules of the vendor's `nki` package.

names in `nki.isa`, `nki.language` and `nki.typing` -> definitions elsewhere in `sim`
"""
