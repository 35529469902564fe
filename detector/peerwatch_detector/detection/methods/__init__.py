"""The methods that compare the nodes of a job, one package each."""
