"""What an operator is told of a stream that failed; the texts are Spark's, shortened."""

from __future__ import annotations

import pytest
from bronze_pipeline.running.failures import explain, lasting_error

FAILED = "[STREAM_FAILED] Query [id = 9d87, runId = 981a] terminated with exception: "
IN_BATCH = (
    FAILED + "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach"
    " batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent"
    " call last):\n"
    '  File "py4j/clientserver.py", line 644, in _call_proxy\n'
    "    return_value = getattr(self.pool[obj_id], method)(*params)\n"
    "                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
)
IN_WORKER = (
    "pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python worker:\n"
    "Traceback (most recent call last):\n"
    '  File "task.py", line 40, in write\n'
    "    self._file.write(batch)\n"
)
WORKER_DIED = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling o131.collectToPython.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times,"
    " most recent failure: Lost task 0.3 in stage 1.0 (TID 4) (192.0.2.2 executor driver):"
    " org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): \n\n"
    "\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:711)\n"
    "Caused by: java.io.EOFException\n\t... 21 more\n"
)
ANOTHER = (
    "\n\nDuring handling of the above exception, another exception occurred:\n\n"
    'Traceback (most recent call last):\n  File "x.py", line 1, in y\n    z()\n'
)
NO_BROKER = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment."
WHERE = (
    "\n SQLSTATE: 39000 SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: bronze [id = 9d87]\n"
    "Current Available Offsets: {}\n\nLogical Plan:\n~WriteToMicroBatchDataSourceV1 ForeachBatchSink\n"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            f"{IN_BATCH}{IN_WORKER}OSError: [Errno 28] No space left on device{WHERE}",
            "OSError: [Errno 28] No space left on device",
        ),
        (f"{IN_BATCH}{IN_WORKER}ValueError: first line\nsecond line{WHERE}", "ValueError: first line"),
        (f"{IN_BATCH}{IN_WORKER}KeyError{WHERE}", "KeyError"),
        (
            f"{IN_BATCH}PermissionError: [Errno 13] Permission denied: '/lake/x'{WHERE}",
            "PermissionError: [Errno 13] Permission denied: '/lake/x'",
        ),
        (f"{IN_BATCH}ValueError: no{ANOTHER}TypeError: yes{WHERE}", "TypeError: yes"),
        (
            f"{IN_BATCH}{WORKER_DIED}{WHERE}",
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        ),
        (f"{FAILED}{NO_BROKER} SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: bronze\n", NO_BROKER),
        (f"{FAILED}[X] In latestOffset: Traceback (most recent call last):\n", "[X] In latestOffset: "),
        ("Traceback (most recent call last):\n", "Spark does not say why"),
        ("", "Spark does not say why"),
    ],
)
def test_the_first_line_tells_what_was_raised_and_all_of_it_follows(text: str, line: str) -> None:
    assert explain(text) == f"{line}\n{text}"
    assert lasting_error(text) is None


def test_a_broken_checkpoint_is_no_reason_to_try_again() -> None:
    text = (
        f"{FAILED}[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart streaming query with"
        " stateful operators because the state directory is empty or missing.\nStateful operators in current"
        f" batch: [(OperatorId: 0)].{WHERE}"
    )
    assert lasting_error(text) == (
        "the checkpoint cannot be used: Cannot restart streaming query with stateful operators because the"
        " state directory is empty or missing. Restore it, or use a new one: events already in the"
        " tables are recognized by their ids."
    )
    in_state = (
        "[CANNOT_LOAD_STATE_STORE.CANNOT_READ_DELTA_FILE_NOT_EXISTS] Error reading delta file a of b: gone."
    )
    assert lasting_error(f"{FAILED}{in_state} SQLSTATE: 58030{WHERE}") == (
        "the checkpoint cannot be used: Error reading delta file a of b: gone. Restore it, or use a new one:"
        " events already in the tables are recognized by their ids."
    )


def test_an_error_of_ours_says_all_in_a_line() -> None:
    in_source = (
        f"{FAILED}[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source"
        " perform latestOffset: Traceback (most recent call last):\n"
        '  File "redis_server.py", line 78, in connect\n'
        "    yield Server(client)\n"
    )
    absent = f"{in_source}bronze_pipeline.sources.base.Unreachable: Redis at a:1: Connection refused.{WHERE}"
    assert explain(absent) == "Redis at a:1: Connection refused."
    assert lasting_error(absent) is None
    refused = f"{in_source}bronze_pipeline.sources.base.Refused: Redis at a:1 refuses the login.{WHERE}"
    assert explain(refused) == lasting_error(refused) == "Redis at a:1 refuses the login."


def test_a_reader_that_fell_behind_is_started_again_where_it_is_decided() -> None:
    said = "versions 3 to 5 are no longer in the log of the table at file:///lake/bronze"
    text = f"{FAILED}{IN_WORKER}bronze_pipeline.silver.logs.FellBehind: {said}{WHERE}"
    assert lasting_error(text) is None
    assert explain(text) == said
