"""How calls fail: errors, deadlines, circuit breakers, and what is tried again."""
