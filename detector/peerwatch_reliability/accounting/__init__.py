"""From rows of a scheduler to the numbers of reliability: pure functions of records."""
