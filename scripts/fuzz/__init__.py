"""Files and texts of strangers, damaged at random, given to our readers."""
