"""How an advice is shown: as text for a person, and as JSON for programs."""
