"""The query from the trades to the bars of one interval."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from bronze_pipeline.silver.bars import KEY, TRADE_COLUMNS, bars
from bronze_pipeline.silver.follow import ReadFiles
from bronze_pipeline.silver.queries import Outcome, arrow_schema
from bronze_pipeline.silver.turnover import TURNOVER, TYPE, ReadTrades
from bronze_pipeline.silver.upserts import UpsertTable
from bronze_pipeline.tables.lake import Lake


@dataclass
class BarQuery:
    """Makes bars from trades."""

    lake: Lake
    label: str
    """The interval as used in names, such as 1m."""
    interval: str
    """The same in Spark's form."""
    trades: pa.Schema
    """Of the table `trades`."""
    watermark: str | None = None
    output_mode: str = "update"

    @property
    def name(self) -> str:
        return f"bars_{self.label}"

    @property
    def source(self) -> str:
        return self.lake.table_url("trades")

    def open(self, spark: SparkSession) -> None:
        self._read = pa.schema([self.trades.field(name) for name in TRADE_COLUMNS])
        self._columns = from_arrow_schema(self._read.append(pa.field(TURNOVER, TYPE)))
        self._schema = arrow_schema(bars(spark.createDataFrame([], self._columns), self.interval).schema)
        self._table = UpsertTable(self.lake, self.name, self._schema, KEY)

    def read(self, files: DataFrame) -> DataFrame:
        trades = files.mapInArrow(ReadTrades(ReadFiles(self.source, self._read, None)), self._columns)
        return bars(trades, self.interval, self.watermark)

    def write(self, rows: DataFrame, job: str, batch: int) -> Outcome | None:
        # Even if the table has it: Spark's state must get there too.
        changed = rows.toArrow().cast(self._schema)
        if self._table.has(job, batch):
            return None
        if len(changed):
            self._table.put(changed, job, batch)
        return Outcome({self.name: len(changed)})
