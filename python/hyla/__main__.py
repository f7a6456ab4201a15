"""python -m hyla: the hyla command line."""

import os
import shutil
import sys
from pathlib import Path


def main() -> int:
    packaged = Path(__file__).parent / "bin" / "hyla"
    program = str(packaged) if packaged.exists() else shutil.which("hyla")
    if program is None:
        print("hyla: this installation has no command line; build it with -DHYLA_BUILD_CLI=ON", file=sys.stderr)
        return 2
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
