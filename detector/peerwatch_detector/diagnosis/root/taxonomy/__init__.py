"""What failures are called and what they ask for: rules as data, and the causes that they name."""
