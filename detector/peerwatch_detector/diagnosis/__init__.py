"""Why a job suffers: what its own ranks, collectives and spans say, as verdicts."""
