"""Trains the models; the only package that imports torch."""
