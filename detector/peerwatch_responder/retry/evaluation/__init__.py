"""How right the models are about mechanisms that they have never seen."""
