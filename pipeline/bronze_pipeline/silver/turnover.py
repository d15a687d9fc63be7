"""What trades cost: price times quantity, exactly. Workers add it as they read trades.

Spark's own product of two `decimal(38,18)` keeps six places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from bronze_pipeline.silver.follow import ReadFiles

TURNOVER = "turnover"
PLACES = 18
TYPE = pa.decimal128(38, PLACES)
# Together they have as many digits as the widest type that Arrow can multiply into.
LARGER, SMALLER = pa.decimal256(38, PLACES), pa.decimal256(37, PLACES)


@dataclass(frozen=True)
class ReadTrades:
    """What a worker does to read trades and their turnover; it is sent there."""

    read: ReadFiles

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in self.read(batches):
            yield rows.append_column(TURNOVER, turnover(rows["price"], rows["qty"]))


def turnover(prices: pa.Array, quantities: pa.Array) -> pa.Array:
    """Return the products, rounded at the 18th place; NULL where one does not fit, or a factor is NULL."""
    is_less = pc.less(pc.abs(prices), pc.abs(quantities))
    larger = pc.if_else(is_less, quantities, prices)
    smaller = _below(pc.if_else(is_less, prices, quantities), 37)
    product = pc.multiply(larger.cast(LARGER), smaller.cast(SMALLER))
    return _below(pc.round(product, PLACES, "half_towards_infinity"), 38).cast(TYPE)


def _below(values: pa.Array, digits: int) -> pa.Array:
    """Return the values that have at most so many digits with 18 places, and NULL for the others."""
    limit = pa.scalar(Decimal(10) ** (digits - PLACES), values.type)
    return pc.if_else(pc.less(pc.abs(values), limit), values, pa.scalar(None, values.type))
