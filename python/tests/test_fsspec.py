"""The file system for fsspec: its own tests for all file systems, and ours."""

import os
import pickle
import shutil

import fsspec
import fsspec.tests.abstract as abstract
import pytest

import nfsw
from nfsw.fsspec import NFSFileSystem
from test_open import in_child


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, server):
        return NFSFileSystem(**server.options())

    @pytest.fixture
    def fs_path(self, fs, top):
        return top


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


def test_urls_lead_to_the_file_system_and_back(place, top):
    directory, url = place
    (directory / "a b%20?.txt").write_bytes(b"x")
    fs, path = fsspec.url_to_fs(f"{url}/a b%20?.txt")
    assert isinstance(fs, NFSFileSystem) and fs.cat_file(path) == b"x"
    assert fs.unstrip_protocol(path) == f"{url}/a b%20?.txt"
    fs, path = fsspec.url_to_fs(f"{url}?uid=7&gid=8")
    assert path == top and (fs.storage_options["uid"], fs.storage_options["gid"]) == (7, 8)
    with fsspec.open(f"{url}/new.txt.gz", "wt", compression="infer") as file:
        file.write("text")
    with fsspec.open(f"{url}/new.txt.gz", "rt", compression="infer") as file:
        assert file.read() == "text"


def test_a_url_may_have_both_ports(own_server):
    (own_server.directory / "a").write_bytes(b"x")
    assert fsspec.open(f"{own_server.url}/a?mountport={own_server.port}").open().read() == b"x"


def test_ranges_are_read_together(server, place, top):
    directory, _ = place
    (directory / "a").write_bytes(bytes(range(256)) * 100)
    (directory / "b").write_bytes(b"0123456789")
    fs = NFSFileSystem(**server.options())
    a, b, none = (f"{top}/{name}" for name in ("a", "b", "none"))
    results = fs.cat_ranges([a, b, a, none, b, b, a], [0, 2, 250, 0, -3, 5, 10], [5, 4, 260, 1, None, 5, 3])
    assert isinstance(results.pop(3), FileNotFoundError)
    assert results == [bytes(range(5)), b"23", bytes([250, 251, 252, 253, 254, 255, 0, 1, 2, 3]), b"789", b"", b""]
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([none], 0, 1, on_error="raise")
    assert fs.cat([a, b])[b] == b"0123456789"


def test_caches_of_fsspec_can_be_chosen(server, place, top):
    directory, _ = place
    contents = os.urandom(300_000)
    (directory / "a").write_bytes(contents)
    fs = NFSFileSystem(**server.options())
    for options in ({"cache_type": "bytes"}, {"cache_type": "all"}, {"block_size": 1000}, {}):
        with fs.open(f"{top}/a", **options) as file:
            file.seek(1000)
            assert file.read(2500) == contents[1000:3500], options
            assert file.size == len(contents)


def test_listings_are_kept_and_forgotten(server, place, top):
    directory, _ = place
    fs = NFSFileSystem(**server.options(), skip_instance_cache=True)
    fs.pipe_file(f"{top}/a", b"1")
    assert fs.ls(top, detail=False) == [f"{top}/a"]
    (directory / "b").write_bytes(b"2")
    assert fs.ls(top, detail=False) == [f"{top}/a"]
    assert fs.ls(top, detail=False, refresh=True) == [f"{top}/a", f"{top}/b"]
    with fs.open(f"{top}/c", "wb") as file:
        file.write(b"12345")
    assert fs.info(f"{top}/c")["size"] == 5
    fs.mv(f"{top}/c", f"{top}/d")
    assert fs.exists(f"{top}/d") and not fs.exists(f"{top}/c")


def test_trees_are_removed_without_what_links_lead_to(server, place, top):
    directory, _ = place
    (directory / "kept").mkdir()
    (directory / "kept" / "file").write_bytes(b"x")
    (directory / "tree").mkdir()
    (directory / "tree" / "link").symlink_to(f"{top}/kept")
    fs = NFSFileSystem(**server.options())
    assert fs.isdir(f"{top}/tree/link") and fs.find(f"{top}/tree") == [f"{top}/tree/link"]
    fs.rm(f"{top}/tree", recursive=True)
    assert (directory / "kept" / "file").exists() and not (directory / "tree").exists()


def test_transactions_show_all_or_nothing(server, place, top):
    directory, _ = place
    fs = NFSFileSystem(**server.options())
    with fs.transaction:
        with fs.open(f"{top}/a", "wb") as file:
            file.write(b"x")
        assert not (directory / "a").exists()
    assert (directory / "a").read_bytes() == b"x"
    with pytest.raises(RuntimeError), fs.transaction:
        with fs.open(f"{top}/b", "wb") as file:
            file.write(b"x")
        raise RuntimeError
    assert [it.name for it in directory.iterdir()] == ["a"]


def test_what_was_new_when_a_transaction_began_replaces_nothing_at_its_end(server, place, top):
    directory, _ = place
    fs = NFSFileSystem(**server.options())
    with fs.transaction:
        with fs.open(f"{top}/free", "xb") as file:
            file.write(b"mine")
    with pytest.raises(FileExistsError), fs.transaction:
        with fs.open(f"{top}/taken", "xb") as file:
            file.write(b"mine")
        (directory / "taken").write_bytes(b"theirs")
    found = {it.name: it.read_bytes() for it in directory.iterdir()}
    assert found == {"free": b"mine", "taken": b"theirs"}


def test_a_copy_onto_another_name_of_the_same_file_is_refused(server, place, top):
    directory, _ = place
    fs = NFSFileSystem(**server.options())
    file = directory / "file"
    file.write_bytes(b"x" * 8000)
    (directory / "linked").hardlink_to(file)
    (directory / "symbolic").symlink_to("file")
    for other in ["file", "linked", "symbolic"]:
        with pytest.raises(shutil.SameFileError):
            fs.cp_file(f"{top}/file", f"{top}/{other}")
        assert file.read_bytes() == b"x" * 8000
    fs.cp_file(f"{top}/file", f"{top}/copy")
    assert (directory / "copy").read_bytes() == file.read_bytes()
    assert sorted(os.listdir(directory)) == ["copy", "file", "linked", "symbolic"]


def test_what_has_no_size_is_copied_whole(server, place, top):
    directory, _ = place
    fs = NFSFileSystem(**server.options())
    fs.put_file("/proc/self/status", f"{top}/status")
    assert (directory / "status").read_text().startswith("Name:")


def test_instances_survive_pickles_and_forks(server, place, top):
    directory, _ = place
    (directory / "a").write_bytes(b"x" * 500_000)
    fs = NFSFileSystem(**server.options(), timeout=20)
    path = f"{top}/a"
    again = pickle.loads(pickle.dumps(fs))
    assert again == fs and again.cat_file(path) == b"x" * 500_000
    assert in_child(lambda: fs.cat_file(path)) == b"x" * 500_000
    with fs.open(path) as file:
        file.seek(499_990)
        assert pickle.loads(pickle.dumps(file)).read() == b"x" * 10


def test_errors_name_the_path(server, top):
    path = f"{top}/none/such"
    fs = NFSFileSystem(**server.options())
    with pytest.raises(FileNotFoundError) as caught:
        fs.info(path)
    assert caught.value.filename == path
    assert issubclass(nfsw.CopyError, OSError)
