"""What the two command-line programs share: options, problems, progress."""
