"""The vendor's modules `nki.isa`, `nki.language` and `nki.typing`: names only, defined elsewhere in the simulator."""
