"""What is to be done about alerts: pure functions of what is known."""
