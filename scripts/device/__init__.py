"""Scripts for a machine with a GPU or a Trainium device; each rehearses without one."""
