"""Bytes of a response to samples on the time grid."""
