"""J and K on GPUs: quartets are selected on the host and digested on the device."""
