"""Files read again and again, safely."""
