"""Apache Kafka."""
