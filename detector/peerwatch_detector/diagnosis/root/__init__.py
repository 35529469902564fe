"""The root of a failure: what was observed about a job, weighed until it names who and what."""
