"""The commands of `bronze-pipeline`; `bronze_pipeline.cli` lists them."""
