"""x"""
from operators.sources.parquet import read_parquet
from operators.sources.arrow import from_arrow
from operators.sources.paced import paced
from operators.sinks.parquet import write_parquet
from operators.sinks.collect import collect
from dataflow.expressions import count
