"""The incident: everything that was observed of one fault of one job."""
