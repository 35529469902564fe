"""How reliable the fleet is: ETTR, MTTF, lost GPU time, lemons."""
