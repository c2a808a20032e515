"""Tools that come with the runtime, and a tour of them."""
