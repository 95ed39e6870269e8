"""What plans cost: symbolic counts of operations, and estimated seconds at the rates of this machine."""
