"""AWS SQS."""
