"""The commands of `bronze-sidecar`."""
