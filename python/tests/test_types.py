"""What type checkers are told: it is true, and a program that uses it is checked."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def run(*arguments, tmp_path):
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_the_stubs_say_what_the_package_has(tmp_path):
    options = ["--mypy-config-file", str(HERE / "mypy.ini"), "--allowlist", str(HERE / "stubtest-allowed")]
    checked = run("mypy.stubtest", "nfsw", "--concise", *options, tmp_path=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_program_with_types_is_checked(tmp_path):
    good = run("mypy", "--strict", str(HERE / "typed.py"), tmp_path=tmp_path)
    assert good.returncode == 0, good.stdout + good.stderr
    wrong = tmp_path / "wrong.py"
    wrong.write_text((HERE / "typed.py").read_text().replace("whole: bytes", "whole: str"))
    bad = run("mypy", "--strict", str(wrong), tmp_path=tmp_path)
    assert bad.returncode == 1 and bad.stdout.count("error:") == 2, bad.stdout + bad.stderr
