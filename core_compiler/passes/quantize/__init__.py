"""Post-training quantisation: observe ranges, insert quantisation, compute with integers."""
