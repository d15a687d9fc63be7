"""The sections of the page: each a few plots, what they show in words, and the numbers behind them."""
