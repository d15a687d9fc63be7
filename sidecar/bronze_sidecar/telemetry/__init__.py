"""What operators see: metrics, log lines and the admin port."""
