"""The modules `nki.isa`, `nki.language` and `nki.typing` as the vendor names them -> definitions elsewhere in `sim`."""
