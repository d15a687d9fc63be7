"""From an event to its address: templates, names, and the routes compiled from them."""
