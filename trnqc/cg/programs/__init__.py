"""The paths of a tensor product and its derivatives, as programs of one edge: each formula is stated once."""
