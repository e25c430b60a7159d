"""The libraries of data people, on files of a server."""

import subprocess
import sys

import fsspec
import numpy
import pandas
import pyarrow.dataset
import pytest
import xarray

import nfsw


@pytest.fixture
def frame():
    numbers = range(10_000)
    return pandas.DataFrame({"year": [2000 + it % 20 for it in numbers], "amount": [it * 0.5 for it in numbers]})


def test_pandas_reads_and_writes_parquet(place, frame):
    _, url = place
    frame.to_parquet(f"{url}/a.parquet")
    assert pandas.read_parquet(f"{url}/a.parquet").equals(frame)
    assert list(pandas.read_parquet(f"{url}/a.parquet", columns=["year"])) == ["year"]
    with nfsw.open(f"{url}/a.csv", "w") as file:
        frame.to_csv(file, index=False)
    with nfsw.open(f"{url}/a.csv") as file:
        assert pandas.read_csv(file).equals(frame)


def test_pyarrow_reads_a_dataset(server, place, top, frame):
    directory, _ = place
    for year, part in frame.groupby("year"):
        (directory / f"year={year}").mkdir()
        part.drop(columns="year").to_parquet(directory / f"year={year}" / "part.parquet", index=False)
    fs = fsspec.filesystem("nfs", **server.options())
    dataset = pyarrow.dataset.dataset(top, filesystem=fs, partitioning="hive")
    table = dataset.to_table(filter=pyarrow.dataset.field("year") == 2003)
    assert table.num_rows == (frame.year == 2003).sum()
    assert sum(table["amount"].to_pylist()) == frame[frame.year == 2003].amount.sum()


DASK = """
import sys
import dask.dataframe
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        frame = dask.dataframe.read_parquet(sys.argv[1])
        print(int(frame.amount.sum().compute()), frame.npartitions)
"""


def test_dask_reads_with_two_workers(place, frame, tmp_path):
    directory, url = place
    for part in range(4):
        frame[part::4].to_parquet(directory / f"part.{part}.parquet", index=False)
    script = tmp_path / "query.py"
    script.write_text(DASK)
    ran = subprocess.run([sys.executable, script, url], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [str(int(frame.amount.sum())), "4"]


def test_xarray_keeps_arrays_in_zarr(place):
    _, url = place
    data = xarray.Dataset({"t": (("x", "y"), numpy.arange(10_000.0).reshape(100, 100))})
    data.chunk({"x": 10}).to_zarr(f"{url}/a.zarr")
    assert xarray.open_zarr(f"{url}/a.zarr").equals(data)
