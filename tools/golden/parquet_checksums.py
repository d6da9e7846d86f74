"""Parquet files whose pages have checksums: tests/golden/data/checksums.parquet and checksums_v2.parquet, which packs
its pages and has dictionaries, a nested column and pages of version 2.

Made with pyarrow 25.0.1.  usage: parquet_checksums.py FOLDER
"""
import pathlib
import sys

import pyarrow
import pyarrow.parquet

out = pathlib.Path(sys.argv[1])
rows = [{"text": f"the row of number {i}", "kind": "ab"[i % 2], "tags": [{"n": i}] * (i % 3)} for i in range(60)]
table = pyarrow.Table.from_pylist(rows)
common = {"write_page_checksum": True, "row_group_size": 20, "data_page_size": 256, "write_statistics": False}
pyarrow.parquet.write_table(table.select(["text"]), out / "checksums.parquet", compression="none",
                            use_dictionary=False, **common)
pyarrow.parquet.write_table(table, out / "checksums_v2.parquet", compression="zstd", data_page_version="2.0", **common)
