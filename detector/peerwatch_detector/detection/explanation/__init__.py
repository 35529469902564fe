"""Why a node was found: the numbers, the confidence and the likely cause."""
