"""Every example of docs/many-machines.md: shells, Slurm, Kubernetes and Dask, on a server of this machine."""

import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pandas
import psutil
import pytest
import yaml

import nfsw
from conftest import command

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "many-machines.md"

FILES = 400


@pytest.fixture
def data(tmp_path):
    data = tmp_path / "data"
    for number in range(FILES):
        directory = data / f"d{number % 20}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{number}").write_bytes(bytes([number % 256]) * (number * 37))
    os.link(data / "d0" / "f0", data / "d1" / "name")
    (data / "d2" / "link").symlink_to("f2")
    return data


@pytest.fixture
def environment(tmp_path):
    """Where `nfsw` is the built command."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nfsw").symlink_to(command())
    state = str(tmp_path / "state")
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "XDG_STATE_HOME": state, "XDG_CACHE_HOME": state}


def examples(language, section):
    text = DOCUMENT.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)


def placed(example, data, url):
    assert "nas:/backup" in example or "nfs://nas/backup" in example
    return example.replace("nfs://nas/backup", url).replace("nas:/backup", f"'{url}'").replace("/data", str(data))


def contents(directory):
    found = {}
    for path in sorted(directory.rglob("*")):
        stat = path.lstat()
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[path.relative_to(directory)] = (what, stat.st_mode, None if path.is_symlink() else stat.st_mtime_ns)
    return found


def assert_complete(data, directory, url):
    assert contents(directory) == contents(data)
    assert (directory / "d0" / "f0").stat().st_ino == (directory / "d1" / "name").stat().st_ino
    assert nfsw.sync(data, url).copied == 0


def shell(script, environment, **more):
    ran = subprocess.run(["bash", "-euc", script], env={**environment, **more}, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return ran


def test_four_shells(place, data, environment):
    directory, url = place
    (example,) = examples("sh", "Four shells")
    *shards, last = placed(example, data, url).splitlines()
    shell("\n".join(shards), environment)
    assert_complete(data, directory, url)
    (directory / "surplus").write_text("")
    shell(last, environment)
    assert_complete(data, directory, url)


def test_a_slurm_job_array(place, data, environment, tmp_path):
    directory, url = place
    (example,) = examples("slurm", "Slurm")
    (submit,) = examples("sh", "Slurm")
    for script in (example, submit):
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    first, last = map(int, re.search(r"^#SBATCH --array=(\d+)-(\d+)$", example, re.M).groups())
    assert first == 1 and f'"$SLURM_ARRAY_TASK_ID/{last}"' in example
    file = tmp_path / "sync.sbatch"
    file.write_text(placed(example, data, url))
    tasks = []
    for task in range(first, last + 1):
        tasks.append(subprocess.Popen(["bash", file], env={**environment, "SLURM_ARRAY_TASK_ID": str(task)}))
    assert [task.wait(300) for task in tasks] == [0] * last
    assert_complete(data, directory, url)


def test_an_indexed_kubernetes_job(place, data, environment):
    directory, url = place
    (example,) = examples("yaml", "Kubernetes")
    job = yaml.safe_load(placed(example, data, url))
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec = job["spec"]
    assert (spec["completionMode"], spec["parallelism"]) == ("Indexed", spec["completions"])
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    (line,) = container["args"]
    assert f'/{spec["completions"]}"' in line
    for index in range(spec["completions"]):
        ran = subprocess.run([*container["command"], line], env={**environment, "JOB_COMPLETION_INDEX": str(index)})
        assert ran.returncode == 0
    assert_complete(data, directory, url)


def begin(script, arguments, environment, tmp_path):
    file = tmp_path / "script.py"
    file.write_text(script)
    return subprocess.Popen([sys.executable, file, *arguments], env=environment, stdout=subprocess.PIPE, text=True)


def test_dask_gives_the_part_of_a_worker_that_dies_to_another_one(place, data, environment, tmp_path):
    directory, url = place
    copy, _ = examples("python", "Dask")
    *shards, last = placed(copy, data, url).splitlines()
    # Slowly enough that none of them is done.
    slowly = "\n".join(shards).replace("SHARDS))", "SHARDS), bwlimit=256)")
    assert "bwlimit" in slowly and "delete=True" in last
    running = begin(slowly, [], environment, tmp_path)
    deadline = time.monotonic() + 120
    while sum(1 for _ in directory.rglob("f*")) < FILES // 20:
        assert time.monotonic() < deadline and running.poll() is None
        time.sleep(0.02)
    children = psutil.Process(running.pid).children(recursive=True)
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert len(workers) == 4
    workers[1].kill()
    assert sum(1 for _ in directory.rglob("f*")) < FILES
    assert running.wait(300) == 0
    counts = json.loads(running.stdout.read())
    # What the worker had copied is not copied again.
    assert len(counts) == 4 and 0 < sum(counts) <= FILES + 2
    assert_complete(data, directory, url)


def test_a_query_of_two_workers_one_behind_a_fading_link(own_server, environment, tmp_path):
    directory = own_server.directory
    numbers = range(40_000)
    columns = {"year": [2000 + it % 20 for it in numbers], "amount": [it * 0.25 for it in numbers]}
    frame = pandas.DataFrame({**columns, "text": [str(it) * 8 for it in numbers]})
    for part in range(4):
        frame[part::4].to_parquet(directory / f"part.{part}.parquet", index=False)
    fading = ["--rate", "10M", "--delay", "5ms", "--good", "200", "--bad", "40"]
    link = subprocess.Popen(
        [command(), "link", "proxy", "--quiet", "--listen", "127.0.0.1:0", "--to", f"{own_server.host}:{own_server.port}", *fading],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = link.stderr.readline().split(" ")[0].rsplit(":", 1)[1]
        ways = [own_server.url, f"nfs://127.0.0.1:{port}"]
        urls = [f"{ways[part % 2]}/part.{part}.parquet" for part in range(4)]
        _, query = examples("python", "Dask")
        running = begin(query, urls, environment, tmp_path)
        told = running.communicate(timeout=300)[0]
        assert running.returncode == 0
    finally:
        link.terminate()
        link.wait()
        link.stderr.close()
    remote = pandas.read_csv(io.StringIO(told), index_col="year").amount
    local = frame.groupby("year").amount.sum()
    assert remote.to_dict() == local.to_dict()


def test_a_sweep_in_parts(environment, tmp_path):
    (example,) = examples("bash", "Sweeps")
    merged = shell(f"cd {tmp_path}; {example}", environment).stdout
    sweep = example.splitlines()[0]
    assert merged and merged == shell(f"{sweep}; nfsw curve $sweep", environment).stdout


def test_shards_are_read_and_refused(place, data):
    _, url = place
    assert sum(nfsw.sync(data, url, shard=(number, 3), dry_run=True).copied for number in (1, 2, 3)) == FILES + 2
    for shard in ("1", "0/3", (4, 3), "x"):
        with pytest.raises(ValueError):
            nfsw.sync(data, url, shard=shard)
    with pytest.raises(ValueError, match="without --shard"):
        nfsw.sync(data, url, shard="1/3", delete=True)
