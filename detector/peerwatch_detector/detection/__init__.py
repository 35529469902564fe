"""From frames to findings: the pipeline of one cycle, its methods, and the explanations."""
