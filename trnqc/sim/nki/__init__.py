"""The modules `nki.isa`, `nki.language` and `nki.typing` under the vendor's names; `sim` defines their contents."""
