"""How many tasks a micro-batch gets, in real Spark."""

from __future__ import annotations

import pytest
from bronze_pipeline.running.few_tasks import FewTasks
from pyspark.sql import SparkSession


@pytest.mark.timeout(400)
def test_a_batch_has_as_many_tasks_as_the_last_one_was_worth(spark: SparkSession) -> None:
    frame, tasks = spark.range(0, 8, numPartitions=8), FewTasks()

    def count(most: int | None = None) -> int:
        return tasks.of(frame, most).rdd.getNumPartitions()

    assert (count(), count(2)) == (8, 2)
    tasks.note(0)
    assert (count(), count(2)) == (1, 1)
    tasks.note(20_001)
    assert (count(), count(3), count(1)) == (2, 2, 1)
    tasks.note(1_000_000)
    assert (count(), count(3)) == (8, 3)
    assert tasks.of(frame).count() == 8
