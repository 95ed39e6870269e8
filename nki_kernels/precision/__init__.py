"""Number formats of operands of the tensor engine, and a kernel that measures what a device makes of them."""
