"""The count over CTest's, GoogleTest's and pytest's JUnit files: what could not be started is a failure, no test at all too."""

import subprocess
import sys
import tempfile
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "summarise"


def run(**files):
    with tempfile.TemporaryDirectory() as folder:
        for name, cases in files.items():
            (Path(folder) / f"{name}.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        done = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


ctest = '<testcase name="a" status="run"/><testcase name="b" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>'
assert run(ctest=ctest) == (0, ["1 passed, 0 failed, 1 skipped"])
assert run(ctest=ctest, pytest='<testcase name="x"/><testcase name="y"><skipped message="no torch"/></testcase>') == (0, ["2 passed, 0 failed, 2 skipped"])
absent = '<testcase name="c" status="notrun"><skipped message="Unable to find executable"/></testcase>'
assert run(ctest=ctest + absent) == (1, ["FAILED ctest: c", "1 passed, 1 failed, 1 skipped"])
assert run(ctest='<testcase name="d" status="fail"><failure message=""/></testcase>') == (1, ["FAILED ctest: d", "0 passed, 1 failed, 0 skipped"])
assert run(pytest='<testcase name="e"><error message="in setup"/></testcase><testcase name="f"/>')[1][-1] == "1 passed, 1 failed, 0 skipped"
assert run() == (1, ["0 passed, 0 failed, 0 skipped"])
