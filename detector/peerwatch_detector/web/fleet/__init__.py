"""All training jobs, what needs a person first."""
