"""What the AWS back ends share."""
