"""AWS Kinesis Data Streams."""
