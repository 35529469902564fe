"""Pictures as PNG, for receivers that show no SVG: lines, areas and text as pixels."""
