"""Dead letters for the command line: reading, describing and sending them."""
