"""The loop without a person: fault, finding, page, and the job goes on without the node."""
