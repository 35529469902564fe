"""Which part of a job reproduces a fault: the job is cut where the fabric is, part by part."""
