"""How the models learn from labelled logs. Only the recurrent ones need torch for that."""
