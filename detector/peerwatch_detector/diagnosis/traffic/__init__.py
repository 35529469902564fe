"""MegaScale's watch on traffic: that of a job which falls, stops or loses its rhythm."""
