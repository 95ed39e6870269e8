"""What every room needs to know of this machine, each rule once."""
