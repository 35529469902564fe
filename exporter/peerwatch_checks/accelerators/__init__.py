"""GPUs as the checks use them, by torch; the same code runs on the CPU as far as it goes."""
