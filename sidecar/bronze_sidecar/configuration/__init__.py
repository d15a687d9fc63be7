"""The whole configuration: declared, read from every place, checked, documented."""
