"""Bytes of an answer to samples on the time grid."""
