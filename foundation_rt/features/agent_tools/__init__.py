"""Tools that tell of agents, and let an operator act on them."""
